"""An event loop that ends amid a commit."""

import asyncio
from pathlib import Path

from tests.ingest.test_accumulator import Bench, Gate, nth_segment, reached


def test_a_commit_whose_event_loop_has_ended_tells_nobody(store_root: Path) -> None:
    gate = Gate()
    bench = Bench(store_root, nth_segment(1, gate))
    loop = asyncio.new_event_loop()

    async def begin() -> "asyncio.Future[int | None]":
        waiting = bench.add(b"a")
        await reached(gate)
        return waiting

    waiting = loop.run_until_complete(begin())
    (drain,) = asyncio.all_tasks(loop)
    loop.close()
    commit = drain.get_coro()
    assert commit is not None
    commit.close()  # as the interpreter does, once nothing refers to it: it raises what could only be printed
    assert not waiting.done()
    gate.open()
