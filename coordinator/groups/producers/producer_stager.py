"""Batches of transactions, staged by the gateway to which they come.

Those of one coordinator that wait go into one file: it is put, and then the coordinator hears of it. The
first wait for GATHER_S, as clients send a request for each partition; while a file is on its way the next
ones gather. So the batches of one client to a partition stay in their order.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coordinator.groups.producers.producer_coordinator import ProducerCoordinator
from coordinator.groups.producers.producer_wire import Admit, Batch, Failure, Outcomes, Staged
from ingest.buffer import Room
from ingest.pending_tasks import PendingTasks
from ingest.writer import Appended, AppendOutcome
from log_tables.clock import Clock
from log_tables.errors import LakelogError, OutcomeUnknown, StoreUnavailable
from log_tables.limits import STAGED_FILE_BYTES
from log_tables.rows import Records, as_batch, bytes_of, count_of
from log_tables.segments.producer_staging import ProducerRecords, joined, stage
from log_tables.store.store import Store

NO_OFFSET = -1
"""The offset of records that have none yet."""

GATHER_S = 0.001
"""A file costs several times as much, of the processor and of the disk."""


@dataclass(slots=True, eq=False)
class _Entry:
    batch: Batch
    records: Records
    room: Room
    outcome: "asyncio.Future[AppendOutcome]"

    def end(self, outcome: AppendOutcome) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)
        self.room.settle(0)


class ProducerStager:
    """The batches that one gateway has under way. Used on the event loop."""

    def __init__(
        self,
        store: Store,
        coordinator: ProducerCoordinator,
        clock: Clock,
        check_room: Callable[[], None] = lambda: None,
    ) -> None:
        """`check_room` raises StoreFull while the store has no room for records."""
        self._check_room = check_room
        self._store, self._coordinator, self._clock = store, coordinator, clock
        self._waiting: dict[int, list[_Entry]] = {}
        self._tasks = PendingTasks()

    async def close(self) -> None:
        """Wait for all batches that were given."""
        while self._tasks:
            await self._tasks.wait()

    async def stage(self, batch: Batch, records: Records, room: Room) -> "asyncio.Future[AppendOutcome]":
        """Have `records` staged; the outcome to come says that they are, without an offset. An error is an
        outcome. `room` is given back then.
        """
        outcome: asyncio.Future[AppendOutcome] = asyncio.get_running_loop().create_future()
        entry = _Entry(batch, records, room, outcome)
        try:
            self._check_room()
            partition = await self._coordinator.partition_of(batch.id)
        except LakelogError as error:
            entry.end(error)
            return outcome
        line = self._waiting.get(partition)
        if line is None:
            self._waiting[partition] = [entry]
            self._tasks.start(self._run(partition))
        else:
            line.append(entry)
        return outcome

    async def _run(self, partition: int) -> None:
        await asyncio.sleep(GATHER_S)
        while entries := self._waiting[partition]:
            some = _first(entries)
            del entries[: len(some)]
            try:
                await self._stage(partition, some)
            except LakelogError as error:
                for entry in some:
                    entry.end(error)
            except BaseException:
                # Nobody goes on with those behind them, and the next batch begins another line.
                del self._waiting[partition]
                for entry in (*some, *entries):
                    entry.end(OutcomeUnknown("the gateway failed or stopped; send it again"))
                raise
        del self._waiting[partition]

    async def _stage(self, partition: int, entries: list[_Entry]) -> None:
        admitted = await self._coordinator.ask(partition, Admit(tuple(each.batch for each in entries)))
        kept: list[tuple[_Entry, ProducerRecords]] = []
        for entry, number in zip(entries, _outcomes(admitted, entries), strict=True):
            if isinstance(number, Failure):
                entry.end(number.error())
            elif number == 0:
                entry.end(_staged(entry, repeat=True))
            else:
                batch = entry.batch
                place = batch.id, batch.producer_id, batch.epoch, number, batch.sequence, batch.at
                kept.append((entry, ProducerRecords(*place, as_batch(entry.records))))
        if not kept:
            return
        records = [each for _, each in kept]
        places = joined(records)
        file = await asyncio.to_thread(stage, self._store, self._clock, partition, records, places)
        # Whoever coordinates by now: a gateway that took over before the file was put does not know it.
        noted = await self._coordinator.ask(partition, Staged(file))
        for some, outcome in zip(places, _outcomes(noted, places), strict=True):
            for entry, _ in (kept[place] for place in some):
                entry.end(outcome.error() if isinstance(outcome, Failure) else _staged(entry))


def _first(entries: Sequence[_Entry]) -> list[_Entry]:
    size, found = 0, list[_Entry]()
    for entry in entries:
        size += bytes_of(entry.records)
        if found and size > STAGED_FILE_BYTES:
            break
        found.append(entry)
    return found


def _staged(entry: _Entry, repeat: bool = False) -> Appended:
    return Appended(entry.batch.at.partition, NO_OFFSET, count_of(entry.records), repeat)


def _outcomes(answer: object, asked: Sequence[object]) -> Sequence[int | Failure]:
    if not isinstance(answer, Outcomes) or len(answer.each) != len(asked):
        raise StoreUnavailable("another gateway answered something else; use the same version everywhere")
    return answer.each
