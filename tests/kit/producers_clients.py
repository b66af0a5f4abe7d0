"""Kafka's transactional producers as they behave towards the coordinator: one request at a time, sent again
until it is answered; and what a reader may find of their transactions.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from coordinator.groups.classic.events import CommitOffsets, PendOffsets
from coordinator.groups.events import OffsetAndMetadata
from coordinator.groups.producers.producer_wire import (
    AddOffsets,
    AddPartitions,
    Admit,
    Batch,
    EndTransaction,
    Failure,
    InitProducer,
    Staged,
)
from log_tables.errors import (
    ConcurrentTransactions,
    InvalidTransactionState,
    LakelogError,
    NotLeader,
    OutcomeUnknown,
    Retriable,
    StaleProducerEpoch,
    StoreUnavailable,
    UnknownProducer,
)
from log_tables.segments.producer_staging import ProducerFile, ProducerRecords, joined
from log_tables.topic_partition import TopicPartition
from tests.kit.producers_world import IN, Asked, Node, World, values_batch

TIMEOUT_MS = 20_000
FENCED = (StaleProducerEpoch, UnknownProducer)

RETRIABLE = (Retriable, NotLeader, StoreUnavailable, OutcomeUnknown, ConcurrentTransactions)

Late = Callable[[Node], Asked | None]
"""What a client has sent, and comes once more."""


@dataclass(eq=False)
class Sent:
    """Records for a partition, from `sequence` on."""

    partition: int
    sequence: int
    values: list[bytes]


@dataclass(eq=False)
class Transaction:
    """Records that a client has written, and what it knows of the end: None while it has not asked for one,
    or (with `asked`) was not answered.
    """

    owner: str
    written: dict[int, list[bytes]] = field(default_factory=dict)
    offset: int | None = None
    asked: bool | None = None
    committed: bool | None = None


@dataclass(eq=False)
class Shared:
    """Facts that all clients of a world know: their transactions in order, late messages, and who was fenced
    by whom.
    """

    world: World
    transactions: list[Transaction] = field(default_factory=list)
    late: list[Late] = field(default_factory=list)
    newest: dict[str, "Client"] = field(default_factory=dict)
    clients: list["Client"] = field(default_factory=list)
    count: int = 0

    def next(self) -> int:
        self.count += 1
        return self.count


class Client:
    """A producer with the transactional id `name`, of transaction version 2 if it `moves_on`."""

    def __init__(self, shared: Shared, name: str, moves_on: bool) -> None:
        self._shared, self.name, self.moves_on = shared, name, moves_on
        self.producer = (-1, -1)
        self.sequences: dict[int, int] = {}
        self.transaction: Transaction | None = None
        self._added: set[int] = set()
        self._grouped = False
        self.todo: list[tuple[Any, ...]] = [("init",)]
        self.dead = self.may_be_fenced = self.may_be_aborted = False
        self._asked: tuple[Asked, tuple[Any, ...], Node] | None = None
        shared.newest[name] = self
        shared.clients.append(self)

    @property
    def group(self) -> str:
        return f"group-{self.name}"

    @property
    def waits(self) -> bool:
        """Whether it waits for an answer."""
        return self._asked is not None

    def produce(self, batches: list[tuple[int, int]]) -> None:
        """Begin to write: for each partition, so many records."""
        transaction = self._begun()
        sent = []
        for partition, count in batches:
            values = [b"%d" % self._shared.next() for _ in range(count)]
            sent.append(Sent(partition, self.sequences.get(partition, 0), values))
            self.sequences[partition] = self.sequences.get(partition, 0) + count
            transaction.written.setdefault(partition, []).extend(values)
            if not self.moves_on and partition not in self._added:
                self.todo.append(("add", partition))
        self.todo.append(("admit", sent))

    def commit_offset(self) -> None:
        """Begin to commit the offset of a group."""
        self._begun().offset = self._shared.next()
        if not self.moves_on and not self._grouped:
            self.todo.append(("group", True))
        self.todo.append(("group", self.moves_on))

    def end(self, commits: bool) -> None:
        """Begin to end the transaction."""
        self.todo.append(("end", commits))

    def _begun(self) -> Transaction:
        if self.transaction is None:
            self.transaction = Transaction(self.name)
            self._shared.transactions.append(self.transaction)
        return self.transaction

    def act(self, node: Node, some: int) -> None:
        """Do what comes next, by `node`."""
        assert self.todo
        assert self._asked is None
        # Each gateway that is asked takes over, and knows nothing of what is not staged.
        self.may_be_aborted = self.may_be_aborted or len(self._shared.world.nodes) > 1
        match self.todo[0]:
            case ("put", sent, number):
                try:
                    self.todo[0] = ("staged", *self._put(sent, number))
                except LakelogError as error:
                    self._refused(error)
            case ("admit", sent):
                self._ask(node, self._admit(sent[: some % len(sent) + 1]), sent[: some % len(sent) + 1])
            case op:
                self._ask(node, self._request(op))

    def _ask(self, node: Node, late: Late, *more: Any) -> None:
        if self.todo[0][0] != "init" and not (self.todo[0][0] == "end" and not self.moves_on):
            self._shared.late.append(late)
        asked = late(node)
        assert asked is not None
        self._asked = asked, more, node

    def _request(self, op: tuple[Any, ...]) -> Late:
        place = self.name, *self.producer
        world, name, group = self._shared.world, self.name, self.group
        match op:
            case ("init",):
                for other in self._shared.clients:
                    other.may_be_fenced |= other.name == name and other is not self
                return lambda node: node.ask(InitProducer(name, TIMEOUT_MS, *place[1:], ""))
            case ("add", partition):
                return lambda node: node.ask(AddPartitions(*place, (world.at(partition),)))
            case ("staged", file, _):
                return lambda node: node.ask(Staged(file))
            case ("group", opens):
                return lambda node: node.ask(AddOffsets(*place, group, opens))
            case ("pend", number, offset):
                offsets = {TopicPartition(IN, 0): OffsetAndMetadata(offset)}
                commit = CommitOffsets(offsets=offsets, at_ms=world.clock.now_ms())
                event, transaction = PendOffsets(name, place[1], number, commit), self.transaction

                def pend(node: Node) -> Asked | None:
                    # Nothing orders the requests of one transaction: neither do they in Kafka.
                    if self.transaction is transaction and transaction and transaction.offset != offset:
                        return None
                    return node.begin(node.gateway.classic.pend(group, event))

                return pend
            case ("end", commits):
                assert self.transaction is not None
                self.transaction.asked = commits
                return lambda node: node.ask(EndTransaction(*place, commits, self.moves_on))
        raise AssertionError(op)

    def _admit(self, sent: list[Sent]) -> Late:
        batches = tuple(self._batch(each) for each in sent)
        return lambda node: node.ask(Admit(batches))

    def _batch(self, sent: Sent) -> Batch:
        at = self._shared.world.at(sent.partition)
        return Batch(self.name, *self.producer, sent.sequence, at, self.moves_on)

    def _put(self, sent: list[Sent], number: int) -> tuple[ProducerFile, list[list[Sent]]]:
        world, place = self._shared.world, (self.name, *self.producer, number)
        entries = [
            ProducerRecords(*place, each.sequence, world.at(each.partition), values_batch(each.values))
            for each in sent
        ]
        self._shared.late.append(lambda node: node.ask(Staged(world.stage(entries))))
        return world.stage(entries), [[sent[place] for place in run] for run in joined(entries)]

    def give_up(self) -> None:
        """Do not wait any longer: it is sent again. Before KIP-890 nothing tells an EndTxn that is done late
        from one of the next transaction: such a client waits while its gateway lives.
        """
        op = self.todo[0][0] if self.todo else ""
        if self._asked is not None and self._asked[2].alive:
            if op == "end" and not self.moves_on:
                return
            self.may_be_fenced = self.may_be_fenced or op == "init"  # by itself
        self._asked = None
        if self.todo and self.todo[0][0] in ("put", "staged"):
            self._again()

    def _again(self) -> None:
        op = self.todo[0]
        if op[0] in ("put", "staged"):
            sent = op[1] if op[0] == "put" else [each for run in op[2] for each in run]
            self._join(sent)

    def _join(self, sent: list[Sent]) -> None:
        """Send the records once more, with those behind them."""
        following = self.todo[1:]
        if following and following[0][0] == "admit":
            sent, following = [*sent, *following[0][1]], following[1:]
        self.todo = [("admit", sent), *following] if sent else following

    def hear(self) -> None:
        """Go on by the answer, if it is there."""
        if self._asked is None:
            return
        if self._asked[0].outcome is None:
            if not self._asked[2].alive:
                self.give_up()
            return
        (asked, more, _), self._asked = self._asked, None
        outcome = asked.outcome
        if isinstance(outcome, LakelogError):
            self._refused(outcome)
            return
        op, *_ = self.todo[0]
        if op == "admit":
            self._admitted(more[0], outcome.each)
        elif op == "staged":
            self._staged(self.todo[0][2], outcome.each)
        else:
            self._done(op, outcome)

    def _refused(self, error: LakelogError) -> None:
        if isinstance(error, FENCED):
            assert self.may_be_fenced, f"{self.name}: {error}"
            self.dead = True
        elif isinstance(error, InvalidTransactionState):
            self._aborts()
        elif not isinstance(error, RETRIABLE):
            raise AssertionError(f"{self.name} {self.todo[0][0]}: {error!r} {error}")
        else:
            self._again()

    def _aborts(self) -> None:
        assert self.todo[0][0] != "end", "the end of a transaction is refused"
        assert self.may_be_aborted or self.may_be_fenced, "a transaction is refused"
        self.todo = [("end", False), ("init",)]

    def _admitted(self, asked: list[Sent], numbers: tuple[int | Failure, ...]) -> None:
        sent = self.todo[0][1]
        for each, number in zip(asked, numbers, strict=True):
            if isinstance(number, Failure):
                self._refused(number.error())
                return
            if number == 0:
                sent.remove(each)
        kept = [(each, number) for each, number in zip(asked, numbers, strict=True) if number]
        if not kept:
            self._join([*sent])
            return
        following = [each for each in sent if each not in asked]
        rest = self.todo[1:]
        if following:
            rest = [("admit", following), *rest]
        self.todo = [("put", [each for each, _ in kept], kept[0][1]), *rest]

    def _staged(self, runs: list[list[Sent]], outcomes: tuple[int | Failure, ...]) -> None:
        left: list[Sent] = []
        for run, outcome in zip(runs, outcomes, strict=True):
            if isinstance(outcome, Failure):
                error = outcome.error()
                if not isinstance(error, RETRIABLE):
                    self._refused(error)
                    return
                left += run
        self._join(left)

    def _done(self, op: str, outcome: Any) -> None:
        done, self.todo = self.todo[0], self.todo[1:]
        transaction = self.transaction
        if op == "init":
            self.producer, self.sequences = (outcome.producer_id, outcome.epoch), {}
            self._fresh()
        elif op == "add":
            self._added.add(done[1])
        elif op == "group":
            self._grouped = True
            assert transaction is not None
            assert transaction.offset is not None
            if not (self.todo and self.todo[0][0] == "group"):
                self.todo.insert(0, ("pend", outcome.number, transaction.offset))
        elif op == "end":
            assert transaction is not None
            transaction.committed = done[1]
            if self.moves_on:
                self.producer, self.sequences = (outcome.producer_id, outcome.epoch), {}
            self._fresh()

    def _fresh(self) -> None:
        self.transaction, self._added, self._grouped = None, set(), False
        self.may_be_aborted = False
