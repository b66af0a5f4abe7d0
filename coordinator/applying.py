"""Appending what transactions have committed, to each partition in the order of their numbers, exactly once.

The producer of a group's transactions appends with a transaction's number as its epoch, and the records of a
partition count from 0. So whoever repeats an append, after a failure or in another process, writes nothing
twice; and an append with an older epoch than the partition has seen is one that was made long ago.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from ingest.buffer import Buffer, Room
from ingest.writer import Acks, Appended, Outcome
from log_tables.cluster import Cluster
from log_tables.errors import CorruptSegment, LakelogError, Retriable, StaleProducerEpoch
from log_tables.group_log import Intent, Placed
from log_tables.limits import SEQUENCE_MODULUS, STAGED_BATCH_BYTES
from log_tables.partition import Entry, Producer
from log_tables.record import batch_bytes
from log_tables.staging import Run, Staged, read_run
from log_tables.store import Store
from log_tables.topic import Topic

PAUSE_FIRST_S = 0.05
PAUSE_MAX_S = 5.0
"""Between two attempts, ever longer."""

Append = Callable[[Topic, Sequence[tuple[int, Entry]], Acks, Room], Awaitable[list[Outcome]]]
Done = asyncio.Future[tuple[Placed, ...] | None]
"""Where a transaction's records are, once they are there; None when another process has to see to it."""

_At = tuple[str, str, int]
"""A topic's name and id, and one of its partitions."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Means:
    """What applying needs. `leading` says whether it is still this process's to do, `dropped` hears of a part
    whose topic is gone.
    """

    cluster: Cluster
    append: Append
    buffer: Buffer
    leading: Callable[[], bool]
    dropped: Callable[[], None]


@dataclass(slots=True)
class _Part:
    """What one transaction has for one partition: how many entries of it were read, and are durable."""

    intent: Intent
    runs: list[tuple[Staged, Run]]
    finish: Callable[["_Part"], None]
    placed: list[Placed] = field(default_factory=list)
    read: int = 0
    durable: int = 0
    read_whole: bool = False

    @property
    def finished(self) -> bool:
        return self.read_whole and self.durable == self.read

    def place(self, base_offset: int | None, count: int) -> None:
        """The next entry is durable."""
        self.durable += 1
        topic, partition = self.runs[0][1].topic, self.runs[0][1].partition
        last = self.placed[-1] if self.placed else None
        if last is not None and _follows(last, base_offset):
            self.placed[-1] = Placed(topic, partition, last.count + count, last.base_offset)
        else:
            self.placed.append(Placed(topic, partition, count, base_offset))


def _follows(last: Placed, base_offset: int | None) -> bool:
    if last.base_offset is None or base_offset is None:
        return last.base_offset is base_offset
    return last.base_offset + last.count == base_offset


def _entries(store: Store, part: _Part) -> Iterator[Entry]:
    """The entries of a part, the same ones every time. Blocking."""
    sequence, intent = 0, part.intent
    for staged, run in part.runs:
        for batch in read_run(store, staged, run):
            yield Entry(batch, Producer(intent.producer_id, intent.epoch, sequence, kept=True))
            sequence = (sequence + batch.num_rows) % SEQUENCE_MODULUS


class Applier:
    """The transactions of one group, while one process coordinates it. Used on the event loop."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._lanes: dict[_At, _Lane] = {}

    def begin(self, intent: Intent) -> Done:
        """Append what a transaction has staged, in each partition after those that came here before."""
        done: Done = asyncio.get_running_loop().create_future()
        runs: dict[_At, list[tuple[Staged, Run]]] = {}
        for staged in intent.staged:
            for run in staged.runs:
                runs.setdefault((run.topic, run.topic_id, run.partition), []).append((staged, run))
        placed: dict[_At, list[Placed]] = {}

        def finish(at: _At, part: _Part) -> None:
            placed[at] = part.placed
            if len(placed) == len(runs) and not done.done():
                done.set_result(tuple(found for at in runs for found in placed[at]))

        for at, listed in runs.items():
            self._lane(at).add(_Part(intent, listed, partial(finish, at)), done)
        return done

    @property
    def lost(self) -> LakelogError | None:
        """Why something cannot be applied, if its staged file cannot be read (any more)."""
        return next((lane.lost for lane in self._lanes.values() if lane.lost is not None), None)

    def drop_lost(self) -> None:
        """Give up what cannot be read, so that the rest is applied."""
        for lane in self._lanes.values():
            lane.dropping = True

    async def close(self) -> None:
        """Leave what is not done yet to whoever coordinates the group next."""
        await asyncio.gather(*(lane.close() for lane in [*self._lanes.values()]))

    def _lane(self, at: _At) -> "_Lane":
        lane = self._lanes.get(at)
        if lane is None:
            lane = self._lanes[at] = _Lane(self._means, at, lambda: self._lanes.pop(at, None))
        return lane


