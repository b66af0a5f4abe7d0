"""Rows that Spark hands to a sink become records, each with the topic and the partition that it goes to."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.spark.rows import PARTITION, TOPIC
from log_tables.cluster.route import Route, SentRecords
from log_tables.cluster.topic import Topic
from log_tables.errors import InvalidRecord
from log_tables.layout import HEADERS, KEY, TIMESTAMP, VALUE
from log_tables.record import input_batch_from_columns, int64s
from log_tables.rows import as_batch


class PartitionRecords(NamedTuple):
    """Records for one partition, in the order of the rows: a batch of INPUT_SCHEMA."""

    topic: Topic
    partition: int
    records: pa.RecordBatch


def route(
    rows: pa.RecordBatch,
    topic: str | None,
    topic_named: Callable[[str], Topic],
    sticky: float,
    now_us: int,
    before: int = 0,
) -> Iterator[PartitionRecords]:
    """The records of `rows` by partition: the row's own one, else its key's, else the sticky one.

    All go to `topic` if it is given, else each to its row's; `topic_named` gives the topic of a name.
    `sticky`, from 0 to below 1, chooses among the partitions of each. Rows without a time get `now_us`. There
    were so many rows `before` these, which counts where an error names a row.

    Raises InvalidRecord, InvalidTimestamp, InvalidValue, RecordTooLarge, and what `topic_named` raises.
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
        chosen = topic_named(name)
        own = records if where is None else records.take(where)
        numbers = range(before, before + rows.num_rows) if where is None else int64s(where) + before
        named = given if given is None or where is None else given.take(where)
        for batch in Route(chosen, None, int(sticky * chosen.partition_count), now_us).split(
            SentRecords(own, named, numbers)
        ):
            yield PartitionRecords(chosen, batch.partition, as_batch(batch.records))


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


def _check_headers(headers: pa.Array | None) -> None:
    if headers is None:
        return
    items = headers.flatten()
    if items.null_count or items.field("key").null_count:
        raise InvalidRecord("a header has no key; name each one")
