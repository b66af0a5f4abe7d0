"""The options of a query that reads: names and meanings of Spark's Kafka source, and a few of our own.

Source: "Structured Streaming + Kafka Integration Guide" of Spark 4.2. Spark hands names over in lower case.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from lakelog.spark.options import (
    BATCH_ONLY,
    SECURITY_OPTIONS,
    SELECTIONS,
    SOURCE_OPTIONS,
    STORAGE_PREFIX,
    STREAM_ONLY,
    TABLE,
    GatewayLocation,
    RootLocation,
    check_names,
    gateway_location,
    root_location,
)
from lakelog.spark.rows import COLUMNS, HEADERS_COLUMN, NO_COLUMNS, OFFERED
from lakelog.spark.source.offsets import EARLIEST, LATEST, Position, json_object, position, whole_number
from lakelog.spark.worker import store_at
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import check_group_name
from log_tables.cluster.topic import check_topic_name, is_internal
from log_tables.columns.column_type import without_case
from log_tables.columns.declaration import Declaration
from log_tables.columns.declaration import parse as parse_columns
from log_tables.errors import InvalidArgument, UnknownTopic
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.sql.system_tables import SYSTEM_TABLES
from log_tables.topic_partition import TopicPartition

WithoutMatch = Literal["error", "latest"]
"""Whether a time after the last record is an error, or stands for the end of the log."""

_DELAY = re.compile(r"([0-9]{1,15})\s*(us|ms|s|m|min|h|d)?")
_DELAY_MS = {"us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one query, checked."""

    location: RootLocation
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    assigned: tuple[TopicPartition, ...] | None
    starting: Position
    ending: Position
    without_match: WithoutMatch
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: float
    columns: tuple[str, ...]
    declared: pa.Schema
    group_id: str | None
    gateway: GatewayLocation