class _Lane:
    """The parts for one partition, one after the other; what fails is repeated.

    `lost` says why the first part cannot be read; while that is so, `dropping` has it given up.
    """

    def __init__(self, means: Means, at: _At, ended: Callable[[], object]) -> None:
        self._means, self._ended = means, ended
        self._name, self._topic_id, self._partition = at
        self._parts: deque[_Part] = deque()
        self._reading: Iterator[Entry] | None = None
        self._read: deque[tuple[_Part, Entry]] = deque()
        self._waiting: list[Done] = []
        self._task: asyncio.Task[None] | None = None
        self.lost: LakelogError | None = None
        self.dropping = False

    def add(self, part: _Part, done: Done) -> None:
        self._parts.append(part)
        self._waiting = [waiting for waiting in self._waiting if not waiting.done()]
        self._waiting.append(done)
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._give_up()

    async def _run(self) -> None:
        pause_s, failed = PAUSE_FIRST_S, False
        while self._parts and self._means.leading():
            try:
                if await self._is_gone(failed):
                    self._drop_all()
                    continue
                self.lost = await asyncio.to_thread(self._take, [*self._parts])
                if self.lost is None:
                    await self._append()
                    self.dropping = False
                elif self.dropping:
                    self._drop_lost(self.lost)
                else:
                    raise self.lost
                pause_s, failed = PAUSE_FIRST_S, False
                continue
            except LakelogError as error:
                _log.warning("applying a transaction to %s-%d: %s", self._name, self._partition, error)
            except Exception:  # noqa: BLE001 -- logged; nobody else would apply it
                _log.exception("applying a transaction to %s-%d failed", self._name, self._partition)
            failed = True
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)
        self._give_up()

    def _give_up(self) -> None:
        """Nothing is left, or another process has to do it."""
        self._ended()
        if self._parts:
            for waiting in self._waiting:
                if not waiting.done():
                    waiting.set_result(None)

    def _topic(self) -> Topic | None:
        found = self._means.cluster.known(self._name)
        return found if found is not None and found.topic_id == self._topic_id else None

    async def _is_gone(self, look: bool) -> bool:
        """Whether the topic is there no more, or another one of its name. Raises StoreUnavailable."""
        if look or self._topic() is None:
            await asyncio.to_thread(self._means.cluster.refresh)
        return self._topic() is None

    def _drop_lost(self, why: LakelogError) -> None:
        """Give up what is left of the first part."""
        self._finish()  # what is before it
        _log.warning("a transaction's records for %s-%d are dropped: %s", self._name, self._partition, why)
        self._means.dropped()
        part = self._parts.popleft()
        part.finish(part)

    def _drop_all(self) -> None:
        for part in self._parts:
            _log.warning(
                "a transaction's records for %s-%d are dropped: the topic was deleted",
                self._name,
                self._partition,
            )
            self._means.dropped()
            part.placed.clear()
            part.finish(part)
        self._parts.clear()
        self._read.clear()
        self._reading = None

    def _take(self, parts: Sequence[_Part]) -> CorruptSegment | None:
        """Read entries until there are STAGED_BATCH_BYTES of them, or no more in `parts`. Blocking.

        Returns why not even one could be read, when its staged file is lost. Raises StoreUnavailable.
        """
        size = sum(batch_bytes(entry.batch) for _, entry in self._read)
        for part in parts:
            while not part.read_whole:
                if size >= STAGED_BATCH_BYTES:
                    return None
                try:
                    size += self._take_one(part)
                except CorruptSegment as error:
                    return None if self._read else error
        return None

    def _take_one(self, part: _Part) -> int:
        """Read the next entry of `part`, if there is one; returns its bytes."""
        if self._reading is None:
            entries = _entries(self._means.cluster.store, part)
            self._reading = islice(entries, part.read, None)
        try:
            entry = next(self._reading, None)
        except BaseException:
            self._reading = None
            raise
        if entry is None:
            part.read_whole, self._reading = True, None
            return 0
        part.read += 1
        self._read.append((part, entry))
        return batch_bytes(entry.batch)

    async def _append(self) -> None:
        """Append what is read, up to the first entry that was there before: what follows that was refused
        with it. Raises what the first one that was not appended failed for.
        """
        topic = self._topic()
        entries = [(self._partition, entry) for _, entry in self._read]
        if topic is None or not entries:
            self._finish()
            return
        with self._means.buffer.room(self._name) as room:
            room.grow(sum(batch_bytes(entry.batch) for _, entry in entries))
            outcomes = await self._means.append(topic, entries, Acks.ALL, room)
        for outcome in outcomes:
            if isinstance(outcome, StaleProducerEpoch):
                await self._pass(topic)
                return
            if not isinstance(outcome, Appended):
                raise outcome
            self._place(outcome.base_offset, outcome.count)

    def _place(self, base_offset: int | None, count: int) -> None:
        """The first entry that is read is durable."""
        part, _ = self._read.popleft()
        part.place(base_offset, count)
        self._finish()

    def _finish(self) -> None:
        while self._parts and self._parts[0].finished:
            part = self._parts.popleft()
            part.finish(part)

    async def _pass(self, topic: Topic) -> None:
        """Go on behind what was appended long ago: a later transaction of the group is durable there, and so
        all before it is. For every append of a group's begins with the first entry that its sender does not
        know to be durable, and what follows a refused entry is refused, too.

        Raises Retriable when the later one is only sequenced, by a request of another process: it may fail.
        """
        first = self._read[0][0].intent
        partition = topic.partition(self._partition)
        snapshot = await asyncio.to_thread(partition.refresh, True)
        state = snapshot.producer(first.producer_id)
        if state is None or state.epoch <= first.epoch:
            raise Retriable("a later transaction is under way to the partition; look again")
        while self._read:
            part, entry = self._read[0]
            if part.intent.producer_id != first.producer_id or part.intent.epoch >= state.epoch:
                return
            self._place(None, entry.batch.num_rows)
