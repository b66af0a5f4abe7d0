"""Every committed transaction comes to each partition once and in order, whatever fails or dies meanwhile."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from coordinator.groups.transactions.append_events import AppendFailed
from log_tables.clock import ManualClock
from log_tables.limits import PRODUCER_EPOCH_MAX
from tests.kit.applied_transactions import PARTITIONS, TOPICS, Gateway, World
from tests.kit.models import short_form

T = TypeVar("T")

ANY = st.integers(0, 1_000)
RUNS = st.lists(
    st.tuples(st.sampled_from(TOPICS), st.integers(0, PARTITIONS - 1), st.integers(1, 3), st.integers(1, 2)),
    min_size=1,
    max_size=3,
)


def _busy(machine: "Machine") -> bool:
    return any(queue.appends for gateway in machine.world.gateways for queue in gateway.queues.values())


def _sent(machine: "Machine") -> bool:
    return bool(machine.world.network)


def _under_way(machine: "Machine") -> bool:
    return any(log.under_way for log in machine.world.logs.values())


def _has_zombies(machine: "Machine") -> bool:
    return len(machine.world.gateways) > 1


class Machine(RuleBasedStateMachine):
    """A group's transactions, the gateways that apply them, and all that happens to both."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @initialize(
        number=st.sampled_from([0, PRODUCER_EPOCH_MAX - 2]),
        batch_bytes=st.sampled_from([1, 200, 10_000]),
        transactions=st.lists(st.lists(RUNS, min_size=1, max_size=2), min_size=1, max_size=4),
    )
    def begin(
        self, number: int, batch_bytes: int, transactions: list[list[list[tuple[str, int, int, int]]]]
    ) -> None:
        self.world = World(number)
        self.world.batch_bytes = batch_bytes
        for files in transactions:
            self.world.transact(files)
        self.world.hear()

    def _gateway(self, which: int) -> Gateway:
        """The leader, or now and then one that has lost the group and does not know."""
        gateways = self.world.gateways
        return gateways[-1] if which % 3 else gateways[which % len(gateways)]

    @rule(files=st.lists(RUNS, min_size=1, max_size=2), heard=st.sampled_from([True, True, True, False]))
    def transact(self, files: list[list[tuple[str, int, int, int]]], heard: bool) -> None:
        self.world.transact(files)
        if heard:
            self.world.hear()

    @rule()
    def hear(self) -> None:
        self.world.hear()

    @rule(gateway=ANY, times=st.integers(1, 9))
    def go_on(self, gateway: int, times: int) -> None:
        """For a while nothing fails."""
        for _ in range(times):
            self.act(gateway, 1)
            self.deliver_all()
            self.commit_all()

    @precondition(_busy)
    @rule(gateway=ANY, times=st.integers(1, 4))
    def act(self, gateway: int, times: int) -> None:
        chosen = self._gateway(gateway)
        for _ in range(times):
            for at in [*chosen.queues]:
                chosen.act(at)

    @precondition(_busy)
    @rule(gateway=ANY, which=ANY)
    def act_for_one(self, gateway: int, which: int) -> None:
        chosen = self._gateway(gateway)
        if chosen.queues:
            chosen.act([*chosen.queues][which % len(chosen.queues)])

    @precondition(_busy)
    @rule(gateway=ANY, which=ANY)
    def fail(self, gateway: int, which: int) -> None:
        """Answer the pending command of one queue with an error."""
        chosen = self._gateway(gateway)
        busy = [at for at, queue in chosen.queues.items() if queue.command is not None]
        if busy:
            at = busy[which % len(busy)]
            if at in chosen.sent:
                self.world.lose_answer(chosen.sent[at])
            else:
                chosen.happen(at, AppendFailed())

    @precondition(_sent)
    @rule(which=ANY)
    def deliver(self, which: int) -> None:
        self.world.deliver(self.world.network[which % len(self.world.network)])

    @precondition(_sent)
    @rule()
    def deliver_all(self) -> None:
        for message in [*self.world.network]:
            self.world.deliver(message)

    @precondition(_under_way)
    @rule(which=ANY, limit=st.none() | st.integers(0, 3))
    def commit(self, which: int, limit: int | None) -> None:
        busy = [at for at, log in self.world.logs.items() if log.under_way]
        self.world.logs[busy[which % len(busy)]].commit(limit)

    @precondition(_under_way)
    @rule()
    def commit_all(self) -> None:
        for log in self.world.logs.values():
            log.commit()

    @rule()
    def mark(self) -> None:
        self.world.mark()

    @rule(lost=st.integers(0, 3))
    def die(self, lost: int) -> None:
        self.world.gateways.pop().leave()
        self.world.replace_leader(lost)

    @rule(lost=st.integers(0, 3))
    def hand_over(self, lost: int) -> None:
        self.world.replace_leader(lost)

    @precondition(_has_zombies)
    @rule(which=ANY)
    def hear_of_the_next_leader(self, which: int) -> None:
        self.world.gateways.pop(which % (len(self.world.gateways) - 1)).leave()

    @precondition(_busy)
    @rule(name=st.sampled_from(TOPICS))
    def delete_topic(self, name: str) -> None:
        self.world.delete_topic(name)

    @precondition(_busy)
    @rule(which=ANY)
    def lose_file(self, which: int) -> None:
        files = [file.path for intent in self.world.transactions.pending.values() for file in intent.staged]
        if files:
            self.world.lose_file(files[which % len(files)])

    @precondition(_busy)
    @rule(gateway=ANY)
    def give_up(self, gateway: int) -> None:
        """A client deletes the group by force."""
        self._gateway(gateway).give_up()

    @invariant()
    def partitions_are_as_they_should_be(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        self.world.finish()


def test_each_transaction_is_applied_once_and_in_order_whatever_happens() -> None:
    run_state_machine_as_test(Machine, settings=short_form(100, 50))


@pytest.mark.torture
def test_each_transaction_is_applied_once_and_in_order_whatever_happens_for_long() -> None:
    run_state_machine_as_test(Machine, settings=settings(max_examples=1_000, stateful_step_count=80))


class Simulation:
    """A long random run of the Machine, in which most steps succeed."""

    def __init__(self, seed: int) -> None:
        self._draw = ManualClock(seed=seed)
        self._machine = machine = Machine()
        machine.begin(self._one((0, PRODUCER_EPOCH_MAX - 20)), self._one((1, 200, 10_000)), [])
        self.seen, one = machine.world.seen, self._any
        weights: dict[Callable[[], object], int] = {
            self._transact: 100,
            lambda: machine.act(one(), 1): 300,
            lambda: machine.act_for_one(one(), one()): 200,
            machine.deliver_all: 150,
            machine.commit_all: 150,
            machine.mark: 80,
            machine.hear: 80,
            lambda: _sent(machine) and machine.deliver(one()): 80,
            lambda: _under_way(machine) and machine.commit(one(), one() % 4): 40,
            lambda: _busy(machine) and machine.fail(one(), one()): 40,
            lambda: machine.die(one() % 4): 5,
            lambda: machine.hand_over(one() % 4): 15,
            lambda: _has_zombies(machine) and machine.hear_of_the_next_leader(one()): 15,
            lambda: machine.delete_topic(self._one(TOPICS)): 2,
            lambda: machine.lose_file(one()): 4,
            lambda: machine.give_up(one()): 30,
        }
        self._moves = [move for move, weight in weights.items() for _ in range(weight)]

    def run(self, steps: int) -> None:
        """Take so many random steps, then end the machine."""
        for _ in range(steps):
            self._one(self._moves)()
            self._machine.partitions_are_as_they_should_be()
        self._machine.teardown()

    def _transact(self) -> None:
        if len(self._machine.world.transactions.pending) < 6:
            runs = [
                (self._one(TOPICS), self._any() % PARTITIONS, 1 + self._any() % 3, 1 + self._any() % 2)
                for _ in range(1 + self._any() % 2)
            ]
            self._machine.transact([runs], bool(self._any() % 4))

    def _any(self) -> int:
        return int(self._draw.random() * 1_000)

    def _one(self, among: Sequence[T]) -> T:
        return among[int(self._draw.random() * len(among))]


def _simulate(seed: int, steps: int) -> Counter[str]:
    simulation = Simulation(seed)
    simulation.run(steps)
    return simulation.seen


def test_long_lives_of_a_group_apply_each_transaction_once(seed: int) -> None:
    seen = sum((_simulate(seed + number, 2_000) for number in range(2)), Counter[str]())
    for what in (
        "Appended",
        "NotLeader",
        "OutcomeUnknown",
        "StaleProducerEpoch",
        "file lost",
        "given up",
        "long durable",
        "repeated",
        "topic gone",
    ):
        assert seen[what], f"the simulation did not do enough: {seen}"


@pytest.mark.torture
def test_long_lives_of_a_group_apply_each_transaction_once_for_long(seed: int) -> None:
    for number in range(40):
        _simulate(seed + number, 3_000)
