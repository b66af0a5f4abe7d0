"""Large bodies are decoded and encoded in threads beside the event loop."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from starlette.concurrency import run_in_threadpool

from api.media import Format
from api.wire.offload import (
    INLINE_MAX_BYTES,
    INLINE_MAX_HEAD_BYTES,
    INLINE_MAX_ROWS,
    INLINE_MAX_VALUES,
    is_large,
    maybe_in_thread,
)

THREADS_OF_ANYIO = 40


def nulls(*batches: int) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("value", pa.null())])) as writer:
        for rows in batches:
            writer.write_batch(pa.record_batch({"value": pa.nulls(rows)}))
    body: bytes = sink.getvalue().to_pybytes()
    return body


def values(size: int, count: int = 1, compression: str | None = None, said: str = "") -> bytes:
    """A stream of `count` batches with a value of `size` bytes each, and `said` in its metadata."""
    sink, schema = pa.BufferOutputStream(), pa.schema([("value", pa.binary())], {"transaction": said})
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for _ in range(count):
            writer.write_batch(pa.record_batch([pa.array([bytes(size)], pa.binary())], schema=schema))
    body: bytes = sink.getvalue().to_pybytes()
    return body


@pytest.mark.parametrize(
    ("body", "large"),
    [
        (values(INLINE_MAX_BYTES - 1_000), False),
        *(
            (values(size, count, compression), large)
            for compression in ("zstd", "lz4")
            for size, count, large in (
                (INLINE_MAX_BYTES // 2, 1, False),
                (INLINE_MAX_BYTES, 1, True),
                (INLINE_MAX_BYTES // 8, 8, True),
            )
        ),
        (values(1, said="x" * (INLINE_MAX_HEAD_BYTES - 2_000)), False),
        (values(1, said="[]," * (INLINE_MAX_HEAD_BYTES // 3)), True),
        (values(0, count=1_000), True),
    ],
)
def test_a_stream_is_large_by_what_it_unpacks_to_and_by_its_metadata(body: bytes, large: bool) -> None:
    assert is_large(body, Format.ARROW) is large
    assert len(body) < INLINE_MAX_BYTES  # so it is not by its bytes


@pytest.mark.parametrize(
    ("body", "large"),
    [
        (nulls(INLINE_MAX_ROWS), False),
        (nulls(INLINE_MAX_ROWS + 1), True),
        (nulls(1, INLINE_MAX_ROWS), True),
        (nulls(1_000_000), True),
        (nulls(1)[:-9], False),
        (b"\xff\xff\xff\xff\x08\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff", True),
        (b"x" * (INLINE_MAX_BYTES + 1), True),
    ],
)
def test_a_stream_is_large_by_what_it_says_as_well_as_by_its_bytes(body: bytes, large: bool) -> None:
    assert is_large(body, Format.ARROW) is large


@pytest.mark.parametrize(
    ("body", "large"),
    [
        (nulls(1_000_000), False),
        (b" " * INLINE_MAX_BYTES, False),
        (b" " * (INLINE_MAX_BYTES + 1), True),
        (b"{}," * (INLINE_MAX_VALUES // 2), False),
        (b"{}," * (INLINE_MAX_VALUES // 2) + b"[", True),
    ],
)
def test_json_is_large_by_its_bytes_or_by_its_values(body: bytes, large: bool) -> None:
    assert is_large(body, Format.JSON) is large


def test_work_waits_for_no_thread_that_waits_for_a_store() -> None:
    hung = threading.Event()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        reads = [loop.run_in_executor(None, hung.wait)]
        reads += [asyncio.ensure_future(run_in_threadpool(hung.wait)) for _ in range(THREADS_OF_ANYIO)]
        try:
            assert await asyncio.wait_for(maybe_in_thread(True, lambda: "decoded"), 60) == "decoded"
        finally:
            hung.set()
            await asyncio.gather(*reads)

    asyncio.run(scenario())


def test_work_of_a_request_that_ends_is_waited_for() -> None:
    """The work may still hold room of the buffer."""
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(60)
        ended.set()

    async def scenario() -> None:
        request = asyncio.ensure_future(maybe_in_thread(True, work))
        await asyncio.to_thread(begun.wait, 60)
        request.cancel()
        asyncio.get_running_loop().call_soon(go_on.set)
        await asyncio.wait([request])
        assert request.cancelled()
        assert ended.is_set()

    asyncio.run(scenario())
