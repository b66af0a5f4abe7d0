"""lakelog: a streaming log whose storage is the lakehouse. Programs use `Client`, `Consumer`, `Producer`, and
on an event loop `AsyncClient`, `AsyncConsumer`, `AsyncProducer`. `sql` asks the tables.

Every error that they raise on purpose is here, too: catch `lakelog.UnknownTopic`, or a whole kind, such as
`lakelog.Retriable`. log_tables/errors.py says which kind asks the caller for what.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from log_tables.version import VERSION

if TYPE_CHECKING:
    from lakelog.client import json_deserializer, json_serializer
    from lakelog.client.async_client import AsyncClient
    from lakelog.client.client import Client
    from lakelog.client.consumer.async_consumer import AsyncConsumer
    from lakelog.client.consumer.consumer import Consumer
    from lakelog.client.producer.async_producer import AsyncProducer
    from lakelog.client.producer.producer import Producer
    from lakelog.client.security_config import Credential
    from lakelog.client.sql import sql
    from log_tables.errors import (
        AuthenticationFailed,
        AuthorizationFailed,
        BufferFull,
        Conflict,
        GroupMaxSizeReached,
        GroupNotEmpty,
        InconsistentGroupProtocol,
        InvalidArgument,
        InvalidConfig,
        InvalidConsumer,
        InvalidRecord,
        InvalidRequest,
        InvalidTimestamp,
        InvalidTopicName,
        InvalidValue,
        LakelogError,
        MemberExists,
        MirroredTopic,
        MixedSubscription,
        NotAssigned,
        NotFound,
        NotLeader,
        OffsetMismatch,
        OffsetOutOfRange,
        OutcomeUnknown,
        PartitionsMaxReached,
        ProducerTaken,
        QuotaReached,
        RecordTooLarge,
        Retriable,
        RetryKeyReused,
        SequenceGap,
        StaleGeneration,
        StaleProducerEpoch,
        StoreFull,
        TopicExists,
        UnknownGroup,
        UnknownMember,
        UnknownPartition,
        UnknownTopic,
        Unreachable,
    )
    from log_tables.record import Record
    from log_tables.topic_partition import TopicPartition

__all__ = [
    "AsyncClient",
    "AsyncConsumer",
    "AsyncProducer",
    "AuthenticationFailed",
    "AuthorizationFailed",
    "BufferFull",
    "Client",
    "Conflict",
    "Consumer",
    "Credential",
    "GroupMaxSizeReached",
    "GroupNotEmpty",
    "InconsistentGroupProtocol",
    "InvalidArgument",
    "InvalidConfig",
    "InvalidConsumer",
    "InvalidRecord",
    "InvalidRequest",
    "InvalidTimestamp",
    "InvalidTopicName",
    "InvalidValue",
    "LakelogError",
    "MemberExists",
    "MirroredTopic",
    "MixedSubscription",
    "NotAssigned",
    "NotFound",
    "NotLeader",
    "OffsetMismatch",
    "OffsetOutOfRange",
    "OutcomeUnknown",
    "PartitionsMaxReached",
    "Producer",
    "ProducerTaken",
    "QuotaReached",
    "Record",
    "RecordTooLarge",
    "Retriable",
    "RetryKeyReused",
    "SequenceGap",
    "StaleGeneration",
    "StaleProducerEpoch",
    "StoreFull",
    "TopicExists",
    "TopicPartition",
    "UnknownGroup",
    "UnknownMember",
    "UnknownPartition",
    "UnknownTopic",
    "Unreachable",
    "__version__",
    "json_deserializer",
    "json_serializer",
    "sql",
]

__version__ = VERSION

_MODULES = {
    "AsyncClient": "lakelog.client.async_client",
    "AsyncConsumer": "lakelog.client.consumer.async_consumer",
    "AsyncProducer": "lakelog.client.producer.async_producer",
    "Client": "lakelog.client.client",
    "Consumer": "lakelog.client.consumer.consumer",
    "Credential": "lakelog.client.security_config",
    "Producer": "lakelog.client.producer.producer",
    "Record": "log_tables.record",
    "TopicPartition": "log_tables.topic_partition",
    "json_deserializer": "lakelog.client",
    "json_serializer": "lakelog.client",
    "sql": "lakelog.client.sql",
}
"""Where the names are that are no errors."""


def __getattr__(name: str) -> object:
    """Load a name at its first use (PEP 562): a command must not wait for what it does not need."""
    if name not in __all__:
        raise AttributeError(f"module 'lakelog' has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "log_tables.errors")), name)


def __dir__() -> list[str]:
    """The public names, also those that are not loaded yet."""
    return sorted({*globals(), *__all__} - {"TYPE_CHECKING", "VERSION", "import_module"})
