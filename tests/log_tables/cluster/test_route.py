"""Where the records of a request go: the same in both forms, and for any part of the request."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_tables.cluster.config import TopicConfig
from log_tables.cluster.route import PartitionBatch, Route, SentRecords, joined
from log_tables.cluster.topic import Topic
from log_tables.errors import (
    InvalidRecord,
    InvalidTimestamp,
    InvalidValue,
    LakelogError,
    RecordTooLarge,
    UnknownPartition,
)
from log_tables.key_hash import KEY_HASHES, MURMUR3, partition_for_key
from log_tables.limits import CULPRITS_MAX
from log_tables.partition.partition import Partition
from log_tables.partition.reader import PartitionConfig
from log_tables.rows import Records, Rows, as_batch, count_of
from log_tables.topic_table.topic_table import TopicTable

COUNT = 5
LIMIT = 9
STICKY = 3
NOW_US = 1_700_000_000_000_000


def topic(key_hash: str = MURMUR3, **more: str) -> Topic:
    """A topic whose partitions nobody opens: where records go is decided without them."""

    def opened(directory: str, config: PartitionConfig) -> Partition:
        raise AssertionError(f"{directory} is opened with {config}")

    def opened_table(directory: str) -> TopicTable:
        raise AssertionError(f"the table over {directory} is opened")

    config = TopicConfig({"max.message.bytes": str(LIMIT), "partitioner.hash": key_hash, **more})
    return Topic(opened, opened_table, "t", "an id", 0, COUNT, config)


keys = st.none() | st.binary(max_size=3)
partitions = st.none() | st.integers(-1, COUNT)
requests = st.lists(st.tuples(keys, partitions), min_size=1, max_size=8)


def sent(request: Sequence[tuple[bytes | None, int | None]], as_rows: bool) -> SentRecords:
    """A request whose values are numbers from 0 on."""
    values = [b"%d" % number for number in range(len(request))]
    own_keys = [key for key, _ in request]
    named = [partition for _, partition in request]
    has_keys, are_named = any(key is not None for key in own_keys), any(n is not None for n in named)
    rows = Rows(values, 0, own_keys if has_keys else None)
    if as_rows:
        return SentRecords(rows, named if are_named else None)
    return SentRecords(as_batch(rows), pa.array(named, pa.int32()) if are_named else None)


def shown(batches: Sequence[PartitionBatch]) -> list[tuple[int, list[bytes], list[int]]]:
    return [(each.partition, values_of(each.records), [*each.positions()]) for each in batches]


def values_of(records: Records) -> list[bytes]:
    values: list[bytes] = as_batch(records).column("value").to_pylist()
    return values


def outcome(route: Route, records: SentRecords) -> object:
    try:
        return shown(route.split(records))
    except LakelogError as error:
        return type(error), error.message


@given(requests, st.none() | st.integers(-1, COUNT), st.sampled_from(KEY_HASHES))
def test_both_forms_go_to_the_same_partitions(
    request: list[tuple[bytes | None, int | None]], fixed: int | None, key_hash: str
) -> None:
    route = Route(topic(key_hash), fixed, STICKY, NOW_US)
    assert outcome(route, sent(request, as_rows=True)) == outcome(route, sent(request, as_rows=False))


@given(requests, st.sampled_from(KEY_HASHES))
def test_a_record_goes_to_its_own_partition_else_its_keys_else_the_sticky_one(
    request: list[tuple[bytes | None, int | None]], key_hash: str
) -> None:
    route = Route(topic(key_hash), None, STICKY, NOW_US)
    wrong = next(
        (n for n, (_, named) in enumerate(request) if named is not None and not 0 <= named < COUNT), None
    )
    if wrong is not None:
        with pytest.raises(
            InvalidRecord, match=f"record {wrong}: topic 't' has no partition {request[wrong][1]}"
        ):
            route.split(sent(request, as_rows=True))
        return
    where = {
        index: batch.partition for batch in route.split(sent(request, True)) for index in batch.positions()
    }
    for index, (key, named) in enumerate(request):
        expected = STICKY if key is None else partition_for_key(key, COUNT, key_hash)
        assert where[index] == (expected if named is None else named)
    assert sorted(where) == [*range(len(request))]


@given(requests, st.booleans(), st.data())
def test_a_part_of_a_request_keeps_its_positions(
    request: list[tuple[bytes | None, int | None]], as_rows: bool, data: st.DataObject
) -> None:
    request = [(key, None if named is None else abs(named) % COUNT) for key, named in request]
    whole = sent(request, as_rows)
    left = whole
    for _ in range(3):  # a part of a part is a part
        batches = Route(topic(), None, data.draw(st.integers(0, COUNT - 1)), NOW_US).split(left)
        chosen = data.draw(
            st.lists(st.sampled_from(batches), min_size=1, unique_by=lambda each: each.partition)
        )
        left = joined(chosen)
        expected = sorted(index for batch in chosen for index in batch.positions())
        batches = Route(topic(), None, STICKY, NOW_US).split(left)
        assert sorted(index for batch in batches for index in batch.positions()) == expected
        for batch in batches:
            assert values_of(batch.records) == [b"%d" % index for index in batch.positions()]


BOUNDS = {"message.timestamp.before.max.ms": "2000", "message.timestamp.after.max.ms": "1000"}
DECLARED = {"value.columns": "n bigint", "value.columns.mode": "refuse"}


@pytest.mark.parametrize("as_rows", [True, False])
@pytest.mark.parametrize(
    ("kind", "rows", "named", "why"),
    [
        (RecordTooLarge, Rows([b"x" * LIMIT] * 4, NOW_US, [None, b"k", None, b""]), None, ""),
        (RecordTooLarge, Rows([b"", b"x" * 99, b"", b"x" * 10], NOW_US), None, "it has 10 bytes, topic 't'"),
        (InvalidTimestamp, Rows([b""] * 4, [NOW_US, 0, NOW_US, 2 * NOW_US]), None, "after its arrival"),
        (InvalidValue, Rows([b"{}", b"1", None, b'{"n":""}'], NOW_US), None, "/n is text, not bigint"),
        (InvalidRecord, Rows([b"{}"] * 4, NOW_US), [None, COUNT, 0, -1], "no partition -1; use 0 to"),
    ],
    ids=["one", "sizes", "times", "values", "partitions"],
)
def test_all_records_that_are_to_blame_are_named(
    as_rows: bool, kind: type[LakelogError], rows: Rows, named: list[int | None] | None, why: str
) -> None:
    numbers = named if as_rows or named is None else pa.array(named, pa.int32())
    part = SentRecords(rows if as_rows else as_batch(rows), numbers, np.array([3, 5, 7, 9]))
    with pytest.raises(kind, match=r"\Arecord 5: ") as refused:
        Route(topic(**BOUNDS, **DECLARED), None, STICKY, NOW_US).split(part)
    culprits = refused.value.details["record_errors"]
    assert isinstance(culprits, list)
    assert [each["index"] for each in culprits] == ([5, 9] if why else [5])
    assert why in culprits[-1]["message"]
    assert refused.value.message.endswith(" (1 more in record_errors)") == bool(why)


@pytest.mark.parametrize("as_rows", [True, False])
def test_of_very_many_records_to_blame_the_first_are_named(as_rows: bool) -> None:
    rows = Rows([b"x" * (LIMIT + 1)] * (CULPRITS_MAX + 1), NOW_US)
    with pytest.raises(RecordTooLarge) as refused:
        Route(topic(), 0, STICKY, NOW_US).split(SentRecords(rows if as_rows else as_batch(rows)))
    culprits = refused.value.details["record_errors"]
    assert isinstance(culprits, list)
    assert len(culprits) == CULPRITS_MAX


def test_a_time_outside_of_the_bounds_of_its_topic_is_refused() -> None:
    """Bounds are inclusive, in both forms; there are none by default, and none for LogAppendTime."""
    strict, by_append = topic(**BOUNDS), topic(**BOUNDS, **{"message.timestamp.type": "LogAppendTime"})
    inside, outside = (-2_000_000, 0, 1_000_000), (-2_000_001, 1_000_001, 10**16)
    for as_rows in (True, False):
        for after_us in (*inside, *outside):
            rows = Rows([b"a", b"b"], [NOW_US, NOW_US + after_us])
            timed = SentRecords(rows if as_rows else as_batch(rows), indexes=np.array([7, 9]))
            routes = [Route(each, 0, STICKY, NOW_US) for each in (topic(), by_append, strict)]
            routes.append(Route(strict, 0, STICKY, NOW_US, judged=True))
            found = [outcome(route, timed) for route in routes]
            if after_us in outside:
                refused = found.pop(2)
                assert isinstance(refused, tuple)
                assert refused[0] is InvalidTimestamp
                setting = f"message.timestamp.{'before' if after_us < 0 else 'after'}.max.ms"
                assert refused[1].startswith("record 9: the time ")
                assert f"which {setting} forbids" in refused[1]
            assert all(isinstance(each, list) for each in found), found


@pytest.mark.parametrize("fixed", [-1, COUNT])
def test_a_partition_that_is_not_there_is_named(fixed: int) -> None:
    with pytest.raises(UnknownPartition, match=f"has no partition {fixed}; it has 0 to {COUNT - 1}"):
        Route(topic(), fixed, STICKY, NOW_US).split(SentRecords(Rows([b"v"], 0)))


@pytest.mark.parametrize("as_rows", [True, False])
def test_a_request_to_one_partition_names_none_in_its_records(as_rows: bool) -> None:
    with pytest.raises(InvalidRecord, match="leave 'partition' out"):
        Route(topic(), 0, STICKY, NOW_US).split(sent([(None, 0)], as_rows))


def test_a_partition_that_is_no_whole_number_is_refused() -> None:
    records = SentRecords(as_batch(Rows([b"v"], 0)), pa.array([0.5]))
    with pytest.raises(InvalidRecord, match="column 'partition' does not fit int64"):
        Route(topic(), None, STICKY, NOW_US).split(records)


def test_many_records_are_split_as_few_are() -> None:
    many = [(b"%d" % (number % 97), None) for number in range(5_000)]
    route = Route(topic(), None, STICKY, NOW_US)
    few, columns = route.split(sent(many, True)), route.split(sent(many, False))
    assert shown(few) == shown(columns)
    assert sum(count_of(batch.records) for batch in columns) == 5_000
    assert all(isinstance(batch.indexes, np.ndarray) for batch in columns)
