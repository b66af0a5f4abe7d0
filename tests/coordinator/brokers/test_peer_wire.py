"""Bodies between gateways decode to what was encoded, and nothing else is accepted."""

import struct
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.brokers.peer_wire import (
    Call,
    decode_calls,
    decode_entries,
    decode_outcomes,
    decode_part_outcomes,
    encode_call,
    encode_entries,
    encode_outcomes,
    encode_part,
    encode_part_outcomes,
    entries_of,
    joined,
    outcomes_of,
)
from ingest.writer import Appended, AppendOutcome
from log_tables.errors import BufferFull, InvalidArgument, InvalidRecord, LakelogError, OffsetMismatch
from log_tables.limits import ROWS_MAX, TIMESTAMP_MAX_US, TIMESTAMP_MIN_US
from log_tables.partition.partition import AppendRequest, ProducerStamp
from log_tables.record import Record, input_batch
from log_tables.rows import Rows, as_batch
from tests.kit.partitions import entry

STAMPED = ProducerStamp(2**62, 7, 11, True)
ENTRIES = [
    entry(b"a", None, keys=[None, b"k"]),
    entry(b"b", producer=ProducerStamp(1, 0, 0)),
    entry(b"c", producer=STAMPED, expected_offset=2**40),
    AppendRequest(input_batch([Record(b"d", headers=[("h", b"1"), ("h", None), ("", b"")])], 5), None, 0),
]


def kinds(of: type[LakelogError] = LakelogError) -> list[type[LakelogError]]:
    return [of, *(kind for child in of.__subclasses__() for kind in kinds(child))]


def ours() -> list[type[LakelogError]]:
    return [kind for kind in kinds() if kind.__module__ == "log_tables.errors"]


def test_entries_come_out_as_they_went_in() -> None:
    out = decode_entries(encode_entries(ENTRIES))
    assert [(one.producer, one.expected_offset) for one in out] == [
        (one.producer, one.expected_offset) for one in ENTRIES
    ]
    assert [one.records for one in out] == [one.records for one in ENTRIES]
    assert out[2].producer == STAMPED


def test_no_entries_are_none() -> None:
    assert decode_entries(encode_entries([])) == []


def test_where_records_went_comes_out_as_it_went_in() -> None:
    sent = [Appended(3, 0, 1), Appended(3, 2**60, 5, True, 17), Appended(3, None, 2)]
    assert decode_outcomes(encode_outcomes(sent), 3) == sent


@pytest.mark.parametrize("kind", ours(), ids=lambda kind: kind.__name__)
def test_every_error_comes_out_as_it_went_in(kind: type[LakelogError]) -> None:
    (error,) = decode_outcomes(encode_outcomes([kind("what; do", whole=2**60, half=0.5, text="t")]), 0)
    assert type(error) is kind
    assert isinstance(error, LakelogError)
    assert (error.message, error.details) == ("what; do", {"whole": 2**60, "half": 0.5, "text": "t"})


def test_outcomes_keep_their_order() -> None:
    sent: list[AppendOutcome] = [
        OffsetMismatch("first", log_end_offset=4),
        Appended(0, 1, 1),
        OffsetMismatch("last"),
    ]
    out = decode_outcomes(encode_outcomes(sent), 0)
    assert [str(each) if isinstance(each, LakelogError) else "there" for each in out] == [
        "first",
        "there",
        "last",
    ]


def test_an_error_that_is_not_known_is_an_error() -> None:
    (error,) = decode_outcomes(b'[{"error":"from_the_future","message":"m"}]', 0)
    assert type(error) is LakelogError


@given(st.binary(max_size=200))
def test_garbage_is_no_entries(body: bytes) -> None:
    with pytest.raises(InvalidArgument):
        decode_entries(body)


@given(st.integers(0, len(encode_entries(ENTRIES)) - 9))
def test_half_a_body_is_no_entries(length: int) -> None:
    with pytest.raises(InvalidArgument):
        decode_entries(encode_entries(ENTRIES)[:length])


@given(st.data())
def test_damage_is_refused_or_harmless(data: st.DataObject) -> None:
    body = bytearray(encode_entries(ENTRIES))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= data.draw(st.integers(1, 255))
    try:
        out = decode_entries(bytes(body))
    except (InvalidArgument, InvalidRecord):
        return
    for each in out:
        as_batch(each.records).validate(full=True)
        assert as_batch(each.records)["timestamp"].null_count == 0


