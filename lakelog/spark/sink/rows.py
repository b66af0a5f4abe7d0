"""Rows that Spark hands to a sink become records, each with the topic and the partition that it goes to."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelog.spark.rows import PARTITION, TOPIC
from log_tables.cluster.topic import Topic
from log_tables.errors import InvalidRecord, RecordTooLarge, UnknownPartition
from log_tables.layout import HEADERS, KEY, TIMESTAMP, VALUE
from log_tables.record import input_batch_from_columns, int64s, largest_record
from log_tables.topic_partition import partition_for_key


class PartitionRecords(NamedTuple):
    """Records for one partition, in the order of the rows: a batch of INPUT_SCHEMA."""

    topic: Topic
    partition: int
    records: pa.RecordBatch


def route(
    rows: pa.RecordBatch, topic: str | None, named: Callable[[str], Topic], sticky: float, now_us: int
) -> Iterator[PartitionRecords]:
    """The records of `rows` by partition: the row's own one, else its key's, else the sticky one.

    All go to `topic` if it is given, else each to its row's; `named` gives the topic of a name. `sticky`,
    from 0 to below 1, chooses among the partitions of each. Rows without a time get `now_us`. Raises
    InvalidRecord, RecordTooLarge, UnknownPartition, and what `named` raises.
    """
    columns = {name: rows.column(name) for name in rows.schema.names}
    _check_headers(columns.get(HEADERS))
    records = input_batch_from_columns(
        columns[VALUE],
        now_us=now_us,
        keys=columns.get(KEY),
        timestamps=columns.get(TIMESTAMP),
        headers=columns.get(HEADERS),
    )
    given = columns.get(PARTITION)
    for name, where in _by_topic(columns.get(TOPIC), topic):
        chosen = named(name)
        mine = records if where is None else records.take(where)
        wanted = given if given is None or where is None else given.take(where)
        _check_sizes(mine, chosen)
        yield from _by_partition(mine, chosen, _partitions(mine, chosen, wanted, sticky))


def _by_topic(names: pa.Array | None, topic: str | None) -> Iterator[tuple[str, pa.Array | None]]:
    """Each topic and which rows are its own; None: all."""
    if topic is not None or names is None:
        assert topic is not None
        yield topic, None
        return
    if names.null_count:
        raise InvalidRecord("a row has no topic; fill the column 'topic', or set the option topic")
    distinct = names.unique()
    for name in distinct:
        alone = len(distinct) == 1
        yield name.as_py(), None if alone else pc.indices_nonzero(pc.equal(names, name))


def _partitions(
    records: pa.RecordBatch, topic: Topic, given: pa.Array | None, sticky: float
) -> np.ndarray | int:
    """The partition of each record; a number if it is the same for all."""
    count, keys = topic.partition_count, records.column(KEY)
    named = given is not None and given.null_count < len(given)
    if not named and keys.null_count == len(keys):
        return int(sticky * count)
    chosen = np.full(records.num_rows, -1, np.int64)
    if named:
        chosen = _named(given, topic)
    free = chosen < 0
    if free.any():
        otherwise = int(sticky * count)
        left = keys.to_pylist() if free.all() else keys.filter(pa.array(free)).to_pylist()
        chosen[free] = [otherwise if key is None else partition_for_key(key, count) for key in left]
    return chosen


def _named(given: pa.Array, topic: Topic) -> np.ndarray:
    """The column `partition` as int64, -1 where it is null."""
    for wrong in (pc.min(given).as_py(), pc.max(given).as_py()):
        if not 0 <= wrong < topic.partition_count:
            raise UnknownPartition(
                f"a row names partition {wrong} of topic {topic.name}, which has 0 to "
                f"{topic.partition_count - 1}; name one of these, or leave it null"
            )
    return int64s(given.cast(pa.int64()).fill_null(-1)).copy()


def _by_partition(
    records: pa.RecordBatch, topic: Topic, partitions: np.ndarray | int
) -> Iterator[PartitionRecords]:
    if isinstance(partitions, int):
        yield PartitionRecords(topic, partitions, records)
        return
    order = np.argsort(partitions, kind="stable")
    ordered = partitions[order]
    begins = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    taken = records.take(pa.Array.from_buffers(pa.int64(), len(order), [None, pa.py_buffer(order)]))
    for begin, end in zip(begins, [*begins[1:], len(order)], strict=True):
        yield PartitionRecords(topic, int(ordered[begin]), taken.slice(begin, end - begin))


def _check_sizes(records: pa.RecordBatch, topic: Topic) -> None:
    _, largest = largest_record(records)
    if largest > topic.config.max_message_bytes:
        raise RecordTooLarge(
            f"a record has {largest} bytes, topic {topic.name!r} takes {topic.config.max_message_bytes}; "
            "write less, or raise max.message.bytes"
        )


def _check_headers(headers: pa.Array | None) -> None:
    if headers is None:
        return
    items = headers.flatten()
    if items.null_count or items.field("key").null_count:
        raise InvalidRecord("a header has no key; name each one")
