"""The Unix socket of a gateway, at which the other gateways of its machine append (docs/operating.md).

Gateways pass as they do at the routes between gateways (api/peer.py), with these proofs, and are looked at
again for each frame. What a frame asks for is sequenced at once where this gateway leads. Each partition is
answered when its records are durable; answers that are there in one turn of the event loop are one frame.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from api.access_log import principal_of
from api.errors import drop_frames
from api.gateway import Gateway
from api.peer import acks_named, append_entries, check_entries, check_named
from coordinator.brokers.peer_link import FrameProtocol, socket_of
from coordinator.brokers.peer_secret import Target
from coordinator.brokers.peer_wire import (
    ALL_PARTS,
    Call,
    decode_calls,
    decode_hello,
    encode_part_outcomes,
    encode_proof,
    entries_of,
)
from coordinator.brokers.peers import APPEND_PATH
from ingest.accumulator import Ticket
from ingest.pending_tasks import PendingTasks
from ingest.request_trace import CURRENT, RequestTrace, Span
from ingest.writer import Acks, AppendOutcome, appended
from log_tables.clock import timer
from log_tables.cluster.topic import Topic
from log_tables.errors import BufferFull, LakelogError, OutcomeUnknown, StoreFull, Unreachable
from log_tables.limits import PART_BYTES
from log_tables.partition.partition import AppendRequest
from log_tables.topic_partition import TopicIdPartition

_OWNERS = 0o600
_OK = 200
_CLIENT = "unix"
"""The address of who asks, in the access log."""

_FAILED = OutcomeUnknown("the gateway failed while it committed; read before you repeat")

_log = logging.getLogger(__name__)


class PeerDoor:
    """The socket of one gateway, in a directory that is its owner's alone."""

    def __init__(self, gateway: Gateway, directory: Path) -> None:
        self._gateway, self._path = gateway, socket_of(directory, gateway.settings.peer_url)
        self._server: asyncio.Server | None = None
        self.connections: set[_Connection] = set()

    async def start(self) -> None:
        """Listen; if that fails, as where something has removed the directory, others ask by HTTP."""
        made = partial(_Connection, self._gateway, self.connections)
        try:
            self._path.unlink(missing_ok=True)  # of a process that was killed
            self._server = await asyncio.get_running_loop().create_unix_server(made, str(self._path))
            self._path.chmod(_OWNERS)
        except OSError as error:
            _log.warning("other workers reach this one by HTTP only (%s)", error.strerror or error)

    async def close(self) -> None:
        """Listen no longer; what was asked has its answer, or is unknown."""
        if self._server is not None:
            self._path.unlink(missing_ok=True)
            self._server.close()
            for connection in [*self.connections]:
                connection.close()


class _Connection(FrameProtocol):
    """A gateway that asks."""

    def __init__(self, gateway: Gateway, connections: "set[_Connection]") -> None:
        super().__init__()
        self._gateway, self._connections = gateway, connections
        self._target: Target | None = None
        self._asker = ""
        self._answers: list[bytes] = []
        self._flushing = False
        self._tasks = PendingTasks()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connections.add(self)

    def connection_lost(self, _: Exception | None) -> None:
        self._connections.discard(self)

    def close(self) -> None:
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def frame_received(self, frame: bytes) -> None:
        if self._target is None:
            hello = decode_hello(frame)
            self._target, self._asker = self._gateway.brokers.find_target(hello.target), hello.asker
            self._admit(None)
            return
        calls = decode_calls(frame)
        if self._gateway.brokers.admits(self._asker, self._target):
            self._take_calls(calls)
        else:
            self._admit(calls)

    def _admit(self, calls: list[Call] | None) -> None:
        """Look once more who asks, before the next frame; then answer the hello, or what is asked."""
        self.hold()
        self._tasks.start(self._admitted_or_closed(calls))

    async def _admitted_or_closed(self, calls: list[Call] | None) -> None:
        try:
            await self._admitted(calls)
        except BaseException:
            self.abort()  # who asks hears that the rest is unknown
            raise

    async def _admitted(self, calls: list[Call] | None) -> None:
        brokers, target = self._gateway.brokers, self._target
        asker = None if target is None else await brokers.admitted(self._asker, target)
        if self._transport is None or self._transport.is_closing():
            return
        if target is None or asker is None:
            if calls is None:
                self.send(encode_proof(""))
            else:
                self._refuse(calls)
            self.close()
            return
        if calls is None:
            self.greeted()
            self.send(encode_proof(target.proof))
        else:
            self._take_calls(calls)
        self.go_on()

    def _refuse(self, calls: list[Call]) -> None:
        error = Unreachable("the other gateway does not know this one; repeat the request")
        for call in calls:
            self._answer(encode_part_outcomes(call.number, ALL_PARTS, [error]))

    def _take_calls(self, calls: list[Call]) -> None:
        for call in calls:
            _Append(self._gateway, call, self._answer, self._tasks).begin()
        CURRENT.set(None)

    def _answer(self, encoded: bytes) -> None:
        self._answers.append(encoded)
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        self._flushing = False
        sent = self.send_gathered(self._answers)
        self._answers = self._answers[sent:]