def test_values_that_lie_outside_their_buffer_are_refused() -> None:
    body = bytearray(encode_entries([entry(b"x" * 777)]))
    at = body.rindex(struct.pack("<i", 777))
    body[at : at + 4] = struct.pack("<i", 2**30)
    with pytest.raises(InvalidArgument):
        decode_entries(bytes(body))


@pytest.mark.parametrize("stamps", [b"", b"[]", b"[[null,null],[null,null]]", b"[[[1,2],null]]", b"null"])
def test_stamps_that_do_not_fit_are_refused(stamps: bytes) -> None:
    batch = as_batch(entry(b"a").records)
    sink = pa.BufferOutputStream()
    schema = batch.schema.with_metadata({b"lakelog.stamps": stamps})
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(InvalidArgument):
        decode_entries(sink.getvalue().to_pybytes())


def test_records_without_a_time_are_refused() -> None:
    batch = as_batch(entry(b"a").records)
    timeless = batch.set_column(0, batch.schema.field(0), pa.nulls(1, batch.schema.field(0).type))
    with pytest.raises(InvalidArgument, match="time"):
        decode_entries(encode_entries([AppendRequest(timeless, None, None)]))


def test_other_columns_are_refused() -> None:
    batch = pa.record_batch({"value": pa.array([b"a"])})
    sink = pa.BufferOutputStream()
    schema = batch.schema.with_metadata({b"lakelog.stamps": b"[[null,null]]"})
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(InvalidArgument, match="columns"):
        decode_entries(sink.getvalue().to_pybytes())


@given(st.binary(max_size=100))
def test_garbage_is_no_outcomes(body: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_outcomes(body, 0)


def test_room_is_asked_for_what_a_body_unpacks_to_before_any_of_it_is_made() -> None:
    batch = as_batch(entry(*[b"x" * 1_000] * 1_000).records)
    sink = pa.BufferOutputStream()
    schema = batch.schema.with_metadata({b"lakelog.stamps": b"[[null,null]]"})
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(batch)
    body = bytes(sink.getvalue())
    assert len(body) < 100_000
    before = pa.total_allocated_bytes()

    def full(size_bytes: int) -> None:
        assert 1_000_000 < size_bytes < 1_200_000
        assert pa.total_allocated_bytes() == before
        raise BufferFull("there is no room; repeat the request later", retry_after_s=1)

    with pytest.raises(BufferFull):
        decode_entries(body, full)
    assert len(decode_entries(body)) == 1


TIMES = st.integers(TIMESTAMP_MIN_US, TIMESTAMP_MAX_US)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2)
STAMPS = st.builds(ProducerStamp, st.integers(0, 2**31), st.integers(0, 9), st.integers(0, 99))


@st.composite
def few(draw: st.DrawFn) -> AppendRequest:
    """A request of a few records, which are rows."""
    count = draw(st.integers(0, 4))

    def column(of: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(of, min_size=count, max_size=count))

    rows = Rows(
        column(st.none() | st.binary(max_size=9)),
        column(TIMES) if draw(st.booleans()) else draw(TIMES),
        column(st.none() | st.binary(max_size=9)) if draw(st.booleans()) else None,
        column(HEADERS) if draw(st.booleans()) else None,
    )
    return AppendRequest(rows, draw(st.none() | STAMPS), draw(st.none() | st.integers(0, 2**62)))


def call(*parts: tuple[int, list[AppendRequest]], number: int = 7) -> bytes:
    encoded = [encode_part(partition, entries) for partition, entries in parts]
    return encode_call(Call(number, "t", "id", "all", ("request", "", ""), encoded))


def held(_: int) -> None:
    """There is room."""


@given(st.lists(st.lists(few(), min_size=1, max_size=3), max_size=3))
def test_calls_come_out_of_a_frame_as_they_went_in(given_: list[list[AppendRequest]]) -> None:
    sent = [call(*enumerate(given_), number=number) for number in (1, 2)]
    out = decode_calls(joined(sent))
    assert [each.number for each in out] == [1, 2]
    for each in out:
        assert (each.topic, each.topic_id, each.acks, each.trace) == ("t", "id", "all", ("request", "", ""))
        got = [(partition, entries_of(entries, held)) for partition, entries in each.parts]
        assert got == [*enumerate(given_)]


