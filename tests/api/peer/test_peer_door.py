"""api/peer_door.py: gateways of one machine append to one another at Unix sockets, and nobody else does."""

import asyncio
import stat
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from coordinator.brokers.leadership import preferred_leaders
from coordinator.brokers.peer_link import FRAME_MAX_BYTES, socket_of
from coordinator.brokers.peer_wire import (
    Call,
    Hello,
    decode_part_outcomes,
    decode_proof,
    encode_call,
    encode_hello,
    encode_part,
    joined,
    outcomes_of,
)
from ingest.writer import Acks, AppendOutcome
from log_tables.cluster.topic import Topic
from log_tables.errors import (
    BufferFull,
    InvalidArgument,
    InvalidTopicName,
    LakelogError,
    OutcomeUnknown,
    RecordTooLarge,
    TopicDeleted,
    UnknownPartition,
)
from log_tables.limits import MIB
from log_tables.partition.partition import AppendRequest, ProducerStamp
from log_tables.rows import Rows
from log_tables.store.store import Store
from log_tables.testing import WRITES, Fault, FaultyStore, HoldingStore
from tests.kit.mesh import Mesh, meshed
from tests.kit.partitions import values as values_of
from tests.kit.served import JSON, Served, served
from tests.kit.support import WAIT_S, wait_until

PARTITIONS = 8
READS = frozenset({"get", "get_range", "head", "list"})


@asynccontextmanager
async def pair(root: Path, **given: Any) -> AsyncIterator[tuple[Served, Served, Mesh]]:
    """Two gateways that meet at sockets; the second has a mesh before it that notes what comes by HTTP."""
    sockets = root / "sockets"
    sockets.mkdir(0o700)
    async with (
        asyncio.timeout(WAIT_S),
        meshed() as mesh,
        served(root / "root", sockets=sockets) as one,
        served(root / "root", sockets=sockets, peer_url=mesh.url, **given) as other,
    ):
        mesh.target = str(other.client.base_url)
        for each in (one, other):
            brokers = each.gateway.brokers
            await asyncio.to_thread(wait_until, lambda: len(brokers.living()) == 2, "both live")  # noqa: B023
        yield one, other, mesh


async def split(one: Served, other: Served) -> tuple[Topic, list[int]]:
    """A topic of which each leads its share, and the partitions of `other`."""
    wanted = {"topic_name": "t", "partitions_count": PARTITIONS}
    (await one.client.post("/topics", json=wanted)).raise_for_status()
    topic = one.gateway.cluster.topic("t")
    ids = (one.gateway.brokers.id, other.gateway.brokers.id)
    leaders = preferred_leaders(topic.topic_id, PARTITIONS, tuple(sorted(ids)))
    records = [{"value": "first", "partition": number} for number in range(PARTITIONS)]
    for each in (one, other):
        (await each.produce("t", *records)).raise_for_status()
    return topic, [number for number, leader in enumerate(leaders) if leader == ids[1]]


