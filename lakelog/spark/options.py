"""Options that reading and writing share: their names, the location of the root, the gateway."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lakelog.client import DEFAULT_URL
from lakelog.client.security_config import SecurityConfig, from_environment, security_config
from log_tables.errors import InvalidArgument
from log_tables.spelling import meant

STORAGE_PREFIX = "storage."
TABLE = "table"

SECURITY_OPTIONS: Mapping[str, str] = {
    "api_key": "token",  # Spark hides values of options and settings that are called so
    "api_key_file": "tokenFile",
    "user": "user",
    "password": "password",
    "ca_file": "caFile",
    "certfile": "certFile",
    "keyfile": "keyFile",
}
"""The options that a gateway needs, by the names of SecurityConfig."""

SELECTIONS = ("subscribe", "subscribePattern", "assign")
STREAM_ONLY = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "groupId",
    "gateway",
    *SECURITY_OPTIONS.values(),
)
BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", TABLE)
SOURCE_OPTIONS = (
    "path",
    *SELECTIONS,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    *BATCH_ONLY,
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    *STREAM_ONLY,
    "includeHeaders",
    "columns",
)
"""Every option for reading but those that begin with STORAGE_PREFIX."""

_OF_KAFKA_ONLY = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)


@dataclass(frozen=True, slots=True)
class RootLocation:
    """A root as `open_store` takes it, with the options of its store."""

    root: str
    storage: tuple[tuple[str, str], ...] = ()


def storage_options(store_options: Mapping[str, str]) -> dict[str, str]:
    """The options of a store as options of a query."""
    return {STORAGE_PREFIX + name: value for name, value in store_options.items()}


def root_location(given: Mapping[str, str]) -> RootLocation:
    """The root that `path` and the options of the store name. Raises InvalidArgument.

    A relative directory becomes absolute on the driver, because executors work in directories of their own.
    """
    options = {name.lower(): given[name] for name in sorted(given)}
    path = options.get("path", "")
    if not path.strip():
        raise InvalidArgument(
            'the option path is missing; name the root of the tables: .option("path", "/data/lakelog")'
        )
    storage = tuple(
        (name.removeprefix(STORAGE_PREFIX), value)
        for name, value in options.items()
        if name.startswith(STORAGE_PREFIX)
    )
    return RootLocation(path if "://" in path else os.path.abspath(path), storage)


def check_names(given: Mapping[str, str], names: Iterable[str]) -> None:
    """Raise InvalidArgument for an option that is not among `names`, in upper or lower case."""
    known = {name.lower(): name for name in names}
    for name in given:
        if name.lower() in known or name.lower().startswith(STORAGE_PREFIX):
            continue
        of_kafka = {option.lower(): option for option in _OF_KAFKA_ONLY}
        if name.lower().startswith("kafka.") or name.lower() in of_kafka:
            shown = of_kafka.get(name.lower(), name)
            raise InvalidArgument(
                f"the option {shown} is about a Kafka broker, and there is none; drop it, and name the root "
                "of the tables with the option path"
            )
        options = f"{', '.join(known.values())} and {STORAGE_PREFIX}*"
        hint = meant(name, known.values()) or f"the options are {options}"
        raise InvalidArgument(f"the option {name!r} is unknown; {hint}")


@dataclass(frozen=True, slots=True)
class GatewayLocation:
    """Where a gateway is, and how it is asked."""

    url: str
    security: SecurityConfig

    def client_options(self) -> dict[str, Any]:
        """Options of a client: without any in the query, those of the driver's environment.

        Raises InvalidArgument.
        """
        security = from_environment() if self.security == SecurityConfig() else self.security
        return {"url": self.url, **security.options()}


def gateway_location(given: Mapping[str, str]) -> GatewayLocation:
    """The gateway that the options name. Raises InvalidArgument."""
    options = {name.lower(): value for name, value in given.items()}
    called = {name: option.lower() for name, option in SECURITY_OPTIONS.items()}
    url = options.get("gateway")
    return GatewayLocation(DEFAULT_URL if url is None else gateway_url(url), security_config(options, called))


def gateway_url(text: str) -> str:
    """The URL in the option `gateway`. Raises InvalidArgument."""
    url = text.strip()
    if not re.fullmatch(r"https?://[^/\s]+(/\S*)?", url):
        raise InvalidArgument(f"gateway={text!r} is not a URL; give one such as http://127.0.0.1:8082")
    return url
