"""Gateways that apply one group's transactions, over a network that delays and partitions that fail.

Gateways are their append queues, and the staged files that these read. What a gateway sends is a message,
which may arrive late, after its sender is dead or has lost the group. What arrived is durable or void later.
"""

from collections import Counter
from collections.abc import Sequence

from coordinator.groups.events import Applied, Transact
from coordinator.groups.state import transaction_state
from coordinator.groups.state.group import Group
from coordinator.groups.state.group_records import restore
from coordinator.groups.state.transaction_state import TransactionState
from coordinator.groups.transactions.append_events import (
    Answered,
    Append,
    AppendFailed,
    Event,
    FetchProducer,
    FileLost,
    Finished,
    LeadershipLost,
    LossGivenUp,
    LossNoted,
    PartitionAppend,
    ProducerSeen,
    Queued,
    Tick,
    TopicGone,
    Wait,
    appends_of,
)
from coordinator.groups.transactions.append_queue import AppendQueue, step
from coordinator.groups.transactions.applier import StagedReader
from ingest.writer import Appended, AppendOutcome
from log_tables.clock import ManualClock
from log_tables.cluster.group_log import IntentKey, Records, TransactionsKey, TransactionsValue
from log_tables.errors import CorruptSegment, NotLeader, OutcomeUnknown
from log_tables.limits import KEPT_PRODUCER_ID_MIN
from log_tables.record import Record, input_batch
from log_tables.segments import staging
from log_tables.segments.staging import PartitionRecords, StagedFile
from log_tables.store.store import open_store
from log_tables.topic_partition import TopicIdPartition
from tests.kit.append_log import Log, Message, answer

PRODUCER = KEPT_PRODUCER_ID_MIN + 7
TOPICS = ("a", "b")
PARTITIONS = 2
BATCH_BYTES = 1
"""Each read ends after one request, unless the model says otherwise."""

Values = dict[TopicIdPartition, list[bytes]]


class Gateway:
    """The append queues of a gateway that coordinates the group, or believes so."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.queues: dict[TopicIdPartition, AppendQueue] = {}
        self.reader: dict[TopicIdPartition, StagedReader] = {}
        self.finished: dict[int, dict[TopicIdPartition, Finished]] = {}
        self.begun: set[int] = set()
        self.sent: dict[TopicIdPartition, Message] = {}
        self.forced: set[TopicIdPartition] = set()

    @property
    def leads(self) -> bool:
        """Whether no newer gateway has taken over."""
        return self is self._world.gateways[-1]

    def happen(self, at: TopicIdPartition, event: Event) -> None:
        """The next event of the queue of a partition."""
        if isinstance(event, FileLost):
            assert self._world.lost & {staged.path for staged, _ in self.queues[at].appends[0].runs}
        queue, reports = step(self.queues.get(at, AppendQueue()), event)
        self.queues[at] = queue
        self._world.note(event, queue)
        for report in reports:
            if isinstance(report, Finished):
                self.finished[report.append.number][at] = report
                if report.append.given_up:
                    assert at in self.forced
                    self._world.seen["given up"] += 1
                    self._world.given_up.add((report.append.number, at))
            if isinstance(report, LossNoted) and report.loss is not None:
                assert isinstance(report.loss, CorruptSegment)
        assert (queue.command is None) == (not queue.appends)
        assert not queue.appends or not queue.appends[0].whole
        numbers = [append.number for append in queue.appends]
        assert numbers == sorted(set(numbers))

    def give_up(self) -> None:
        """A client deletes the group by force: where something is lost, it is not waited for."""
        self.forced = {at for at, queue in self.queues.items() if queue.loss is not None}
        for at in self.forced:
            self.happen(at, LossGivenUp())

    def apply_up_to(self, number: int, transactions: TransactionState) -> None:
        """Begin with the transactions that are durable."""
        for pending, intent in transactions.pending.items():
            if pending <= number and pending not in self.begun:
                self.begun.add(pending)
                self.finished[pending] = {}
                for at, append in appends_of(pending, intent).items():
                    self.happen(at, Queued(append))

    def act(self, at: TopicIdPartition) -> bool:
        """Do the command of a queue, or begin to; returns whether there is one."""
        queue = self.queues.get(at, AppendQueue())
        match queue.command:
            case Wait():
                self.happen(at, Tick())
            case FetchProducer():
                self._fetch_producer(at, queue.command.producer_id)
            case Append() if at not in self.sent:
                self._append(at, queue.appends)
            case _:
                return False
        return True

    def _fetch_producer(self, at: TopicIdPartition, producer_id: int) -> None:
        log = self._world.logs.get(at)
        if log is None:
            self.happen(at, TopicGone())
        elif not self.leads:
            self.happen(at, AppendFailed())  # it asks its shard
        else:
            newest = self._world.transactions.newest_epoch(producer_id)
            self.happen(at, ProducerSeen(log.producers.get(producer_id), newest))

    def _append(self, at: TopicIdPartition, appends: Sequence[PartitionAppend]) -> None:
        if at not in self._world.logs:
            self.happen(at, TopicGone())
            return
        if at not in self.reader:
            self.reader[at] = StagedReader(self._world.store, self._world.batch_bytes)
        try:
            requests = self.reader[at].read(appends)
        except CorruptSegment as error:
            # Is the file gone because the next leader has applied the transaction? The shard knows.
            self.happen(at, FileLost(error) if self.leads else AppendFailed())
            return
        self.sent[at] = message = Message(at, requests, self._hear)
        self._world.network.append(message)

    def _hear(self, message: Message, outcomes: Sequence[AppendOutcome]) -> None:
        del self.sent[message.at]
        message.waiting = None
        self.happen(message.at, Answered(outcomes))

    def leave(self) -> None:
        """Lose the group, or die: nobody waits for the gateway's messages, but they still arrive."""
        for message in self.sent.values():
            message.waiting = None
        self.sent.clear()
        for at in self.queues:
            self.happen(at, LeadershipLost())
            assert self.queues[at] == AppendQueue()


