"""Bodies between gateways decode to what was encoded, and nothing else is accepted."""

import struct

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.brokers.peer_wire import decode_entries, decode_outcomes, encode_entries, encode_outcomes
from ingest.writer import Appended, AppendOutcome
from log_tables.errors import BufferFull, InvalidArgument, InvalidRecord, LakelogError, OffsetMismatch
from log_tables.partition.partition import AppendRequest, ProducerStamp
from log_tables.record import Record, input_batch
from log_tables.rows import as_batch
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