def values(topic: Topic, partition: int) -> list[bytes | None]:
    log = topic.partition(partition)
    log.refresh()
    return values_of(log)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_records_go_by_the_socket_and_not_by_http(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (one, other, mesh):
            topic, theirs = await split(one, other)
            mesh.asked.clear()
            for acks in ("1", "all", "0"):
                records = [{"value": acks, "partition": number} for number in range(PARTITIONS)]
                answer = await one.client.post(
                    f"/topics/t?acks={acks}", json={"records": records}, headers={"Content-Type": JSON}
                )
                assert [each.get("error_code") for each in answer.json()["offsets"]] == [None] * PARTITIONS
            log = topic.partition(theirs[0])
            await asyncio.to_thread(wait_until, lambda: log.refresh().high_watermark == 5, "all are there")
            assert "/peer/append" not in mesh.asked
            assert values(topic, theirs[0]) == [b'"first"', b'"first"', b'"1"', b'"all"', b'"0"']
            for each in (one, other):
                buffer = each.gateway.buffer
                await asyncio.to_thread(wait_until, lambda: buffer.used == 0, "its room is given back")  # noqa: B023

    run(scenario)


def test_large_appends_go_by_http(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (one, other, mesh):
            topic, theirs = await split(one, other)
            mesh.asked.clear()
            large = {"value": "x" * (MIB * 3 // 5), "partition": theirs[0]}
            (await one.produce("t", large, large)).raise_for_status()
            assert mesh.asked.count("/peer/append") == 1
            assert len(values(topic, theirs[0])) == 4
            several = [{"value": "x" * (MIB * 3 // 5), "partition": number} for number in theirs]
            (await one.produce("t", *several)).raise_for_status()
            assert len(several) > 1
            assert mesh.asked.count("/peer/append") == 1 + len(several)

    run(scenario)


def test_a_socket_is_its_owners(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (one, _, mesh):
            for url in (str(one.gateway.settings.peer_url), mesh.url):
                found = socket_of(tmp_path / "sockets", url).stat()
                assert stat.S_ISSOCK(found.st_mode)
                assert stat.S_IMODE(found.st_mode) == 0o600
        assert [*(tmp_path / "sockets").iterdir()] == []

    run(scenario)


def test_a_partition_whose_disk_hangs_holds_up_no_other_answer(tmp_path: Path) -> None:
    """Both are asked for by calls of one frame."""
    stores: list[HoldingStore] = []

    def holding(inner: Store) -> Store:
        for number in range(PARTITIONS):
            inner = HoldingStore(inner, f"partition={number}/")
            stores.append(inner)
        return inner

    async def scenario() -> None:
        async with pair(tmp_path, wrap=holding) as (one, other, _):
            topic, theirs = await split(one, other)
            slow, quick = theirs[:2]
            stores[slow].hold()
            try:
                waits = asyncio.create_task(one.produce("t", {"value": 1}, partition=slow))
                (await one.produce("t", {"value": 2}, partition=quick)).raise_for_status()
                assert not waits.done()
            finally:
                stores[slow].let_go()
            (await waits).raise_for_status()
            assert len(values(topic, slow)) == len(values(topic, quick)) == 3

    run(scenario)


class Stranger:
    """A process that can open the socket of `asked`."""

    def __init__(self, directory: Path, asked: Served) -> None:
        self._path = socket_of(directory, asked.gateway.settings.peer_url)

    async def open(self) -> None:
        self.reader, self.writer = await asyncio.open_unix_connection(self._path)

    def send(self, frame: bytes) -> None:
        self.writer.write(len(frame).to_bytes(4) + frame)

    async def read(self) -> bytes:
        return await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4)))

    async def ended(self) -> bool:
        """Whether the other side ends the connection, and says nothing more."""
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True
        finally:
            self.writer.close()


def hello_of(asker: Served, asked: Served) -> bytes:
    """The first frame of a connection from one to the other."""
    record = asker.gateway.brokers.other(asked.gateway.brokers.id)
    assert record is not None
    target = asker.gateway.brokers.target_of(record)
    return encode_hello(Hello(target.name, asker.gateway.brokers.asker(target)))


def test_who_proves_nothing_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (one, other, _):
            stranger = Stranger(tmp_path / "sockets", other)
            for hello in (Hello("no target", "1.asker"), Hello("", "")):
                await stranger.open()
                stranger.send(encode_hello(hello))
                assert decode_proof(await stranger.read()) == ""
                assert await stranger.ended()
            for noise in (b"\xff" * 40, (2_000).to_bytes(4), b"\0\0\0\x01\xc0", b"GET / HTTP/1.1\r\n\r\n"):
                await stranger.open()
                stranger.writer.write(noise)
                assert await stranger.ended()
            _, theirs = await split(one, other)
            (await one.produce("t", {"value": 1}, partition=theirs[0])).raise_for_status()

    run(scenario)


def test_noise_of_a_gateway_ends_its_connection_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (one, other, _):
            _, theirs = await split(one, other)
            stranger = Stranger(tmp_path / "sockets", other)
            for noise in (b"\0\0\0\x01\xc0", b"\0\0\0\x04junk", (FRAME_MAX_BYTES + 1).to_bytes(4)):
                await stranger.open()
                stranger.send(hello_of(one, other))
                assert decode_proof(await stranger.read())
                stranger.writer.write(noise)
                assert await stranger.ended()
            (await one.produce("t", {"value": 1}, partition=theirs[0])).raise_for_status()

    run(scenario)


def test_calls_are_looked_at_as_requests_are(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path, max_request_bytes=MIB, buffer_memory=2 * MIB) as (one, other, _):
            topic, theirs = await split(one, other)
            stranger = Stranger(tmp_path / "sockets", other)
            await stranger.open()
            stranger.send(hello_of(one, other))
            await stranger.read()

            async def asked(
                entry: AppendRequest,
                name: str = "t",
                topic_id: str = topic.topic_id,
                partition: int = theirs[0],
            ) -> AppendOutcome:
                part = encode_part(partition, [entry])
                stranger.send(joined([encode_call(Call(1, name, topic_id, acks, None, [part]))]))
                [(_, _, answers)] = decode_part_outcomes(await stranger.read())
                return outcomes_of(answers, partition, 1)[0]

            acks, small = "all", AppendRequest(Rows([b"a"], 1))
            large = AppendRequest(Rows([b"x" * (3 * MIB // 2)], 1))
            wrong = AppendRequest(Rows([b"a"], [1, 2]))
            assert isinstance(await asked(large), RecordTooLarge)
            assert isinstance(await asked(AppendRequest(Rows([b"x" * (MIB * 3 // 5)] * 4, 1))), BufferFull)
            assert isinstance(await asked(small, topic_id="another"), TopicDeleted)
            assert isinstance(await asked(small, partition=99), UnknownPartition)
            assert isinstance(await asked(small, partition=-1), UnknownPartition)
            assert isinstance(await asked(wrong), InvalidArgument)
            assert isinstance(await asked(small, "__consumer_offsets"), InvalidTopicName)
            acks = "most"
            assert isinstance(await asked(small), InvalidArgument)
            assert len(values(topic, theirs[0])) == 2, "nothing was appended"
            assert other.gateway.buffer.used == 0
            stranger.writer.close()

    run(scenario)


def test_a_producers_repeat_by_the_socket_is_written_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pair(tmp_path) as (one, other, _):
            topic, theirs = await split(one, other)
            record = one.gateway.brokers.other(other.gateway.brokers.id)
            assert record is not None
            stamped = [AppendRequest(Rows([b"%d" % n], 1), ProducerStamp(7, 0, n)) for n in range(3)]
            for _ in range(2):
                outcomes = await one.gateway.peers.append(record, topic, theirs[0], stamped, Acks.ALL)
                assert [each.base_offset for each in outcomes] == [2, 3, 4]  # type: ignore[union-attr]
            assert values(topic, theirs[0])[2:] == [b"0", b"1", b"2"]

    run(scenario)


def broken(_perform: Callable[[], object]) -> object:
    """A failure that no code expects."""
    raise RuntimeError("a defect, on purpose")


@pytest.mark.parametrize("when", ["it claims", "it commits"])
def test_an_error_that_nobody_expects_is_an_answer(
    tmp_path: Path, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Who asks does not wait for ever, and the room of the records is free again."""
    stores: list[FaultyStore] = []

    def faulty(inner: Store) -> Store:
        stores.append(FaultyStore(inner))
        return stores[-1]

    async def scenario() -> None:
        async with pair(tmp_path, wrap=faulty) as (one, other, _):
            if when == "it claims":
                (
                    await one.client.post("/topics", json={"topic_name": "t", "partitions_count": 1})
                ).raise_for_status()
                topic, at, operations = one.gateway.cluster.topic("t"), 0, READS
            else:
                topic, theirs = await split(one, other)
                at, operations = theirs[0], WRITES
            record = one.gateway.brokers.other(other.gateway.brokers.id)
            assert record is not None
            wanted = [AppendRequest(Rows([b"x"], 1))]
            before = len(values(topic, at))
            stores[0].faults.append(Fault(1, broken, operations, f"partition={at}/"))
            [unknown] = await one.gateway.peers.append(record, topic, at, wanted, Acks.ALL)
            assert isinstance(unknown, OutcomeUnknown)
            assert "failed while it committed" in unknown.message
            assert other.gateway.buffer.used == 0
            [done] = await one.gateway.peers.append(record, topic, at, wanted, Acks.ALL)
            assert not isinstance(done, LakelogError)
            assert len(values(topic, at)) == before + 1

    run(scenario)
    assert "a defect, on purpose" in caplog.text