def parse(given: Mapping[str, str], streaming: bool) -> Options:
    """The options of a batch or a streaming query. Raises InvalidArgument that names the wrong one."""
    check_names(given, SOURCE_OPTIONS)
    known = {name.lower(): name for name in SOURCE_OPTIONS}
    options = {known[name.lower()]: value for name, value in given.items() if name.lower() in known}
    _check_mode(options, streaming)
    location = root_location(given)
    topics, pattern, assigned = _selection(options)
    least, most = _number(options, "minOffsetsPerTrigger"), _number(options, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise InvalidArgument(
            f"minOffsetsPerTrigger={least} is more than maxOffsetsPerTrigger={most}; make it at most that"
        )
    if "maxTriggerDelay" in options and least is None:
        raise InvalidArgument("maxTriggerDelay does nothing without minOffsetsPerTrigger; set both or none")
    return Options(
        location=location,
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=position(options, "starting", LATEST if streaming else EARLIEST, streaming),
        ending=position(options, "ending", LATEST, streaming),
        without_match=_strategy(options),
        fail_on_data_loss=_flag("failOnDataLoss", options.get("failOnDataLoss", "true")),
        min_partitions=_number(options, "minPartitions"),
        max_records_per_partition=_number(options, "maxRecordsPerPartition"),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=_delay_ms(options),
        columns=columns_of(options),
        declared=declared_of(options),
        group_id=_group_id(options, topics),
        gateway=_gateway(options),
    )


def columns_of(given: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of the rows, in order; others than those of every row are to be declared ones.

    Raises InvalidArgument.
    """
    options = {name.lower(): value for name, value in given.items()}
    headers = _flag("includeHeaders", options.get("includeheaders", "false"))
    if "columns" not in options:
        return (*COLUMNS, HEADERS_COLUMN) if headers else COLUMNS
    names = _list(options["columns"])
    if not names or len(set(map(without_case, names))) < len(names):
        raise InvalidArgument(
            f"columns={options['columns']!r} must name at least one column, each once; Spark's names have no "
            "case"
        )
    if "includeheaders" in options and headers != (HEADERS_COLUMN in names):
        raise InvalidArgument(
            f"includeHeaders={options['includeheaders']} and columns={options['columns']!r} contradict each "
            "other; columns alone says it"
        )
    return names


def declared_of(given: Mapping[str, str]) -> pa.Schema:
    """The declared columns among the columns of the rows, and their types.

    The root is looked at if there are any. Raises InvalidArgument for a column that no topic of the query has
    declared, or two with different types or cases, UnknownTopic for one that a missing topic may have.
    """
    wanted = [name for name in columns_of(given) if name not in OFFERED]
    if not wanted:
        return NO_COLUMNS
    known = {name.lower(): name for name in SOURCE_OPTIONS}
    topics, pattern, assigned = _selection({known.get(name.lower(), name): given[name] for name in given})
    chosen = {*topics, *(partition.topic for partition in assigned or ())}
    cluster = Cluster.open(store_at(root_location(given)), create=False)
    records = (cluster.metadata_log.topic(topic.name) for topic in cluster.topics())
    declared = {
        record.name: parse_columns(record.columns)
        for record in records
        if record is not None and (record.name in chosen or (pattern and pattern.fullmatch(record.name)))
    }
    missing = sorted(name for name in chosen if cluster.cached_topic(name) is None)
    return pa.schema([_declared_field(name, declared, missing) for name in wanted])


def _declared_field(name: str, declared: Mapping[str, Declaration], missing: Sequence[str]) -> pa.Field:
    """The column `name` of the topics that declare it. Raises as `declared_of`."""
    folded = without_case(name)
    found = {
        topic: each.schema.field(column)
        for topic, each in declared.items()
        for column in each.schema.names
        if without_case(column) == folded
    }
    if not found and missing and folded not in map(without_case, OFFERED):
        raise UnknownTopic(f"there is no topic {missing[0]!r} to read; create it, or name another")
    if name not in [field.name for field in found.values()]:
        named = dict.fromkeys(column for each in declared.values() for column in each.schema.names)
        raise InvalidArgument(f"columns names {name!r}; there are {', '.join((*OFFERED, *named))}")
    first = next(topic for topic in found if found[topic].name == name)
    for topic, field in found.items():
        if field.name != name:
            raise InvalidArgument(
                f"topics {first} and {topic} declare the columns {name} and {field.name}, which are one name "
                "in Spark; read them by queries of their own"
            )
        if field.type != found[first].type:
            raise InvalidArgument(
                f"topics {first} and {topic} declare the column {name} with different types; read them by "
                "queries of their own"
            )
    return found[first]


def names_table(given: Mapping[str, str]) -> bool:
    """Whether the query reads a table, not records."""
    return any(name.lower() == TABLE for name in given)


def table_of(given: Mapping[str, str]) -> tuple[RootLocation, str]:
    """Which of SYSTEM_TABLES the option `table` names, and of which root. Raises InvalidArgument."""
    check_names(given, SOURCE_OPTIONS)
    options = {name.lower(): value for name, value in given.items()}
    if options[TABLE] not in SYSTEM_TABLES:
        raise InvalidArgument(
            f"table={options[TABLE]!r} is none of the tables; there are {', '.join(SYSTEM_TABLES)}, and "
            "topics are read with subscribe"
        )
    for name in given:
        if name.lower() not in ("path", TABLE) and not name.lower().startswith(STORAGE_PREFIX):
            raise InvalidArgument(
                f"the option {name} is about the records of topics, and table={options[TABLE]} reads none; "
                "drop one of the two"
            )
    return root_location(given), options[TABLE]


def _check_mode(options: Mapping[str, str], streaming: bool) -> None:
    wrong = [name for name in (BATCH_ONLY if streaming else STREAM_ONLY) if name in options]
    if wrong:
        mode, other = ("streaming", "batch") if streaming else ("batch", "streaming")
        raise InvalidArgument(
            f"the option {wrong[0]} is for {other} queries and has no meaning in a {mode} query; drop it"
        )


def _selection(
    options: Mapping[str, str],
) -> tuple[tuple[str, ...], re.Pattern[str] | None, tuple[TopicPartition, ...] | None]:
    chosen = [name for name in SELECTIONS if name in options]
    if len(chosen) != 1:
        found = " and ".join(chosen) or "none"
        raise InvalidArgument(f"give exactly one of {', '.join(SELECTIONS)}; there is {found}")
    text = options[chosen[0]]
    if chosen == ["subscribe"]:
        topics = _list(text)
        if not topics:
            raise InvalidArgument("subscribe is empty; name topics, with commas between them")
        for topic in topics:
            check_topic_name(topic)
        return tuple(dict.fromkeys(topics)), None, None
    if chosen == ["subscribePattern"]:
        return (), _pattern(text.strip()), None
    partitions = _assigned(text)
    return tuple(dict.fromkeys(topic for topic, _ in partitions)), None, partitions


def _pattern(text: str) -> re.Pattern[str]:
    if not text:
        raise InvalidArgument("subscribePattern is empty; give a regular expression")
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidArgument(
            f"subscribePattern={text!r} is not a regular expression ({error}); correct it"
        ) from None


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    hint = 'give JSON such as {"orders": [0, 1]}'
    named = json_object("assign", text, hint)
    pairs: list[TopicPartition] = []
    for topic, numbers in named.items():
        check_topic_name(topic)
        if not isinstance(numbers, list) or not all(type(n) is int and n >= 0 for n in numbers):
            raise InvalidArgument(
                f"assign gives {topic} {json.dumps(numbers)}, which is not a list of partitions; {hint}"
            )
        pairs += [TopicPartition(topic, number) for number in numbers]
    if not pairs:
        raise InvalidArgument(f"assign={text!r} names no partition; {hint}")
    return tuple(sorted(set(pairs)))


def _number(options: Mapping[str, str], option: str) -> int | None:
    if option not in options:
        return None
    return whole_number(option, options[option], 1, "a whole number above 0")


def _flag(option: str, text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise InvalidArgument(f"{option}={text!r} is neither true nor false; set one of them")
    return text.strip().lower() == "true"


def _strategy(options: Mapping[str, str]) -> WithoutMatch:
    option = "startingOffsetsByTimestampStrategy"
    if option in options and options.keys().isdisjoint(("startingTimestamp", "startingOffsetsByTimestamp")):
        raise InvalidArgument(f"{option} does nothing without a starting timestamp; give one, or drop it")
    text = options.get(option, "error").strip().lower()
    if text == "error":
        return "error"
    if text == "latest":
        return "latest"
    raise InvalidArgument(f"{option}={text!r} is neither error nor latest; set one of them")


def _group_id(options: Mapping[str, str], topics: Iterable[str]) -> str | None:
    name = options.get("groupId")
    if name is not None:
        check_group_name(name)
        if CONSUMER_OFFSETS in topics:
            raise InvalidArgument(
                f"groupId={name} is kept in {CONSUMER_OFFSETS}, so a query of that topic would read what it "
                "commits and never come to its end; drop groupId"
            )
        internal = next(filter(is_internal, topics), None)
        if internal is not None:
            raise InvalidArgument(
                f"groupId={name} cannot commit anything of {internal}, which is internal; drop groupId"
            )
    return name


def _gateway(options: Mapping[str, str]) -> GatewayLocation:
    alone = next((name for name in ("gateway", *SECURITY_OPTIONS.values()) if name in options), None)
    if alone is not None and "groupId" not in options:
        raise InvalidArgument(f"{alone} does nothing without groupId; set both or none")
    return gateway_location(options)


def _delay_ms(options: Mapping[str, str]) -> float:
    text = options.get("maxTriggerDelay", "15m")
    match = _DELAY.fullmatch(text.strip().lower())
    if match is None:
        raise InvalidArgument(
            f"maxTriggerDelay={text!r} is not a duration; give one such as 30s, 15m or 2h (a number alone "
            "is milliseconds)"
        )
    return int(match[1]) * _DELAY_MS[match[2] or "ms"]


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
