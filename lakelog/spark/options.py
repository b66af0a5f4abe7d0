"""What the options of reading and of writing have in common: names, the root, the gateway."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from log_tables.errors import InvalidArgument

STORAGE_PREFIX = "storage."
TABLE = "table"

SELECTIONS = ("subscribe", "subscribePattern", "assign")
STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "groupId", "gateway")
BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", TABLE)
NAMES = (
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
"""Every option but those that begin with STORAGE_PREFIX."""

_OF_KAFKA_ONLY = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)


@dataclass(frozen=True, slots=True)
class RootLocation:
    """Where the tables are: a root as `open_store` takes it, with its options."""

    root: str
    storage: tuple[tuple[str, str], ...] = ()


def root_location(given: Mapping[str, str]) -> RootLocation:
    """Where `path` and the options of the storage say. Raises InvalidArgument.

    A directory is absolute, as the driver means it: executors work in directories of their own.
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


def check_names(given: Mapping[str, str], known: Mapping[str, str]) -> None:
    """Raise InvalidArgument for an option that is not `known` (by its name in lower case)."""
    for name in given:
        if name.lower() in known or name.lower().startswith(STORAGE_PREFIX):
            continue
        of_kafka = {option.lower(): option for option in _OF_KAFKA_ONLY}
        if name.lower().startswith("kafka.") or name.lower() in of_kafka:
            shown = of_kafka.get(name.lower(), name)
            raise InvalidArgument(
                f"the option {shown} is about a Kafka broker, and there is none; drop it (path says where "
                "the tables are)"
            )
        near = [known[match] for match in get_close_matches(name.lower(), known, 1)]
        hint = (
            f"did you mean {near[0]}?"
            if near
            else f"known are {', '.join(known.values())} and {STORAGE_PREFIX}*"
        )
        raise InvalidArgument(f"the option {name!r} is not known; {hint}")


def gateway_url(text: str) -> str:
    """What the option `gateway` names. Raises InvalidArgument."""
    url = text.strip()
    if not re.fullmatch(r"https?://[^/\s]+(/\S*)?", url):
        raise InvalidArgument(f"gateway={text!r} is no URL; give one such as http://127.0.0.1:8082")
    return url