def test_many_records_go_in_a_frame_as_arrow() -> None:
    [out] = decode_calls(joined([call((3, ENTRIES))]))
    [(partition, body)] = out.parts
    assert isinstance(body, bytes)
    assert partition == 3
    got = entries_of(body, held)
    assert [as_batch(one.records) for one in got] == [as_batch(one.records) for one in ENTRIES]
    assert [one.producer for one in got] == [one.producer for one in ENTRIES]


def test_more_rows_than_a_request_has_become_a_batch() -> None:
    many = AppendRequest(Rows([b"a"] * (ROWS_MAX + 1), 5))
    [out] = decode_calls(joined([call((0, [many]))]))
    [one] = entries_of(out.parts[0][1], held)
    assert as_batch(one.records) == as_batch(many.records)
    assert not isinstance(one.records, Rows)


def test_room_is_asked_for_the_rows_of_a_frame() -> None:
    rows = AppendRequest(Rows([b"x" * 1_000] * 3, 5))
    [out] = decode_calls(joined([call((0, [rows, rows]))]))
    asked: list[int] = []
    entries_of(out.parts[0][1], asked.append)
    assert asked == [2 * rows.size_bytes]


@pytest.mark.parametrize(
    "wrong",
    [
        Rows([b"a"], [1, 2]),
        Rows([b"a"], 1, [b"k", None]),
        Rows([b"a"], 1, None, []),
        Rows([b"a"], TIMESTAMP_MAX_US + 1),
        Rows([b"a", b"b"], [0, TIMESTAMP_MIN_US - 1]),
    ],
    ids=["times", "keys", "headers", "late", "early"],
)
def test_rows_that_no_gateway_sends_are_refused(wrong: Rows) -> None:
    [out] = decode_calls(joined([call((0, [AppendRequest(wrong)]))]))
    with pytest.raises((InvalidArgument, InvalidRecord), match="use the public API"):
        entries_of(out.parts[0][1], held)


def test_a_producer_that_no_client_has_is_refused_in_a_frame() -> None:
    stamped = AppendRequest(Rows([b"a"], 1), ProducerStamp(1, 2**40, 0))
    [out] = decode_calls(joined([call((0, [stamped]))]))
    with pytest.raises(InvalidArgument, match="out of range"):
        entries_of(out.parts[0][1], held)


@given(st.binary(max_size=200))
def test_garbage_is_no_frame(body: bytes) -> None:
    for decode in (decode_calls, decode_part_outcomes):
        try:
            assert decode(body) == []
        except ValueError:
            pass


@given(st.data())
def test_a_damaged_frame_is_refused_or_harmless(data: st.DataObject) -> None:
    body = bytearray(joined([call((0, [AppendRequest(Rows([b"a", None], [1, 2], [b"k", b"l"]))]))]))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= data.draw(st.integers(1, 255))
    try:
        entries = [entries_of(part, held) for each in decode_calls(bytes(body)) for _, part in each.parts]
    except (ValueError, InvalidArgument, InvalidRecord):
        return
    for each in entries:
        for one in each:
            as_batch(one.records).validate(full=True)


def test_outcomes_come_out_of_a_frame_as_they_went_in() -> None:
    sent: list[AppendOutcome] = [Appended(3, 0, 1), Appended(3, 2**60, 5, True, 17)]
    [(number, place, answers)] = decode_part_outcomes(joined([encode_part_outcomes(9, 2, sent)]))
    assert (number, place, outcomes_of(answers, 3, 2)) == (9, 2, sent)


def test_one_error_stands_for_all_entries_and_too_few_answers_for_none() -> None:
    [(_, _, answers)] = decode_part_outcomes(joined([encode_part_outcomes(1, 0, [OffsetMismatch("no")])]))
    assert [str(each) for each in outcomes_of(answers, 3, 2)] == ["no", "no"]
    [(_, _, answers)] = decode_part_outcomes(joined([encode_part_outcomes(1, 0, [Appended(3, 0, 1)])]))
    with pytest.raises(ValueError, match="2 entries"):
        outcomes_of(answers, 3, 2)
