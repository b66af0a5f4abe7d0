"""The coordinator of transactional ids: what their clients ask, wherever it is led (KIP-98, KIP-890).

The commit point is one append to the id's partition of `__consumer_offsets`. What comes after it is repeated
until it succeeds, by the coordinator of that time: records are appended to their partitions, groups hear what
becomes of their offsets.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from weakref import WeakKeyDictionary

import msgspec

from coordinator.brokers.leadership import Leadership
from coordinator.brokers.peers import Peers
from coordinator.groups.classic.events import CommitOffsets, EndPending, PendOffsets
from coordinator.groups.classic_coordinator import ClassicCoordinator
from coordinator.groups.events import Transact
from coordinator.groups.group_wire import Refused
from coordinator.groups.offsets_topic import OffsetsTopic
from coordinator.groups.producers.open_transactions import OpenTransaction
from coordinator.groups.producers.producer_wire import (
    AddOffsets,
    AddPartitions,
    Admit,
    Answer,
    AskOutcome,
    Batch,
    Done,
    Ended,
    EndTransaction,
    Failed,
    Failure,
    InitProducer,
    Outcomes,
    Producer,
    Request,
    Staged,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
    failure_of,
)
from coordinator.groups.shard import Shard
from coordinator.groups.shards import Shards
from coordinator.groups.state.group import Group
from coordinator.groups.state.producer_step import Begin, End, begun, check, ended, fenced
from coordinator.groups.transactions.applier import APPLY_WAIT_S
from coordinator.groups.transactions.transaction_coordinator import TransactionCoordinator
from ingest.pending_tasks import PendingTasks, retrieve
from ingest.periodic_task import FailureLog, PeriodicTask
from ingest.settings import Settings
from log_tables.clock import Backoff, Clock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import ProducerValue
from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.errors import (
    ConcurrentTransactions,
    Damaged,
    InvalidArgument,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    LakelogError,
    NotLeader,
)
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.partition.sequencer import brief_producer_id, kept_producer_id
from log_tables.segments import producer_staging
from log_tables.segments.staging import StagedFile

NAME_MAX_BYTES = 1_000
"""The longest transactional id."""

SEQUENCES_KEPT = 1_000
"""The partitions whose sequences an id keeps from one transaction to the next."""

LOOK_S = 0.5
"""How often transactions that take too long are looked for."""

ASK_AFTER_S = 2.0
"""After which a group asks how a transaction has ended that nobody has told it of."""

EXPIRE_S = 60.0
"""How often ids that are not used are looked for."""

TELL = Backoff(0.05, max_s=5.0)
"""The pause between two attempts to tell a group how a transaction has ended."""

_log = logging.getLogger(__name__)


class ProducerCoordinator:
    """The transactional ids of a cluster. Used on the event loop.

    Its methods raise NotLeader while the coordinator of an id changes, and StoreUnavailable, OutcomeUnknown,
    Damaged; InvalidArgument for a name that no id can have.
    """

    def __init__(
        self,
        cluster: Cluster,
        shards: Shards,
        leadership: Leadership,
        peers: Peers,
        classic: ClassicCoordinator,
        transactions: TransactionCoordinator,
        settings: Settings,
        clock: Clock,
        failures: FailureLog,
    ) -> None:
        self._cluster, self._shards, self._leadership, self._peers = cluster, shards, leadership, peers
        self._classic, self._transactions = classic, transactions
        self._settings, self._clock = settings, clock
        self._finishing: dict[tuple[Shard, str], asyncio.Task[None]] = {}
        self._waiting: WeakKeyDictionary[Shard, dict[tuple[str, str], tuple[int, float]]] = (
            WeakKeyDictionary()
        )
        self._expiring: WeakKeyDictionary[Shard, float] = WeakKeyDictionary()
        self._tasks, self._failures = PendingTasks(), failures
        self._looking = PeriodicTask("transactional ids", LOOK_S, self._look, failures)
        shards.on_load(self._recover)

    @property
    def offsets(self) -> OffsetsTopic:
        """`__consumer_offsets`, whose partitions coordinate the ids."""
        return self._shards.offsets

    def start(self) -> None:
        """Begin to look for transactions that take too long."""
        self._looking.start()

    async def close(self) -> None:
        """Stop, and leave what is not applied to the next coordinator."""
        await self._looking.close()
        await self._tasks.cancel()

    async def partition_of(self, name: str) -> int:
        """The partition of `__consumer_offsets` that coordinates the id. Raises InvalidArgument."""
        if not 1 <= len(name.encode()) <= NAME_MAX_BYTES:
            raise InvalidArgument(
                f"the transactional id {name[:40]!r} cannot be used; use 1 to {NAME_MAX_BYTES} bytes"
            )
        return await self.offsets.partition_of_key(name)

    async def coordinator_of(self, name: str) -> BrokerRecord | None:
        """The gateway that coordinates an id, or is the one to begin it; None is this one."""
        partition, topic = await self.partition_of(name), await self.offsets.topic()
        if await self._leadership.should_lead(topic, partition):
            return None
        return await self._leadership.find_leader(topic, partition)

    async def begin(self, asked: InitProducer) -> Producer:
        """Begin with an id: older producers are fenced, an open transaction is aborted.

        Raises InvalidTransactionTimeout, ConcurrentTransactions, StaleProducerEpoch, UnknownProducer.
        """
        return _producer(await self.ask(await self.partition_of(asked.id), asked))

    async def add_partitions(self, asked: AddPartitions) -> None:
        """Add partitions to a transaction. Raises as `begin`."""
        await self.ask(await self.partition_of(asked.id), asked)

    async def add_offsets(self, asked: AddOffsets) -> int:
        """Add a group to a transaction. Returns its number. Raises as `begin`, InvalidTransactionState."""
        return _producer(await self.ask(await self.partition_of(asked.id), asked)).number

    async def commit_offsets(self, asked: AddOffsets, commit: CommitOffsets) -> Refused:
        """Have the offsets of a group wait for the end of a transaction; returns why some of them may not.
        Raises what `add_offsets` and `ClassicCoordinator.commit` raise.
        """
        number = await self.add_offsets(asked)
        return await self._classic.pend(asked.group, PendOffsets(asked.id, number, commit))

    async def end(self, asked: EndTransaction) -> Producer:
        """End a transaction: its records are in their partitions then, or will be. Raises as `begin`,
        InvalidTransactionState.
        """
        return _producer(await self.ask(await self.partition_of(asked.id), asked))

    async def ask(self, partition: int, request: Request) -> Answer:
        """What the leader of a partition of `__consumer_offsets` answers. Raises what it says."""
        topic = await self.offsets.topic()
        if await self._leadership.should_lead(topic, partition):
            return await self._answered(partition, request)
        broker = await self._leadership.find_leader(topic, partition)
        if broker is None:
            return await self._answered(partition, request)
        return decode_answer(await self._peers.ask_producers(broker, encode_request(partition, request)))

    async def answer(self, body: bytes) -> bytes:
        """The answer to a request that another gateway has forwarded: it goes no further."""
        try:
            partition, request = decode_request(body)
            await self._leadership.become_leader(await self.offsets.topic(), partition, forwarded=True)
            return encode_answer(await self._answered(partition, request))
        except LakelogError as error:
            return encode_answer(Failed(failure_of(error)))

    async def _answered(self, partition: int, request: Request) -> Answer:
        try:
            return await self._act(await self._shards.shard(partition), request)
        except NotLeader:
            return await self._act(await self._shards.shard(partition), request)

    async def _act(self, shard: Shard, request: Request) -> Answer:
        match request:
            case InitProducer():
                return await self._begin(shard, request)
            case AddPartitions():
                transaction = self._open(shard, request.id, request.producer_id, request.epoch)
                transaction.partitions.update(request.partitions)
                return Done()
            case AddOffsets():
                return await self._add_offsets(shard, request)
            case EndTransaction():
                return await self._end(shard, request)
            case Admit():
                return Outcomes(tuple(self._admitted(shard, each) for each in request.batches))
            case Staged():
                return await self._note_staged(shard, request)
            case AskOutcome():
                return self._outcome(shard, request)

    async def _begin(self, shard: Shard, asked: InitProducer) -> Producer:
        most = self._settings.transaction_max_timeout_ms
        if not 0 < asked.timeout_ms <= most:
            raise InvalidTransactionTimeout(
                f"transaction.timeout.ms={asked.timeout_ms} of the transactional id {asked.id[:100]!r}; use 1 "
                f"to {most}, or raise transaction_max_timeout_ms"
            )
        await self._finished(shard, asked.id)
        self._check_finished(shard, asked.id)
        before, transaction = shard.producers.get(asked.id), shard.open.find(asked.id)
        event = Begin(
            asked.timeout_ms,
            brief_producer_id(self._clock),
            self._clock.now_ms(),
            asked.producer_id,
            asked.epoch,
            transaction is not None or (before is not None and not shard.open.knows(asked.id)),
            self._telling(shard, asked.id),
            asked.principal,
        )
        after = begun(asked.id, before, event)
        if after is not before:
            self._set(shard, asked.id, after, ends=event.was_open)
        return await self._said(shard, asked.id, after)

    async def _add_offsets(self, shard: Shard, asked: AddOffsets) -> Producer:
        if asked.opens:
            transaction = self._open(shard, asked.id, asked.producer_id, asked.epoch)
        else:
            value = check(asked.id, shard.producers.get(asked.id), asked.producer_id, asked.epoch)
            found = shard.open.find(asked.id)
            if found is None or asked.group not in found.groups:
                raise InvalidTransactionState(
                    f"the group {asked.group!r} is in no open transaction of the transactional id "
                    f"{asked.id[:100]!r}; add its offsets first"
                )
            transaction = found
        transaction.groups.add(asked.group)
        value = shard.producers[asked.id]
        if asked.group not in value.groups:
            shard.set_producer(asked.id, _with_group(value, asked.group))
        await shard.wait_durable(shard.ids)
        return Producer(value.producer_id, value.epoch, transaction.number)

    async def _end(self, shard: Shard, asked: EndTransaction) -> Producer:
        if asked.commits:
            await self._shards.refresh_topics()
        await self._finished(shard, asked.id)
        before, transaction = shard.producers.get(asked.id), shard.open.find(asked.id)
        known = transaction is not None or shard.open.knows(asked.id)
        ids = shard.group(shard.ids)
        staged = _writable(transaction.staged(), ids) if transaction and asked.commits else ()
        event = End(
            asked.producer_id,
            asked.epoch,
            asked.commits,
            brief_producer_id(self._clock),
            self._clock.now_ms(),
            asked.moves_on,
            transaction is not None if known else None,
            self._telling(shard, asked.id),
            _sequences(transaction),
            ids.transactions.number + 1 if staged else 0,
        )
        after = ended(asked.id, before, event)
        if after is not before:
            self._check_finished(shard, asked.id)
            self._set(shard, asked.id, after, staged, ends=True)
        return await self._said(shard, asked.id, after)

    async def _said(self, shard: Shard, name: str, value: ProducerValue) -> Producer:
        """The answer that an id is `value`, once that is durable, and what has ended has taken effect."""
        shard.open.note(name)
        await shard.wait_durable(shard.ids)
        await self._finished(shard, name)
        return Producer(value.producer_id, value.epoch)

    def _set(
        self,
        shard: Shard,
        name: str,
        value: ProducerValue,
        staged: tuple[StagedFile, ...] = (),
        ends: bool = False,
    ) -> None:
        """Set the record of an id, with the commit of what is `staged`; have it applied once it is durable."""
        event = None
        if staged:
            producer_id, now_ms = kept_producer_id(self._clock), self._clock.now_ms()
            event = Transact(offsets={}, staged=staged, producer_id=producer_id, at_ms=now_ms)
        shard.set_producer(name, value, event)
        if ends:
            self._start_finish(shard, name, value, shard.open.end(name, staged))

    def _start_finish(self, shard: Shard, name: str, value: ProducerValue, unused: list[str]) -> None:
        task = self._tasks.start(self._finish(shard, name, value, unused))
        task.add_done_callback(retrieve)
        self._finishing[shard, name] = task
        task.add_done_callback(lambda _: self._finishing.pop((shard, name), None))

    async def _finish(self, shard: Shard, name: str, value: ProducerValue, unused: list[str]) -> None:
        """Have the end of a transaction take effect, once it is durable."""
        await shard.wait_durable(shard.ids)
        if unused:
            # Not before: a coordinator that does not know of the end must find them.
            self._tasks.start(self._delete(unused))
        results = [self._tell(shard, name, value, group) for group in value.telling]
        if value.committed and value.intent:
            results.append(self._applied(shard, value.intent))
        await asyncio.gather(*results)

    async def _applied(self, shard: Shard, number: int) -> None:
        pending = self._transactions.apply_durable(shard, shard.ids, number)
        if pending is not None:
            with suppress(Damaged):  # it is said where it is found; later transactions go on
                await pending.placed()

    async def _tell(self, shard: Shard, name: str, value: ProducerValue, group: str) -> None:
        """Tell a group how a transaction has ended, until it knows."""
        pause_s = TELL.first_s
        while shard.leading:
            try:
                event = EndPending(name, value.number, value.committed, self._clock.now_ms())
                await self._classic.end_pending(group, event)
                return
            except LakelogError as error:
                _log.debug("the group %r cannot be told of a transaction yet: %s", group, error)
            await asyncio.sleep(pause_s)
            pause_s = TELL.after(pause_s)

    async def _finished(self, shard: Shard, name: str) -> None:
        """Wait until the last transaction of an id has taken effect, for APPLY_WAIT_S at most."""
        task = self._finishing.get((shard, name))
        if task is not None:
            await asyncio.wait((task,), timeout=APPLY_WAIT_S)

    def _check_finished(self, shard: Shard, name: str) -> None:
        if (shard, name) in self._finishing:
            raise ConcurrentTransactions(
                f"the last transaction of the transactional id {name[:100]!r} is being applied; repeat the "
                "request"
            )

    def _open(self, shard: Shard, name: str, producer_id: int, epoch: int) -> OpenTransaction:
        """The open transaction of an id, which begins now if none is open."""
        value = check(name, shard.producers.get(name), producer_id, epoch)
        self._check_finished(shard, name)
        return shard.open.begin(name, value, self._clock.monotonic())

    def _admitted(self, shard: Shard, batch: Batch) -> int | Failure:
        try:
            if batch.opens:
                transaction: OpenTransaction | None = self._open(
                    shard, batch.id, batch.producer_id, batch.epoch
                )
            else:
                check(batch.id, shard.producers.get(batch.id), batch.producer_id, batch.epoch)
                transaction = shard.open.find(batch.id)
            if shard.open.is_repeat(batch.id, batch.at, batch.sequence):
                return 0
            if transaction is None or (not batch.opens and batch.at not in transaction.partitions):
                raise InvalidTransactionState(
                    f"{batch.at} is in no open transaction of the transactional id {batch.id[:100]!r}; add it "
                    "first, or abort the transaction"
                )
            return transaction.number
        except LakelogError as error:
            return failure_of(error)

    async def _note_staged(self, shard: Shard, request: Staged) -> Outcomes:
        """Note what is staged, if nobody has taken over before: whoever does later finds the file."""
        await asyncio.to_thread(shard.refresh, True)
        shard.check_leading()
        file = request.file
        errors = [shard.open.add(entry.id, file.path, entry) for entry in file.runs]
        if not shard.open.uses(file.path):
            self._tasks.start(self._delete([file.path]))
        return Outcomes(tuple(0 if error is None else failure_of(error) for error in errors))

    def _outcome(self, shard: Shard, asked: AskOutcome) -> Ended:
        """A group asks for whose offsets nobody has told it the end of a transaction."""
        value = shard.producers.get(asked.id)
        if value is None or asked.number < value.number:
            return Ended(False)
        if asked.number == value.number:
            return Ended(value.committed)
        shard.open.begin(asked.id, value, self._clock.monotonic())  # which ends in time
        return Ended(None)

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
        """Have what an earlier coordinator has committed take effect, and take up the time of what is open."""
        shard = self._shards.get(partition)
        if shard is None:
            return
        pending = shard.group(shard.ids).transactions.pending
        for name, value in shard.producers.items():
            if value.telling or value.intent in pending:
                self._start_finish(shard, name, value, [])

    async def _look(self) -> None:
        """Abort what takes too long, and forget ids that are not used."""
        for shard in [*self._shards]:
            if shard.leading:
                with suppress(NotLeader):
                    self._abort_late(shard)
                    self._expire(shard)
                with self._failures.catch("transactional ids", f"{CONSUMER_OFFSETS}-{shard.partition}"):
                    await self._ask_for_ends(shard)

    def _abort_late(self, shard: Shard) -> None:
        now = self._clock.monotonic()
        for name, transaction in shard.open.items():
            value = shard.producers[name]
            if now < transaction.began_s + value.timeout_ms / 1_000 or (shard, name) in self._finishing:
                continue
            _log.warning("the transaction of the transactional id %.100r took too long: it is aborted", name)
            new_id, telling = brief_producer_id(self._clock), self._telling(shard, name)
            self._set(shard, name, fenced(value, new_id, self._clock.now_ms(), telling), ends=True)
            shard.open.note(name)

    async def _ask_for_ends(self, shard: Shard) -> None:
        """Ask how transactions have ended of which groups were not told: their coordinator is another one
        by now, which may not know of these groups.
        """
        now = self._clock.monotonic()
        waiting = {
            (group_id, name): value.number
            for group_id in shard.unstable
            for name, value in shard.group(group_id).unstable.items()
        }
        known = self._waiting.get(shard, {})
        self._waiting[shard] = {
            key: known[key] if key in known and known[key][0] == number else (number, now)
            for key, number in waiting.items()
        }
        for (group_id, name), (number, since) in [*self._waiting[shard].items()]:
            if now >= since + ASK_AFTER_S:
                self._waiting[shard][group_id, name] = number, now
                answer = await self.ask(await self.partition_of(name), AskOutcome(name, number))
                if isinstance(answer, Ended) and answer.committed is not None:
                    event = EndPending(name, number, answer.committed, self._clock.now_ms())
                    await self._classic.end_pending(group_id, event)

    def _expire(self, shard: Shard) -> None:
        now = self._clock.monotonic()
        if now < self._expiring.get(shard, 0.0):
            return
        self._expiring[shard] = now + EXPIRE_S
        before_ms = self._clock.now_ms() - self._settings.transactional_id_expiration_ms
        for name, value in [*shard.producers.items()]:
            idle = shard.open.find(name) is None and (shard, name) not in self._finishing
            if idle and value.changed_ms < before_ms:
                shard.set_producer(name, None)
                shard.open.forget(name)

    async def _delete(self, paths: list[str]) -> None:
        with suppress(LakelogError):  # a vacuum deletes those that remain
            await asyncio.to_thread(producer_staging.delete, self._cluster.store, paths)


def _producer(answer: Answer) -> Producer:
    assert isinstance(answer, Producer)
    return answer


def _writable(staged: Iterable[StagedFile], ids: Group) -> tuple[StagedFile, ...]:
    """`staged` without what was for topics that are gone."""
    found = []
    for file in staged:
        known = [(run, ids.topics.get(run.topic)) for run in file.runs]
        runs = tuple(run for run, topic in known if topic is not None and topic.topic_id == run.topic_id)
        if runs:
            found.append(StagedFile(file.path, runs))
    return tuple(found)


def _with_group(value: ProducerValue, group: str) -> ProducerValue:
    return msgspec.structs.replace(value, groups=(*value.groups, group))


def _sequences(transaction: OpenTransaction | None) -> tuple[tuple[str, int, int], ...]:
    if transaction is None:
        return ()
    kept = [*transaction.sequences.items()][-SEQUENCES_KEPT:]
    return tuple((topic_id, partition, sequence) for (topic_id, partition), sequence in kept)
