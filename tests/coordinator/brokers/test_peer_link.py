"""coordinator/brokers/peer_link.py: frames of a Unix socket, and what becomes of calls when it ends."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias, cast

import pytest

from coordinator.brokers.peer_link import FRAME_MAX_BYTES, GATHERED_CALLS, PeerLink
from coordinator.brokers.peer_secret import PeerSecrets, Target
from coordinator.brokers.peer_wire import (
    ALL_PARTS,
    Call,
    decode_calls,
    decode_hello,
    encode_part_outcomes,
    encode_proof,
    joined,
)
from ingest.writer import Acks, Appended, AppendOutcome
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.errors import LakelogError, NotLeader, OutcomeUnknown, Unreachable
from log_tables.partition.partition import AppendRequest
from log_tables.rows import Rows
from log_tables.store.store import open_store
from tests.kit.support import WAIT_S

SECRETS = PeerSecrets(["s" * 32], "cluster")
TARGET = cast(Target, SECRETS.target("incarnation", SECRETS.fingerprints))
ONE = AppendRequest(Rows([b"a"], 1))

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter


def new_topic(directory: Path) -> Topic:
    return create_topic(Cluster.open(open_store(directory / "root")), "t", 10)


async def read_frame(reader: Reader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4)))


def write_frame(writer: Writer, frame: bytes) -> None:
    writer.write(len(frame).to_bytes(4) + frame)


class Other:
    """The other side of a link: it greets, and reads frames of calls."""

    def __init__(self, reader: Reader, writer: Writer) -> None:
        self._reader, self.writer = reader, writer

    async def greet(self, proof: str = TARGET.proof) -> None:
        hello = decode_hello(await read_frame(self._reader))
        assert (hello.target, hello.asker) == (TARGET.name, "asker")
        write_frame(self.writer, encode_proof(proof))

    async def calls(self) -> list[Call]:
        """All of the next frame."""
        return decode_calls(await read_frame(self._reader))

    def answer(self, number: int, place: int, *outcomes: AppendOutcome) -> None:
        write_frame(self.writer, joined([encode_part_outcomes(number, place, outcomes)]))


async def alive() -> None:
    """The other gateway lives."""


def run(
    directory: Path,
    serve: Callable[[Other], Awaitable[None]],
    ask: Callable[[PeerLink, Topic], Awaitable[None]],
    check: Callable[[], Awaitable[None]] = alive,
) -> None:
    """`ask` by a link at whose other end is `serve`."""

    async def main() -> None:
        over = asyncio.Event()
        served: list[asyncio.Task[None]] = []

        async def accept(reader: Reader, writer: Writer) -> None:
            served.append(asyncio.ensure_future(serve(Other(reader, writer))))
            await over.wait()
            writer.close()

        path = directory / "socket"
        async with asyncio.timeout(WAIT_S), await asyncio.start_unix_server(accept, path):
            link = PeerLink(path, TARGET, "asker", "broker 1", check)
            try:
                await ask(link, topic)
            finally:
                over.set()
                await link.close()
            for each in served:
                await each

    topic = new_topic(directory)
    asyncio.run(main())


def kinds(outcomes: list[list[AppendOutcome]]) -> list[list[type]]:
    return [[type(each) for each in its] for its in outcomes]


def test_calls_of_one_turn_are_one_frame_and_later_ones_wait_for_none(tmp_path: Path) -> None:
    async def serve(other: Other) -> None:
        await other.greet()
        first = await other.calls()
        assert [each.parts[0][0] for each in first] == [0, 1, 2]
        for call in reversed(first):
            other.answer(call.number, 0, Appended(0, call.number, 1))
        [second] = await other.calls()
        other.answer(second.number, 0, Appended(0, 99, 1))

    async def ask(link: PeerLink, topic: Topic) -> None:
        asked = [link.ask(topic, [(number, [ONE])], Acks.ALL, None) for number in range(3)]
        found = await asyncio.gather(*asked)
        assert found == [[[Appended(number, number + 1, 1)]] for number in range(3)]
        assert await link.ask(topic, [(5, [ONE])], Acks.ALL, None) == [[Appended(5, 99, 1)]]

    run(tmp_path, serve, ask)


def test_many_calls_of_a_turn_go_before_its_end(tmp_path: Path) -> None:
    count = GATHERED_CALLS + 1

    async def serve(other: Other) -> None:
        await other.greet()
        [call] = await other.calls()
        other.answer(call.number, 0, Appended(0, 0, 1))
        assert len(await other.calls()) == GATHERED_CALLS
        for number in range(call.number + 1, call.number + 1 + count):
            other.answer(number, ALL_PARTS, Appended(0, 0, 1))
        assert len(await other.calls()) == 1

    async def ask(link: PeerLink, topic: Topic) -> None:
        await link.ask(topic, [(0, [ONE])], Acks.ALL, None)  # it is open then
        await asyncio.gather(*(link.ask(topic, [(0, [ONE])], Acks.ALL, None) for _ in range(count)))

    run(tmp_path, serve, ask)


def test_a_slow_call_holds_up_no_other_answer(tmp_path: Path) -> None:
    async def serve(other: Other) -> None:
        await other.greet()
        slow, quick = await other.calls()
        other.answer(quick.number, 0, Appended(1, 7, 1))
        [last] = await other.calls()  # it was asked after the answer to the quick one
        other.answer(slow.number, 0, NotLeader("no"))
        other.answer(last.number, 0, Appended(2, 8, 1))

    async def ask(link: PeerLink, topic: Topic) -> None:
        slow, quick = (link.ask(topic, [(number, [ONE])], Acks.ALL, None) for number in range(2))
        assert await quick == [[Appended(1, 7, 1)]]
        assert not slow.done()
        last = link.ask(topic, [(2, [ONE])], Acks.ALL, None)
        assert kinds(await slow) == [[NotLeader]]
        assert await last == [[Appended(2, 8, 1)]]

    run(tmp_path, serve, ask)


def test_what_was_sent_is_unknown_when_the_other_ends_and_what_was_answered_is_not(tmp_path: Path) -> None:
    async def serve(other: Other) -> None:
        await other.greet()
        [call] = await other.calls()
        other.answer(call.number, 1, Appended(1, 7, 1))
        other.writer.close()

    async def ask(link: PeerLink, topic: Topic) -> None:
        parts = [(0, [ONE, ONE]), (1, [ONE])]
        assert kinds(await link.ask(topic, parts, Acks.ALL, None)) == [[OutcomeUnknown] * 2, [Appended]]
        assert link.is_over
        assert kinds(await link.ask(topic, parts, Acks.ALL, None)) == [[Unreachable] * 2, [Unreachable]]

    run(tmp_path, serve, ask)


@pytest.mark.parametrize("proof", ["", "0" * 32], ids=["it refuses", "it proves nothing"])
def test_nothing_is_sent_to_who_is_not_meant(tmp_path: Path, proof: str) -> None:
    async def serve(other: Other) -> None:
        await other.greet(proof)
        with pytest.raises(asyncio.IncompleteReadError):
            await other.calls()

    async def ask(link: PeerLink, topic: Topic) -> None:
        assert kinds(await link.ask(topic, [(0, [ONE])], Acks.ALL, None)) == [[Unreachable]]

    run(tmp_path, serve, ask)


def test_nothing_is_sent_where_nobody_listens(tmp_path: Path) -> None:
    async def main() -> None:
        link = PeerLink(tmp_path / "nobody", TARGET, "asker", "broker 1", alive)
        assert kinds(await link.ask(new_topic(tmp_path), [(0, [ONE])], Acks.ALL, None)) == [[Unreachable]]

    asyncio.run(main())


def test_the_outcome_is_unknown_when_the_other_falls_silent(tmp_path: Path) -> None:
    async def silent() -> None:
        raise LakelogError("it is silent")

    async def serve(other: Other) -> None:
        await other.greet()
        await other.calls()

    async def ask(link: PeerLink, topic: Topic) -> None:
        assert kinds(await link.ask(topic, [(0, [ONE])], Acks.ALL, None)) == [[OutcomeUnknown]]

    run(tmp_path, serve, ask, silent)


@pytest.mark.parametrize(
    "said",
    [
        b"\xff" * 9,
        (FRAME_MAX_BYTES + 1).to_bytes(4),
        b"\0\0\0\x01\xc0",
        len(_unasked := joined([encode_part_outcomes(77, 0, [])])).to_bytes(4) + _unasked,
        len(_nowhere := joined([encode_part_outcomes(1, 9, [])])).to_bytes(4) + _nowhere,
        len(_none := joined([encode_part_outcomes(1, 0, [])])).to_bytes(4) + _none,
    ],
    ids=["noise", "too long", "no answers", "not asked", "no such part", "too few outcomes"],
)
def test_an_answer_that_no_gateway_gives_ends_the_connection(tmp_path: Path, said: bytes) -> None:
    async def serve(other: Other) -> None:
        await other.greet()
        await other.calls()
        other.writer.write(said)

    async def ask(link: PeerLink, topic: Topic) -> None:
        assert kinds(await link.ask(topic, [(0, [ONE])], Acks.ALL, None)) == [[OutcomeUnknown]]

    run(tmp_path, serve, ask)


def test_who_asks_and_is_cancelled_leaves_the_others_alone(tmp_path: Path) -> None:
    async def serve(other: Other) -> None:
        await other.greet()
        for call in await other.calls():
            other.answer(call.number, 0, Appended(0, 0, 1))

    async def ask(link: PeerLink, topic: Topic) -> None:
        left, stays = (link.ask(topic, [(0, [ONE])], Acks.ALL, None) for _ in range(2))
        left.cancel()
        assert await stays == [[Appended(0, 0, 1)]]

    run(tmp_path, serve, ask)
