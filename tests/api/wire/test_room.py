"""The room of a request is what it takes in memory: in a whole gateway, and at every step of a request."""

from pathlib import Path

import pyarrow as pa
import pytest

from api.errors import RequestTooLarge
from api.wire.room import batch_in, hold, settle
from ingest.buffer import Buffer
from log_tables.errors import BufferFull
from log_tables.limits import KIB, MIB
from log_tables.record import Record, input_batch
from tests.kit.filling import (
    TOPICS,
    buffered,
    fill,
    filled,
    forget_peak,
    request,
    resident,
    stuck_gateway,
)
from tests.kit.produce import stream

BESIDES_BYTES = 12 * MIB
"""What the process may grow by however small its buffer is: modules that its first requests load, and pieces
that an allocator keeps."""

CONNECTION_BYTES = 10 * KIB
"""Memory of an open connection, refused or not; `max_connections` bounds it."""

in_proc = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="no /proc: it tells the memory"
)


def check_resident(data: Path, form: str, count: int, acks: str, buffer_memory: int) -> None:
    """Fill a buffer, and hold what the process has grown by to be little more."""
    with stuck_gateway(data, buffer_memory) as gateway:
        requests = [request(gateway, topic, form, count, acks) for topic in TOPICS]
        idle = resident(gateway)
        forget_peak(gateway)
        connections = 0
        if acks == "1":
            fill(gateway, requests)
        else:
            with filled(gateway, requests) as connections:
                gateway.client.get("/health")
        most = 1.5 * buffer_memory + BESIDES_BYTES + connections * CONNECTION_BYTES
        assert resident(gateway, "VmHWM") - idle <= most
        if acks == "1":
            full = 0.4 if form == "json" and count == 50_000 else 0.7  # to decode so many takes the rest
            assert buffered(gateway) > full * buffer_memory


@in_proc
@pytest.mark.parametrize(
    ("form", "count", "acks"), [("json", 1, "1"), ("json", 2_000, "1"), ("packed", 50_000, "1")]
)
def test_a_buffer_full_of_one_byte_values_takes_little_more_than_its_size(
    tmp_path: Path, form: str, count: int, acks: str
) -> None:
    check_resident(tmp_path, form, count, acks, 8 * MIB)


@in_proc
@pytest.mark.torture
@pytest.mark.parametrize("buffer_memory", [16 * MIB, 64 * MIB])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("form", ["json", "arrow", "packed", "v3"])
@pytest.mark.parametrize("count", [1, 10, 2_000, 50_000])
def test_any_full_buffer_takes_little_more_than_its_size(
    tmp_path: Path, form: str, count: int, acks: str, buffer_memory: int
) -> None:
    too_large = form in ("json", "v3") and count == 50_000 and buffer_memory < 64 * MIB  # 413
    if (form == "v3") <= (acks == "all") and not too_large:
        check_resident(tmp_path, form, count, acks, buffer_memory)


def test_what_could_never_fit_is_too_large_and_what_does_not_fit_now_may_come_again() -> None:
    buffer = Buffer(1_000, request_bytes=100)
    with buffer.room("a") as room, buffer.room("b") as other:
        other.grow(200)
        with pytest.raises(RequestTooLarge, match=r"takes 901 bytes while .* leaves 900"):
            hold(room, 901)
        with pytest.raises(BufferFull):
            hold(room, 900)
        hold(room, 400)
        assert buffer.used == 300 + 500


def test_what_is_there_is_held_and_the_rest_given_back() -> None:
    buffer = Buffer(1_000)
    with buffer.room("a") as room:
        hold(room, 700)
        hold(room, 600)
        assert buffer.used == 700
        settle(room, 50)
        assert (room.size_bytes, buffer.used) == (50, 50)
        settle(room, 80)
        assert buffer.used == 80
        with pytest.raises(RequestTooLarge):
            settle(room, 1_001)


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_columns_that_stand_in_a_body_keep_all_of_it(compression: str | None) -> None:
    batch = input_batch([Record(b"x" * 1_000, b"key")] * 100, 0)
    body = stream(pa.Table.from_batches([batch])) if compression is None else _packed(batch)
    with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
        found = reader.read_next_batch()
    if compression is None:
        assert batch_in(body, found) == len(body)
    else:
        assert len(body) < 10_000
        assert 100_000 < batch_in(body, found) < 120_000


def _packed(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())