class World:
    """A group's log, its transactions, the gateways that apply them (the last one leads), the partitions."""

    def __init__(self, number: int = 0) -> None:
        """The next transaction is that after `number`."""
        self.store, self._clock = open_store("memory://"), ManualClock()
        self.batch_bytes = BATCH_BYTES
        self.topic_ids = {name: f"{name}-1" for name in TOPICS}
        self.logs = {at: Log() for name in TOPICS for at in self.partitions(name)}
        self.network: list[Message] = []
        self.decided: dict[int, Values] = {}
        self.given_up: set[tuple[int, TopicIdPartition]] = set()
        self.lost: set[str] = set()
        self.seen: Counter[str] = Counter()
        self._sent = 0
        self._contents: dict[str, Values] = {}
        self.durable: Records = [(TransactionsKey("g"), TransactionsValue(PRODUCER, number))]
        self.unheard: list[Records] = []
        self.transactions = self._restored()
        self.gateways = [Gateway(self)]

    def partitions(self, topic: str) -> list[TopicIdPartition]:
        """The partitions of the topic's present incarnation."""
        return [TopicIdPartition(topic, self.topic_ids[topic], n) for n in range(PARTITIONS)]

    def _restored(self) -> TransactionState:
        return restore(self.durable, 0).get("g", Group("g")).transactions

    # The group.

    def transact(self, files: Sequence[Sequence[tuple[str, int, int, int]]]) -> None:
        """Commit a transaction, which is not durable yet, of staged files: for each run of one its topic,
        partition, how many batches and how many records a batch.
        """
        self._sent += 1
        values: Values = {}
        staged = tuple(self._stage(runs, values) for runs in files)
        event = Transact(offsets={}, staged=staged, producer_id=PRODUCER + self._sent, at_ms=0)
        self.transactions, records = transaction_state.begin(self.transactions, "g", event)
        self.unheard.append(records)
        self._contents[staged[0].path] = values

    def _stage(self, runs: Sequence[tuple[str, int, int, int]], values: Values) -> StagedFile:
        parts: list[PartitionRecords] = []
        for name, number, batches, size in runs:
            at = self.partitions(name)[number]
            held = values.setdefault(at, [])
            made = []
            for _ in range(batches):
                new = [b"%d-%d" % (self._sent, len(held) + place) for place in range(size)]
                held += new
                made.append(input_batch([Record(value) for value in new], 0))
            parts.append(PartitionRecords(*at, made))
        return staging.stage(self.store, self._clock, "g", parts)

    def mark(self) -> None:
        """The leader marks what it has applied."""
        leader = self.gateways[-1]
        for number, ended in [*leader.finished.items()]:
            intent = self.transactions.pending.get(number)
            if intent is not None and ended.keys() == appends_of(number, intent).keys():
                placed = tuple(found for report in ended.values() for found in report.append.placed)
                lost = any(report.append.given_up for report in ended.values())
                self._check_placed(number, ended)
                applied = Applied(number, placed, lost)
                self.transactions, records = transaction_state.apply(self.transactions, "g", applied)
                self.unheard.append(records)
                del leader.finished[number]

    def _check_placed(self, number: int, ended: dict[TopicIdPartition, Finished]) -> None:
        for at, report in ended.items():
            log, wanted = self.logs.get(at), self.decided[number][at]
            if not report.dropped:
                assert sum(found.count for found in report.append.placed) == len(wanted)
            for found in report.append.placed if log is not None else ():
                here, wanted = wanted[: found.count], wanted[found.count :]
                if found.base_offset is not None:
                    assert log is not None
                    assert log.values[found.base_offset : found.base_offset + found.count] == here

    def hear(self) -> None:
        """The log of the group is durable: decided transactions begin, staged files of applied ones go."""
        before = self._restored().pending
        for records in self.unheard:
            self._decide(records)
        self.unheard = []
        for number in before.keys() - self.transactions.pending.keys():
            staging.delete(self.store, before[number].staged)
        self.gateways[-1].apply_up_to(self.transactions.number, self.transactions)

    def _decide(self, records: Records) -> None:
        self.durable += records
        for key, value in records:
            if isinstance(key, IntentKey) and value is not None:
                self.decided[key.number] = self._contents[value.staged[0].path]  # type: ignore[union-attr]

    def replace_leader(self, lost: int) -> None:
        """Let a new gateway lead. It reads the log, whose last `lost` appends were not durable. The old one
        does not yet know.
        """
        for records in self.unheard[: max(0, len(self.unheard) - lost)]:
            self._decide(records)
        self.unheard = []
        self.transactions = self._restored()
        self.gateways.append(Gateway(self))
        self.hear()

    def lose_file(self, path: str) -> None:
        """A staged file is deleted, as nobody should."""
        self.store.delete(path)
        self.lost.add(path)

    # The partitions.

    def deliver(self, message: Message) -> None:
        """Let a message arrive, maybe long after its sender has stopped waiting."""
        self.network.remove(message)
        if message.at in self.logs:
            self.logs[message.at].deliver(message)
        else:
            answer(message, [NotLeader("no such topic")] * len(message.requests))

    def lose_answer(self, message: Message) -> None:
        """Answer the sender with OutcomeUnknown, while its message still arrives."""
        answer(message, [OutcomeUnknown("no answer")] * len(message.requests))

    def delete_topic(self, name: str) -> None:
        """Delete the topic, and create another one of its name."""
        for at in self.partitions(name):
            self.logs[at].commit(limit=0)
            del self.logs[at]
        self.topic_ids[name] += "+"
        self.logs |= {at: Log() for at in self.partitions(name)}

    def note(self, event: Event, after: AppendQueue) -> None:
        """Count what happens, to see that enough does."""
        match event:
            case TopicGone():
                self.seen["topic gone"] += 1
            case FileLost():
                self.seen["file lost"] += 1
            case ProducerSeen():
                self.seen["not durable" if isinstance(after.command, Wait) else "long durable"] += 1
            case Answered():
                for outcome in event.outcomes:
                    repeated = isinstance(outcome, Appended) and outcome.duplicate
                    self.seen["repeated" if repeated else type(outcome).__name__] += 1

    def check(self) -> None:
        """Each partition has the decided transactions in order, each once: whole, but for the last that is
        there and for what was given up; and nothing else.
        """
        for at, log in self.logs.items():
            rest = log.values
            for number, contents in sorted(self.decided.items()):
                wanted = contents.get(at, [])
                there = next((n for n, (a, b) in enumerate(zip(rest, wanted, strict=False)) if a != b), None)
                there = min(len(rest), len(wanted)) if there is None else there
                rest = rest[there:]
                assert there == len(wanted) or not rest or (number, at) in self.given_up
            assert rest == []

    def finish(self) -> None:
        """Deliver everything without failures, until each transaction ends: whole, unless it was given up."""
        for _ in range(1_000):
            self.hear()
            for message in [*self.network]:
                self.deliver(message)
            for log in self.logs.values():
                log.commit()
            leader = self.gateways[-1]
            if not [*map(leader.act, [*leader.queues])].count(True):
                self.mark()
                if not self.unheard:
                    break
            leader.give_up()
        else:
            raise AssertionError("it does not end")
        self.check()
        assert not self.transactions.pending
        for at, log in self.logs.items():
            wanted = [
                value
                for number, contents in sorted(self.decided.items())
                if (number, at) not in self.given_up
                for value in contents.get(at, [])
            ]
            given_up = {v for n, a in self.given_up if a == at for v in self.decided[n][at]}
            assert [value for value in log.values if value not in given_up] == wanted
