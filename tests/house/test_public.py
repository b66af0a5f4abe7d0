"""The names that programs import: a change of these is a change for the programs."""

import subprocess
import sys

import lakelog
import lakelog.spark
import lakelog.testing
from lakelog.client.request import kind_of
from log_tables.error_codes import ERROR_CODES, NAMED
from log_tables.errors import LakelogError

CLASSES = [
    "AsyncClient",
    "AsyncConsumer",
    "AsyncProducer",
    "Client",
    "Consumer",
    "Credential",
    "Producer",
    "Record",
    "TopicPartition",
]
FUNCTIONS = ["json_deserializer", "json_serializer", "sql"]
ERRORS = [
    "AuthenticationFailed",
    "AuthorizationFailed",
    "BufferFull",
    "Conflict",
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
    "ProducerTaken",
    "QuotaReached",
    "RecordTooLarge",
    "Retriable",
    "RetryKeyReused",
    "SequenceGap",
    "StaleGeneration",
    "StaleProducerEpoch",
    "StoreFull",
    "TopicExists",
    "UnknownGroup",
    "UnknownMember",
    "UnknownPartition",
    "UnknownTopic",
    "Unreachable",
]


def test_the_public_names_are_these() -> None:
    assert lakelog.__all__ == sorted([*CLASSES, *ERRORS, *FUNCTIONS, "__version__"])
    assert all(getattr(lakelog, name).__name__ == name for name in [*CLASSES, *ERRORS, *FUNCTIONS])
    assert lakelog.spark.__all__ == ["DELTA_PACKAGE", "register", "session", "topics"]
    assert lakelog.testing.__all__ == ["RunningGateway", "gateway"]


def test_every_error_that_a_client_raises_is_public() -> None:
    assert all(issubclass(getattr(lakelog, name), LakelogError) for name in ERRORS)
    assert {kind_of(code).__name__ for code in ERROR_CODES.values()} - set(ERRORS) == set()
    assert {kind.__name__ for kind in NAMED} - set(ERRORS) == set()


def test_all_public_names_are_seen_before_any_is_loaded() -> None:
    program = "import sys, lakelog; print(*dir(lakelog)); print('pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    names, loaded = done.stdout.splitlines()
    assert set(names.split()) >= {*CLASSES, *ERRORS, *FUNCTIONS, "__version__"}
    assert {"TYPE_CHECKING", "import_module"} & set(names.split()) == set()
    assert loaded == "False"
