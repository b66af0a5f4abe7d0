"""A connection between two gateways of one machine, over a Unix socket: frames, and the side that asks.

All that is asked of the other gateway in one turn of the event loop, or while the connection is full, goes
as one frame. Answers come when they are there, many in one frame, in any order.
"""

import asyncio
import hmac
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import cast

from coordinator.brokers.brokers import Brokers
from coordinator.brokers.peer_secret import Target
from coordinator.brokers.peer_wire import (
    ALL_PARTS,
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
from ingest.request_trace import RequestTrace
from ingest.writer import Acks, AppendOutcome
from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.cluster.topic import Topic
from log_tables.errors import LakelogError, OutcomeUnknown, Unreachable
from log_tables.limits import MIB
from log_tables.partition.partition import AppendRequest
from log_tables.rows import Rows

FRAME_MAX_BYTES = 8 * MIB
"""A frame that is longer ends its connection."""

GATHERED_BYTES = 1 * MIB
"""About how long a frame of several calls may be. A call has at most FRAME_MAX_BYTES."""

GATHERED_CALLS = 16
"""Calls that go without waiting for more: a turn of the event loop may take tens of ms, in which the other
gateway can begin with these.
"""

HELLO_S = 5.0
"""How long a gateway may take to prove that it is the one that is meant."""

HELLO_MAX_BYTES = 1024
"""A frame before both sides know each other."""

WATCH_S = 0.25
"""How often a request that waits for its answer checks that the other gateway gives signs of life."""

INLINE_MAX_BYTES = 1024 * 1024
INLINE_MAX_ENTRIES = 100
"""Up to these bounds records for another gateway are encoded on the event loop: in some 2 ms."""

_LENGTH_BYTES = 4

_SOCKET_DIGITS = 16
"""The path of a Unix socket has some hundred bytes at most."""

Part = tuple[int, Sequence[AppendRequest]]
"""A partition, and entries for it in their order."""


def socket_of(directory: Path, url: str) -> Path:
    """The Unix socket of the gateway at `url`, as others of its machine know it."""
    return directory / sha256(url.encode()).hexdigest()[:_SOCKET_DIGITS]


def is_small(parts: Sequence[Part]) -> bool:
    """Whether they may go in a frame: encoding them takes some ms at most."""
    size, batches = 0, 0
    for _, entries in parts:
        size += sum(entry.size_bytes for entry in entries)
        if not all(isinstance(entry.records, Rows) for entry in entries):
            batches += len(entries)  # rows among them become batches, too
    return size <= INLINE_MAX_BYTES and batches <= INLINE_MAX_ENTRIES


class FrameProtocol(asyncio.Protocol, ABC):
    """One side of a connection: frames with their length before them, 4 bytes, the highest first."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._got = bytearray()
        self._frame_max, self._held, self._full = HELLO_MAX_BYTES, False, False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._transport.set_write_buffer_limits(0)  # uvloop then writes at once, not at the end of its turn

    def data_received(self, data: bytes) -> None:
        self._got += data
        self._take()

    def _take(self) -> None:
        """Hand over each frame that is whole, while none is held up."""
        at, got = 0, self._got
        while not self._held and len(got) - at >= _LENGTH_BYTES:
            begin = at + _LENGTH_BYTES
            size = int.from_bytes(got[at:begin])
            if size > self._frame_max:
                self.abort()
                return
            if len(got) - begin < size:
                break
            at = begin + size
            try:
                self.frame_received(bytes(got[begin:at]))
            except ValueError:
                self.abort()
                return
        del got[:at]

    @abstractmethod
    def frame_received(self, frame: bytes) -> None:
        """Raises ValueError for a frame that no gateway sends: the connection ends."""

    def greeted(self) -> None:
        """Both sides know each other."""
        self._frame_max = FRAME_MAX_BYTES

    def hold(self) -> None:
        """Hand over no further frame for now."""
        self._held = True
        if self._transport is not None:
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Hand over frames again."""
        self._held = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._take()

    def send(self, frame: bytes) -> None:
        assert self._transport is not None
        self._transport.write(len(frame).to_bytes(_LENGTH_BYTES) + frame)

    def send_gathered(self, encoded: Sequence[bytes]) -> int:
        """Send what is encoded for `joined`, in frames of about GATHERED_BYTES, until the connection is full;
        returns how many were sent.
        """
        sent = 0
        while sent < len(encoded) and not self._full and self._transport is not None:
            if self._transport.is_closing():
                break
            size, end = len(encoded[sent]), sent + 1
            while end < len(encoded) and size + len(encoded[end]) <= GATHERED_BYTES:
                size, end = size + len(encoded[end]), end + 1
            self.send(joined(encoded[sent:end]))
            sent = end
        return sent

    def abort(self) -> None:
        """End the connection at once."""
        self._held = True
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self.flush()

    @abstractmethod
    def flush(self) -> None:
        """Send what has gathered, unless the connection is full."""


@dataclass(slots=True, eq=False)
class _Asked:
    """A call that has no answer yet, or not for all of its parts."""

    parts: Sequence[Part]
    encoded: bytes
    done: "asyncio.Future[list[list[AppendOutcome]]]"
    outcomes: dict[int, list[AppendOutcome]] = field(default_factory=dict)
    sent: bool = False

    def end(self, error: LakelogError) -> None:
        """`error` is the outcome of all that has none."""
        for place, (_, entries) in enumerate(self.parts):
            self.outcomes.setdefault(place, [error] * len(entries))
        self.resolve()

    def resolve(self) -> None:
        if len(self.outcomes) == len(self.parts) and not self.done.done():
            self.done.set_result([self.outcomes[place] for place in range(len(self.parts))])


class PeerLink(FrameProtocol):
    """A connection to another gateway, which is opened with the first call. Used on the event loop."""

    def __init__(
        self, path: Path, target: Target, asker: str, name: str, check: Callable[[], Awaitable[None]]
    ) -> None:
        """`path` is the socket of the gateway that `target` means and messages `name`. While calls wait for
        answers `check` is awaited, and raises when there will be none.
        """
        super().__init__()
        self._path, self._target, self._asker, self._name, self._check = path, target, asker, name, check
        self._asked: dict[int, _Asked] = {}
        self._waiting: list[_Asked] = []
        self._number = 0
        self._known = self._flushing = False
        self._greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_over = False
        self._opening = asyncio.create_task(self._open())
        self._watching: asyncio.Task[None] | None = None

    def ask(
        self, topic: Topic, parts: Sequence[Part], acks: Acks, trace: RequestTrace | None
    ) -> "asyncio.Future[list[list[AppendOutcome]]]":
        """Append the entries of each part to its partition: the outcomes of each, when all are there.

        An error is an outcome: Unreachable when nothing was sent, OutcomeUnknown when no answer came.
        """
        self._number += 1
        of_trace = None if trace is None else (trace.id, trace.traceparent, trace.tracestate)
        encoded = [encode_part(partition, entries) for partition, entries in parts]
        call = Call(self._number, topic.name, topic.topic_id, acks.value, of_trace, encoded)
        asked = _Asked(parts, encode_call(call), asyncio.get_running_loop().create_future())
        if self.is_over:
            asked.end(self._unreachable("the connection has ended"))
            return asked.done
        self._asked[self._number] = asked
        self._waiting.append(asked)
        if len(self._waiting) >= GATHERED_CALLS:
            self.flush()
        elif not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self.flush)
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        return asked.done

    async def _open(self) -> None:
        """Connect, and make sure who answers, before anything of a call is sent."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(HELLO_S):
                await loop.create_unix_connection(lambda: self, str(self._path))
                self.send(encode_hello(Hello(self._target.name, self._asker)))
                await self._greeted
        except OSError as error:  # TimeoutError is one
            self.end(self._unreachable(type(error).__name__))

    def frame_received(self, frame: bytes) -> None:
        if not self._known:
            if not hmac.compare_digest(decode_proof(frame).encode(), self._target.proof.encode()):
                self.end(self._unreachable("another gateway answers, or one of another root"))
                return
            self._known = True
            self.greeted()
            self._greeted.set_result(None)
            self.flush()
            return
        for number, place, answers in decode_part_outcomes(frame):
            asked = self._asked.get(number)
            if asked is None:
                raise ValueError(f"call {number} was not asked")
            if place != ALL_PARTS and not 0 <= place < len(asked.parts):
                raise ValueError(f"call {number} has no part {place}")
            for each in range(len(asked.parts)) if place == ALL_PARTS else (place,):
                partition, entries = asked.parts[each]
                asked.outcomes.setdefault(each, outcomes_of(answers, partition, len(entries)))
            if len(asked.outcomes) == len(asked.parts):
                del self._asked[number]
                asked.resolve()

    def flush(self) -> None:
        self._flushing = False
        if not self._known or not self._waiting:
            return
        sent = self.send_gathered([asked.encoded for asked in self._waiting])
        for asked in self._waiting[:sent]:
            asked.sent, asked.encoded = True, b""
        del self._waiting[:sent]

    def connection_lost(self, _: Exception | None) -> None:
        self.end(self._unreachable("the connection has ended"))

    def end(self, error: LakelogError) -> None:
        """End the connection. `error` is the outcome of what was not sent; that of what was is unknown."""
        if self.is_over:
            return
        self.is_over = True
        self.abort()
        if not self._greeted.done():
            self._greeted.set_result(None)
        asked, self._asked, self._waiting = [*self._asked.values()], {}, []
        unknown = OutcomeUnknown(
            f"{self._name} ended or fell silent before it answered; an idempotent producer repeats the "
            "request, others read first"
        )
        for each in asked:
            each.end(unknown if each.sent else error)

    async def _watch(self) -> None:
        """End the connection when the other gateway has ended, or is silent."""
        try:
            while self._asked and not self.is_over:
                await asyncio.sleep(WATCH_S)
                await self._check()
        except LakelogError:
            self.end(self._unreachable("it is silent"))
        finally:
            self._watching = None

    async def close(self) -> None:
        self.end(self._unreachable("this gateway stops"))
        for task in (self._opening, self._watching):
            if task is not None:
                task.cancel()
                await asyncio.wait((task,))

    def _unreachable(self, why: str) -> Unreachable:
        return Unreachable(f"{self._name} cannot be reached ({why}); repeat the request")


def name_of(broker: BrokerRecord) -> str:
    """A gateway, in messages."""
    return f"broker {broker.id}"


class PeerLinks:
    """The connections of one gateway to the others whose sockets are in `directory`, if there is one."""

    def __init__(
        self, brokers: Brokers, directory: Path | None, check: Callable[[BrokerRecord], Awaitable[None]]
    ) -> None:
        """`check` raises when a gateway will not answer any more."""
        self._brokers, self._directory, self._check = brokers, directory, check
        self._open: dict[int, tuple[str, PeerLink]] = {}

    def find(self, broker: BrokerRecord) -> PeerLink | None:
        """The connection to `broker`, which may be opened only now; None if it has no socket here.

        Raises Unreachable as `Brokers.target_of`.
        """
        if self._directory is None:
            return None
        target = self._brokers.target_of(broker)
        incarnation, link = self._open.get(broker.id, ("", None))
        if link is not None and incarnation == broker.incarnation and not link.is_over:
            return link
        path = socket_of(self._directory, broker.url)
        if not path.exists():
            return None
        asker = self._brokers.asker(target)
        link = PeerLink(path, target, asker, name_of(broker), lambda: self._check(broker))
        self._open[broker.id] = (broker.incarnation, link)
        return link

    async def close(self) -> None:
        for _, link in self._open.values():
            await link.close()