class _Append:
    """A call under way: each part is answered for itself, and the room is given back when all are durable."""

    def __init__(
        self,
        gateway: Gateway,
        call: Call,
        answers: Callable[[bytes], None],
        tasks: PendingTasks,
    ) -> None:
        self._gateway, self._call, self._answers, self._tasks = gateway, call, answers, tasks
        self._room, self._left, self._acks = gateway.buffer.room(call.topic), len(call.parts), Acks.ALL
        self._began, self._span, self._said = timer(), self._begin_span(), 0

    def _begin_span(self) -> Span | None:
        """Begin to work for the request of the call, or for one of its own."""
        given, here = self._call.trace, self._gateway
        self._trace = RequestTrace(here.request_ids.next()) if given is None else RequestTrace(*given)
        span = None
        if here.tracer is not None:
            span = here.tracer.begin("POST", "server", self._trace, {"http.request.method": "POST"})
            self._trace = span.trace
        CURRENT.set(self._trace)
        return span

    def begin(self) -> None:
        """Sequence what this gateway leads; the rest waits for a claim or a refresh."""
        call = self._call
        try:
            self._acks = acks_named(call.acks)
            given = [entries_of(part, self._hold) for _, part in call.parts]
            self._hold(sum(map(len, given)) * PART_BYTES)
            check_named(call.topic)
            topic = self._topic(given)
        except LakelogError as error:
            drop_frames(error)
            self._refuse(error)
            return
        except Exception:  # noqa: BLE001 -- as in `_append`
            _log.exception("records of %s that another gateway has sent were not taken", call.topic)
            self._refuse(_FAILED)
            return
        for place, entries in enumerate(given):
            try:
                self._begin_part(place, topic, entries)
            except Exception:  # noqa: BLE001 -- as in `_append`
                _log.exception("records of %s that another gateway has sent were not taken", call.topic)
                self._answer(place, [_FAILED])
                self._settled()

    def _begin_part(self, place: int, topic: Topic | None, entries: Sequence[AppendRequest]) -> None:
        partition, _ = self._call.parts[place]
        tickets = [] if topic is None else self._sequenced(topic, partition, entries)
        if tickets and len(tickets) == len(entries) and len({id(done) for _, done in tickets}) == 1:
            self._await(place, partition, tickets)
        else:
            self._tasks.start(self._append(place, topic, entries, tickets))

    def _refuse(self, error: LakelogError) -> None:
        self._answer(ALL_PARTS, [error])
        self._end()

    def _hold(self, size_bytes: int) -> None:
        self._room.settle(self._room.size_bytes + size_bytes)

    def _topic(self, given: Sequence[Sequence[AppendRequest]]) -> Topic | None:
        """The topic that is meant; None if it takes a look at the root. Raises what refuses the entries."""
        call = self._call
        topic = self._gateway.cluster.cached_topic(call.topic)
        if topic is None or topic.topic_id != call.topic_id:
            return None
        for entries in given:
            check_entries(topic, entries)
        return topic

    def _sequenced(self, topic: Topic, partition: int, entries: Sequence[AppendRequest]) -> list[Ticket]:
        """The tickets of `entries`, up to the first that has to wait, or is refused."""
        tickets: list[Ticket] = []
        with suppress(BufferFull, StoreFull):
            for entry in entries:
                ticket = self._gateway.writer.sequence_now(topic, partition, entry)
                if ticket is None:
                    break
                tickets.append(ticket)
        return tickets

    def _await(self, place: int, partition: int, tickets: Sequence[Ticket]) -> None:
        """Answer when one commit is done that all wait for, or at once with acks=1."""
        if self._acks is not Acks.ALL:
            self._answer(place, [appended(partition, each, None) for each, _ in tickets])
        tickets[0][1].add_done_callback(lambda _: self._committed(place, partition, tickets))

    def _committed(self, place: int, partition: int, tickets: Sequence[Ticket]) -> None:
        outcomes = [_outcome(partition, ticket) for ticket in tickets]
        if self._acks is Acks.ALL:
            self._answer(place, outcomes)
        elif isinstance(outcomes[0], LakelogError):
            _log.warning(
                "records of %s answered before they were durable are lost: %s", self._call.topic, outcomes[0]
            )
        self._settled()

    async def _append(
        self, place: int, topic: Topic | None, entries: Sequence[AppendRequest], tickets: list[Ticket]
    ) -> None:
        """Append those of `entries` that have no ticket, and answer when all are as `acks` says."""
        (partition, _), rest = self._call.parts[place], entries[len(tickets) :]
        size = sum(entry.size_bytes + PART_BYTES for entry in rest)
        try:
            with self._room.part(size) as own:
                if topic is not None and tickets:
                    outcomes = await self._go_on(topic, partition, rest, tickets)
                else:
                    at = TopicIdPartition(self._call.topic, self._call.topic_id, partition)
                    outcomes = await append_entries(self._gateway, at, rest, self._acks, own)
                if tickets:
                    await asyncio.wait([done for _, done in tickets])
            self._answer(place, [*(_outcome(partition, each) for each in tickets), *outcomes])
        except Exception:  # noqa: BLE001 -- it is logged, and who asks would wait for ever
            _log.exception("records of %s that another gateway has sent may be lost", self._call.topic)
            self._answer(place, [_FAILED])
        finally:
            self._settled()

    async def _go_on(
        self, topic: Topic, partition: int, rest: Sequence[AppendRequest], tickets: list[Ticket]
    ) -> list[AppendOutcome]:
        """Sequence `rest` in the term of those before it, which have `tickets`: in another one it could be
        appended without those. Returns the outcomes of what is refused; others have tickets then.
        """
        term = tickets[0][0].term
        for place, entry in enumerate(rest):
            try:
                tickets.append(await self._gateway.writer.sequence(topic, partition, entry, term))
            except LakelogError as error:
                return [error] * (len(rest) - place)
        return []

    def _answer(self, place: int, outcomes: Sequence[AppendOutcome]) -> None:
        encoded = encode_part_outcomes(self._call.number, place, outcomes)
        self._said += len(encoded)
        self._answers(encoded)

    def _settled(self) -> None:
        self._left -= 1
        if not self._left:
            self._end()

    def _end(self) -> None:
        self._room.settle(0)
        if self._span is not None:
            self._span.end({"http.route": APPEND_PATH}, name=f"POST {APPEND_PATH}")
        log = self._gateway.access_log
        if log is not None:
            took, gateway = timer() - self._began, principal_of(None, True)
            log.http(self._trace, "POST", APPEND_PATH, (_OK, self._said), took, _CLIENT, gateway)


def _outcome(partition: int, ticket: Ticket) -> AppendOutcome:
    """The outcome of an entry whose commit is done."""
    sequenced, done = ticket
    error = done.exception()
    if error is None:
        return appended(partition, sequenced, done.result())
    if isinstance(error, LakelogError):
        return error
    return _FAILED
