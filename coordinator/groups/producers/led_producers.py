"""The transactional ids that this process coordinates: their requests, as events of a shard.

The commit point is one append to the id's partition of `__consumer_offsets`. What comes after it is repeated
until it succeeds, by the coordinator of that time (`ended_transactions`).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence

import msgspec

from coordinator.groups.events import Transact
from coordinator.groups.open_transactions import GROUPS_MAX, SEQUENCES_KEPT, OpenTransaction
from coordinator.groups.producers.ended_transactions import EndedTransactions
from coordinator.groups.producers.producer_view import ProducerView
from coordinator.groups.producers.producer_wire import (
    AddOffsets,
    AddPartitions,
    Admit,
    Answer,
    AskOutcome,
    Batch,
    Describe,
    Descriptions,
    Done,
    Ended,
    EndTransaction,
    Failure,
    InitProducer,
    Outcomes,
    Producer,
    ProducerDescription,
    Request,
    Staged,
    failure_of,
)
from coordinator.groups.shard import Shard
from coordinator.groups.shards import Shards
from coordinator.groups.state.group import Group
from coordinator.groups.state.producer_step import Begin, End, begun, check, ended, fenced
from ingest.buffer import RETRY_AFTER_S
from ingest.loop_share import batched
from ingest.settings import Settings
from log_tables.clock import Clock
from log_tables.cluster.group_log import ProducerValue, check_group_name
from log_tables.errors import (
    BufferFull,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    LakelogError,
    StaleProducerEpoch,
    UnknownProducer,
)
from log_tables.limits import GROUPS_LOOKED_AT
from log_tables.partition.sequencer import Author, brief_producer_id, kept_producer_id
from log_tables.segments.staging import StagedFile

_FINAL = (StaleProducerEpoch, UnknownProducer, InvalidTransactionState)
"""What ends a client, or its transaction: only who leads may say so."""

_log = logging.getLogger(__name__)


class LedProducers:
    """Used on the event loop. Its methods raise NotLeader, StoreUnavailable, OutcomeUnknown, Damaged."""

    def __init__(
        self,
        shards: Shards,
        ends: EndedTransactions,
        settings: Settings,
        clock: Clock,
        on_event: Callable[[str], object],
    ) -> None:
        """`on_event` hears "aborted" of each transaction that is, and "timed out" if it took too long."""
        self._shards, self._ends, self._settings, self._clock = shards, ends, settings, clock
        self._on_event, self.view = on_event, ProducerView(shards, ends, clock)
        shards.on_load(self._recover)

    async def act(self, shard: Shard, request: Request) -> Answer:
        """The answer to a request for an id of `shard`. Raises what the request names."""
        try:
            answer = await self._act(shard, request)
        except _FINAL:
            await _check_leads(shard)
            raise
        if isinstance(answer, Outcomes) and any(isinstance(each, Failure) for each in answer.each):
            await _check_leads(shard)
        return answer

    async def _act(self, shard: Shard, request: Request) -> Answer:
        match request:
            case InitProducer():
                return await self._begin(shard, request)
            case AddOffsets():
                return await self._add_offsets(shard, request)
            case EndTransaction():
                return await self._end(shard, request)
            case Staged():
                return await self._note_staged(shard, request)
            case Describe(ids):
                return await self._described(shard, ids)
            case _:
                return self._answer(shard, request)

    def _answer(self, shard: Shard, request: AddPartitions | Admit | AskOutcome) -> Answer:
        match request:
            case AddPartitions():
                transaction = self._open(shard, request.id, request.producer_id, request.epoch)
                transaction.partitions.update(request.partitions)
                return Done()
            case Admit():
                return Outcomes(tuple(self._admitted(shard, each) for each in request.batches))
            case AskOutcome():
                return self._outcome(shard, request)

    async def _described(self, shard: Shard, ids: Sequence[str] | None) -> Descriptions:
        found: list[ProducerDescription] = []
        async for name in _in_turns(self.view.names(shard) if ids is None else ids):
            described = self.view.describe(shard, name)
            if described is not None:
                found.append(described)
        return Descriptions(tuple(found))

    async def abort_late(self, shard: Shard) -> None:
        """Abort the transactions that take too long, and fence their producers. Raises NotLeader."""
        async for name in _in_turns([each for each, _ in shard.open.items()]):
            self._abort_if_late(shard, name)

    def _abort_if_late(self, shard: Shard, name: str) -> None:
        """A machine that sleeps counts: a vacuum may delete what a transaction of yesterday has staged."""
        transaction, value = shard.open.find(name), shard.producers.get(name)
        if transaction is None or value is None or self._ends.under_way(shard, name):
            return
        if self._clock.boottime() >= transaction.began_s + value.timeout_ms / 1_000:
            _log.warning("a transaction of the transactional id %.100r took too long: aborted", name)
            new_id, telling = brief_producer_id(self._clock), self._telling(shard, name)
            self._set(shard, name, fenced(value, new_id, self._clock.now_ms(), telling), ends=True)
            shard.open.note(name)
            self._on_event("timed out")

    async def expire(self, shard: Shard) -> None:
        """Forget the ids that nobody has used for long. Raises NotLeader."""
        before_ms = self._clock.now_ms() - self._settings.transactional_id_expiration_ms
        async for name in _in_turns([*shard.producers]):
            value = shard.producers.get(name)
            if value is None or value.changed_ms >= before_ms:
                continue
            if shard.open.find(name) is None and not self._ends.under_way(shard, name):
                shard.set_producer(name, None)
                shard.open.forget(name)

    async def _begin(self, shard: Shard, asked: InitProducer) -> Producer:
        most = self._settings.transaction_max_timeout_ms
        if not 0 < asked.timeout_ms <= most:
            raise InvalidTransactionTimeout(
                f"transaction.timeout.ms={asked.timeout_ms} of the id {asked.id[:100]!r}; use 1 to "
                f"{most}, or raise transaction_max_timeout_ms"
            )
        await self._ends.wait(shard, asked.id)
        self._ends.check(shard, asked.id)
        event = Begin(
            asked.timeout_ms,
            brief_producer_id(self._clock),
            self._clock.now_ms(),
            asked.producer_id,
            asked.epoch,
            self._was_open(shard, asked.id),
            self._telling(shard, asked.id),
            asked.principal,
        )
        before = shard.producers.get(asked.id)
        after = begun(asked.id, before, event)
        if after is not before:
            ends = before is not None and event.was_open is not False
            self._set(shard, asked.id, after, ends=ends)
            shard.open.note(asked.id)
        said = await self._said(shard, asked.id, after, after is not before)
        is_other = after is not before and before is not None and before.principal != asked.principal
        return msgspec.structs.replace(said, fenced=before.principal) if before and is_other else said

    async def _add_offsets(self, shard: Shard, asked: AddOffsets) -> Producer:
        check_group_name(asked.group)  # nobody could tell it of the end
        if asked.opens:
            transaction = self._open(shard, asked.id, asked.producer_id, asked.epoch)
        else:
            value = check(asked.id, shard.producers.get(asked.id), asked.producer_id, asked.epoch)
            found = shard.open.find(asked.id)
            if not shard.open.knows(asked.id) and asked.group in value.groups:
                # An earlier coordinator may have answered that it is: for the client nothing has changed.
                found = self._open(shard, asked.id, asked.producer_id, asked.epoch)
            elif found is None or asked.group not in found.groups:
                raise InvalidTransactionState(
                    f"the group {asked.group!r} is in no open transaction of the transactional id "
                    f"{asked.id[:100]!r}; add its offsets first"
                )
            transaction = found
        transaction.add_group(asked.group)
        value = shard.producers[asked.id]
        is_known = asked.group in value.groups
        if not is_known:
            # Those of earlier transactions stay, as they come again, mostly; but not without end.
            keeps = len(value.groups) < GROUPS_MAX or not shard.open.knows(asked.id)
            groups = (*value.groups, asked.group) if keeps else tuple(sorted(transaction.groups))
            shard.set_producer(asked.id, msgspec.structs.replace(value, groups=groups))
        await shard.wait_durable(shard.ids)
        if is_known:
            await _check_leads(shard)
        return Producer(value.producer_id, value.epoch, transaction.number)

    async def _end(self, shard: Shard, asked: EndTransaction) -> Producer:
        if asked.commits:
            await self._shards.refresh_topics()
        await self._ends.wait(shard, asked.id)
        self._abort_if_late(shard, asked.id)
        before, transaction = shard.producers.get(asked.id), shard.open.find(asked.id)
        ids = shard.group(shard.ids)
        staged = _writable(transaction, ids) if transaction and asked.commits else ()
        event = End(
            asked.producer_id,
            asked.epoch,
            asked.commits,
            brief_producer_id(self._clock),
            self._clock.now_ms(),
            asked.moves_on,
            self._was_open(shard, asked.id),
            self._telling(shard, asked.id),
            _sequences(transaction),
            ids.transactions.number + 1 if staged else 0,
        )
        after = ended(asked.id, before, event)
        if after is not before:
            self._ends.check(shard, asked.id)
            if asked.commits:
                shard.open.check_whole(asked.id)
            self._set(shard, asked.id, after, staged, ends=True)
            shard.open.note(asked.id)
        return await self._said(shard, asked.id, after, after is not before)

    async def _said(self, shard: Shard, name: str, value: ProducerValue, appended: bool) -> Producer:
        """The answer that an id is `value`, once that is durable, and what has ended has taken effect: who
        repeats a request has waited for that before.
        """
        await shard.wait_durable(shard.ids)
        if appended:
            await self._ends.wait(shard, name)
        else:
            await _check_leads(shard)
        return Producer(value.producer_id, value.epoch)

    def _set(
        self,
        shard: Shard,
        name: str,
        value: ProducerValue,
        staged: tuple[StagedFile, ...] = (),
        ends: bool = False,
    ) -> None:
        """Set the record of an id, with the commit of what is `staged`; if its transaction ends by that, have
        it take effect.
        """
        event = None
        if staged:
            producer_id, now_ms = kept_producer_id(self._clock), self._clock.now_ms()
            author = Author(value.principal) if value.principal else None
            event = Transact(offsets={}, staged=staged, producer_id=producer_id, at_ms=now_ms, author=author)
        shard.set_producer(name, value, event)
        if not ends:
            return
        transaction = shard.open.find(name)
        if transaction is not None and not value.committed:
            self._on_event("aborted")
        began_s = None if transaction is None else transaction.began_s
        self._ends.start(shard, name, value, shard.open.end(name, staged), began_s)

    def _open(self, shard: Shard, name: str, producer_id: int, epoch: int) -> OpenTransaction:
        """The open transaction of an id, which begins now if none is open."""
        value = check(name, shard.producers.get(name), producer_id, epoch)
        self._ends.check(shard, name)
        return shard.open.begin(name, value, self._clock.boottime())

    def _admitted(self, shard: Shard, batch: Batch) -> int | Failure:
        try:
            if batch.opens:
                transaction: OpenTransaction | None = self._open(
                    shard, batch.id, batch.producer_id, batch.epoch
                )
            else:
                check(batch.id, shard.producers.get(batch.id), batch.producer_id, batch.epoch)
                transaction = shard.open.find(batch.id)
            if shard.open.is_repeat(batch.id, batch.at, batch.sequence, batch.records):
                return 0
            if transaction is None or (not batch.opens and batch.at not in transaction.partitions):
                raise InvalidTransactionState(
                    f"{batch.at} is in no open transaction of the transactional id {batch.id[:100]!r}; add "
                    "it first, or abort the transaction"
                )
            self._check_room(transaction.principal)
            return transaction.number
        except LakelogError as error:
            return failure_of(error)

    def _check_room(self, principal: str) -> None:
        """Raise BufferFull if open transactions have as many bytes as they may."""
        own = sum(shard.open.sizes[principal] for shard in self._shards)
        total = sum(shard.open.size_bytes for shard in self._shards)
        bounds = self._settings.transactions_max_bytes, self._settings.principal_transactions_max_bytes
        for what, size, most, setting in (
            ("all clients", total, bounds[0], "transactions_max_bytes"),
            (principal, own, bounds[1], "principal_transactions_max_bytes"),
        ):
            if most and size >= most:
                raise BufferFull(
                    f"open transactions of {what or 'this client'} have {size} bytes at this coordinator; "
                    f"end some, send it again, or raise {setting}",
                    retry_after_s=RETRY_AFTER_S,
                )

    async def _note_staged(self, shard: Shard, request: Staged) -> Outcomes:
        """Note what is staged, if nobody has taken over before: whoever does later finds the file."""
        await _check_leads(shard)
        file, now_s = request.file, self._clock.boottime()
        errors = []
        for entry in file.runs:
            value = shard.producers.get(entry.id)
            errors.append(shard.open.add(entry.id, file.path, entry, value, now_s))
        if not shard.open.uses(file.path):
            self._ends.delete(shard, [file.path])
        return Outcomes(tuple(0 if error is None else failure_of(error) for error in errors))

    def _outcome(self, shard: Shard, asked: AskOutcome) -> Ended:
        """A group asks for whose offsets nobody has told it the end of a transaction. Once all groups of a
        transaction have heard, offsets that still wait for it came late: a client that was answered has
        them committed by now, and maybe newer ones.
        """
        shard.check_leading()  # what was ended may not be durable, and never be
        value = shard.producers.get(asked.id)
        if value is None or asked.number < value.number:
            return Ended(False)
        if asked.number == value.number:
            return Ended(None if self._ends.under_way(shard, asked.id) else False)
        shard.open.begin(asked.id, value, self._clock.boottime())  # which ends in time
        return Ended(None)

    def _was_open(self, shard: Shard, name: str) -> bool | None:
        """Whether a transaction of an id is open; None if one may be that nothing was written in."""
        if shard.open.find(name) is not None:
            return True
        return False if shard.open.knows(name) else None

    def _telling(self, shard: Shard, name: str) -> tuple[str, ...]:
        """The groups that hear of the end of a transaction: those that are in it. After a change of the
        coordinator all that ever were in one of the id.
        """
        value, transaction = shard.producers.get(name), shard.open.find(name)
        if value is None:
            return ()
        if shard.open.knows(name):
            return tuple(sorted(transaction.groups)) if transaction else ()
        return value.groups

    def _recover(self, partition: int) -> None:
        """Have what an earlier coordinator has committed take effect."""
        shard = self._shards.get(partition)
        if shard is None:
            return
        pending = shard.group(shard.ids).transactions.pending
        for name, value in shard.producers.items():
            if value.telling or value.intent in pending:
                self._ends.start(shard, name, value)


async def _in_turns(names: Sequence[str]) -> AsyncIterator[str]:
    """Each of `names`; others have the event loop after some of them."""
    for some in batched(names, GROUPS_LOOKED_AT):
        for name in some:
            yield name
        if len(names) > GROUPS_LOOKED_AT:
            await asyncio.sleep(0)


async def _check_leads(shard: Shard) -> None:
    """Raise NotLeader if another process has taken over, of which this one may not have heard."""
    await asyncio.to_thread(shard.refresh, True)
    shard.check_leading()


def _writable(transaction: OpenTransaction, ids: Group) -> tuple[StagedFile, ...]:
    """The staged files of a transaction, without what was for topics that are gone."""
    topics = {(at.topic, at.topic_id) for at in transaction.partitions}
    gone = {at for at in topics if (known := ids.topics.get(at[0])) is None or known.topic_id != at[1]}
    if not gone:
        return transaction.staged()
    found = []
    for file in transaction.staged():
        runs = tuple(run for run in file.runs if (run.topic, run.topic_id) not in gone)
        if runs:
            found.append(StagedFile(file.path, runs))
    return tuple(found)


def _sequences(transaction: OpenTransaction | None) -> tuple[tuple[str, int, int], ...]:
    if transaction is None:
        return ()
    kept = [*transaction.sequences.items()][-SEQUENCES_KEPT:]
    return tuple((topic_id, partition, sequence) for (topic_id, partition), sequence in kept)
