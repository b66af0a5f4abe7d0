"""A producer apart from its face: settings, serializers, the checks before a gateway is asked."""

import logging
import ssl
import warnings
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

import httpx

from lakelog.client import DEFAULT_URL, Serializer
from lakelog.client.producer.accumulator import Accumulator, ProducerConfig
from lakelog.client.producer.outgoing import check_target
from lakelog.client.security_config import Credential
from log_tables.clock import Clock, SystemClock
from log_tables.counts import counted
from log_tables.errors import InvalidArgument
from log_tables.limits import MIB

Transport = TypeVar("Transport", httpx.BaseTransport, httpx.AsyncBaseTransport)

_log = logging.getLogger(__name__)


class CommonProducer(ABC, Generic[Transport]):
    """The settings are Kafka's, and so are their names."""

    def __init__(  # noqa: PLR0913 -- the settings of Kafka's producer
        self,
        url: str = DEFAULT_URL,
        *,
        acks: str = "all",
        linger_ms: float = 5,
        batch_size: int = 1 * MIB,
        buffer_memory: int = 64 * MIB,
        max_block_ms: float = 60_000,
        request_timeout_ms: float = 30_000,
        delivery_timeout_ms: float = 120_000,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        credential: Credential | None = None,
        ssl_context: ssl.SSLContext | None = None,
        transport: Transport | None = None,
        clock: Clock | None = None,
    ) -> None:
        if acks not in ("0", "1", "all"):
            raise InvalidArgument(f"acks={acks!r} is not known; use '0', '1' or 'all'")
        self._clock = clock or SystemClock()
        self._key_serializer, self._value_serializer = key_serializer, value_serializer
        self._serializes = key_serializer is not None or value_serializer is not None
        config = ProducerConfig(
            acks,
            linger_ms / 1000,
            batch_size,
            buffer_memory,
            max_block_ms / 1000,
            request_timeout_ms / 1000,
            delivery_timeout_ms / 1000,
        )
        options = {"credential": credential, "ssl_context": ssl_context, "timeout_s": config.request_s}
        self._accumulator = self._connect(config, {"url": url, "transport": transport, **options})
        self._topics = self._accumulator.topics

    @abstractmethod
    def _connect(self, config: ProducerConfig, options: dict[str, Any]) -> Accumulator:
        """Make ready to send, with a client that has these `options`. Returns what will hold the records."""

    def _check_target(self, topic: str, partition: int | None) -> None:
        """The checks before a gateway is asked about a topic. Raises as `send`."""
        self._accumulator.check_open()
        check_target(topic, partition)

    def _serialized(self, value: Any, key: Any) -> tuple[bytes | None, bytes | None]:
        if key is not None and self._key_serializer is not None:
            key = self._key_serializer(key)
        if value is not None and self._value_serializer is not None:
            value = self._value_serializer(value)
        return value, key


def warn_unclosed(kind: str, block: str, waiting: int) -> None:
    """Say that a producer was not closed, and that so many records waiting in it may be lost."""
    warnings.warn(f"a lakelog.{kind} was not closed; use it in {block}", ResourceWarning, stacklevel=3)
    if waiting:
        records = counted(waiting, "record")
        _log.error(
            "a producer was not closed, and %s in it may be lost; close it, or use it in %s", records, block
        )
