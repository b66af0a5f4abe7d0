"""A remote tier that hangs holds those that read it, and nobody else."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from log_tables.clock import SystemClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.partition.partition import AppendRequest
from log_tables.record import Record, input_batch
from tests.kit.served import served
from tests.kit.support import WAIT_S, wait_until
from tests.kit.tiers import move_topic, tiered_cluster

THREADS_OF_ANYIO = 40


@contextmanager
def hung(file: Path) -> Iterator[None]:
    """Make every open of `file` wait until the block ends, as on a mount whose server is away."""
    there = file.with_suffix(".there")
    file.rename(there)
    os.mkfifo(file)
    try:
        yield
    finally:
        writer = os.open(file, os.O_RDWR)  # all that wait go on, and find nothing
        there.rename(file)
        os.close(writer)


def tiered(directory: Path) -> Path:
    """A root with a topic `t` of two records, the first of which is in the remote tier: its file there."""
    cluster = tiered_cluster(directory, SystemClock())
    topic = create_topic(cluster, "t", 1, {"remote.storage.enable": "true"})
    partition = topic.partition(0)
    partition.claim("")
    for value in (b'"old"', b'"new"'):
        partition.append([AppendRequest(input_batch([Record(value)], cluster.clock.now_us()))])
    move_topic(cluster, "t", [1])
    (file,) = (directory / "away").rglob("*.parquet")
    return file


def test_large_appends_wait_for_no_read_of_a_tier_that_hangs(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "away").mkdir()
    file = tiered(tmp_path)

    def working() -> int:
        return sum(thread.name.startswith("AnyIO worker") for thread in threading.enumerate())

    async def run() -> None:
        async with served(tmp_path / "here") as here:
            path = "/topics/t/partitions/0/records"
            accept = {"Accept": "application/vnd.kafka.json.v2+json"}
            with hung(file):
                asked = (
                    here.client.get(path, params={"offset": 0}, headers=accept)
                    for _ in range(THREADS_OF_ANYIO + 5)
                )
                reads = [asyncio.ensure_future(each) for each in asked]
                held = lambda: working() >= THREADS_OF_ANYIO  # noqa: E731
                await asyncio.to_thread(wait_until, held, "reads hold all threads")
                large = here.produce("t", *[{"value": "x" * 500_000}] * 4, partition=0)
                answer = await asyncio.wait_for(large, WAIT_S)
                assert answer.status_code == 200, answer.text
                assert not any(read.done() for read in reads)
            await asyncio.wait(reads, timeout=WAIT_S)
            again = await here.client.get(path, params={"offset": 0}, headers=accept)
            assert [record["value"] for record in again.json()][:2] == ["old", "new"]

    asyncio.run(run())
