"""Transactions of Kafka's clients are all there or not at all, whatever dies, comes late or comes twice."""

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from log_tables.clock import ManualClock
from tests.kit.models import short_form
from tests.kit.producers_checks import check_outcomes
from tests.kit.producers_clients import TIMEOUT_MS, Client, Shared, Transaction
from tests.kit.producers_world import PARTITIONS, Node, World

ANY = st.integers(0, 1_000)
IDS = st.sampled_from(["x", "y"])
BATCHES = st.lists(st.tuples(st.integers(0, PARTITIONS - 1), st.integers(1, 3)), min_size=1, max_size=3)
KINDS = ("produce", "produce", "offset", "commit", "commit", "abort")


class Machine(RuleBasedStateMachine):
    """Clients of two transactional ids, the gateways that coordinate them, and all that happens to both."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.shared = Shared(self.world)
        self.clients: list[Client] = []

    @initialize(moves_on=st.booleans())
    def begin(self, moves_on: bool) -> None:
        for name in ("x", "y"):
            self.clients.append(Client(self.shared, name, moves_on))

    def _node(self, which: int) -> Node:
        nodes = self.world.nodes
        return nodes[-1] if which % 4 else nodes[which // 4 % len(nodes)]

    def _client(self, which: int) -> Client | None:
        alive = [client for client in self.clients if not client.dead]
        return alive[which % len(alive)] if alive else None

    @rule(name=IDS, moves_on=st.booleans())
    def new_client(self, name: str, moves_on: bool) -> None:
        """Another one takes the id; the last one may still be there."""
        if len(self.clients) < 8:
            self.clients.append(Client(self.shared, name, moves_on))

    @rule(which=ANY, kind=st.sampled_from(KINDS), batches=BATCHES)
    def wish(self, which: int, kind: str, batches: list[tuple[int, int]]) -> None:
        client = self._client(which)
        if client is None or any(op[0] in ("end", "init") for op in client.todo) or len(client.todo) > 3:
            return
        if kind == "produce":
            client.produce(batches)
        elif kind == "offset" and not any(op[0] in ("group", "pend") for op in client.todo):
            client.commit_offset()
        elif client.transaction is not None and kind in ("commit", "abort"):
            client.end(kind == "commit")

    @rule(which=ANY, node=ANY, some=ANY, times=st.integers(0, 40))
    def act(self, which: int, node: int, some: int, times: int) -> None:
        client = self._client(which)
        if client is not None and client.todo and not client.waits:
            chosen = self._node(node)
            client.act(chosen, some)
            chosen.go_on(times)
        self._hear()

    @rule(which=ANY, times=st.integers(1, 8))
    def act_well(self, which: int, times: int) -> None:
        """For a while nothing fails."""
        client = self._client(which)
        for _ in range(times):
            if client is None or client.dead or not client.todo:
                return
            if not client.waits:
                client.act(self.world.nodes[-1], 5)
            self.world.nodes[-1].go_on(200)
            self._hear()

    @rule(node=ANY, which=ANY, times=st.integers(1, 30))
    def go_on(self, node: int, which: int, times: int) -> None:
        self._node(node).go_on(times, which)
        self._hear()

    @rule(which=ANY)
    def give_up(self, which: int) -> None:
        """An answer is lost, or takes too long."""
        client = self._client(which)
        if client is not None and client.waits:
            client.give_up()

    @precondition(lambda self: self.shared.late)
    @rule(which=ANY, node=ANY, times=st.integers(0, 30))
    def come_late(self, which: int, node: int, times: int) -> None:
        late, chosen = self.shared.late, self._node(node)
        late[-1 - which % len(late)](chosen)
        chosen.go_on(times)
        self._hear()

    @rule(ms=st.sampled_from([100, 600, 3_000, TIMEOUT_MS + 1_000]))
    def pass_time(self, ms: int) -> None:
        if ms > TIMEOUT_MS:
            for client in self.clients:
                client.may_be_fenced = True
        self.world.advance(ms)

    @rule(done=st.integers(0, 5))
    def die(self, done: int) -> None:
        """The newest gateway dies."""
        self.world.nodes.pop().die(done)
        self._take_over()

    @rule()
    def come(self) -> None:
        """Another gateway comes, and the one before does not know."""
        if len(self.world.nodes) < 3:
            self._take_over()

    @rule(which=ANY, done=st.integers(0, 5))
    def hear_of_the_next_leader(self, which: int, done: int) -> None:
        """A zombie ends."""
        nodes = self.world.nodes
        if len(nodes) > 1:
            nodes.pop(which % (len(nodes) - 1)).die(done)

    def _take_over(self) -> None:
        self.world.nodes.append(Node(self.world))
        for client in self.clients:
            client.may_be_aborted = True

    def _hear(self) -> None:
        for client in self.clients:
            if not client.dead:
                client.hear()

    def teardown(self) -> None:
        try:
            self._finish()
        finally:
            self.world.end()

    def _finish(self) -> None:
        while len(self.world.nodes) > 1:
            self.world.nodes.pop(0).die()
        for client in self.clients:
            client.may_be_aborted = True  # the last one may be a zombie of one that has just died
            client.give_up()
            if client is self.shared.newest.get(client.name) and not client.dead:
                self._go_on_to_the_end(client)
        for name in ("x", "y"):
            client = Client(self.shared, name, True)
            self._go_on_to_the_end(client)
            assert not client.dead
        for _ in range(10):
            self.world.advance(500)
            self.world.nodes[-1].go_on(1_000)
        check_outcomes(self.world, self.shared.transactions)
        self._check_files()

    def _go_on_to_the_end(self, client: Client) -> None:
        if not any(op[0] in ("init", "end") for op in client.todo):
            client.produce([(0, 1), (1, 2)])
            client.end(True)
        elif client.producer == (-1, -1):
            self._drive(client)
            client.produce([(0, 1), (1, 2)])
            client.end(True)
        self._drive(client)

    def _drive(self, client: Client) -> None:
        node = self.world.nodes[-1]
        for _ in range(200):
            if client.dead or not client.todo:
                return
            if not client.waits:
                client.act(node, 5)
            node.go_on(1_000)
            client.hear()
            if client.todo:
                self.world.advance(100)
                node.go_on(1_000)
        raise AssertionError(f"{client.name} cannot go on: {client.todo}")

    def _check_files(self) -> None:
        self.world.nodes.pop().die()
        self.world.nodes.append(Node(self.world))
        for name in ("x", "y"):
            client = Client(self.shared, name, True)
            self._go_on_to_the_end(client)
        for _ in range(10):
            self.world.advance(500)
            self.world.nodes[-1].go_on(1_000)
        assert [*self.world.store.list("staging/")] == []


class Simulation:
    """A long random run of the Machine, in which most steps succeed."""

    def __init__(self, seed: int) -> None:
        self._draw, self._machine = ManualClock(seed=seed), Machine()
        machine, one, upto = self._machine, self._one, self._upto
        machine.begin(upto(0, 1) == 0)
        weights: dict[Callable[[], object], int] = {
            self._wish: 60,
            lambda: machine.act_well(one(), upto(1, 6)): 60,
            lambda: machine.act(one(), one(), one(), upto(0, 30)): 50,
            lambda: machine.go_on(one(), one(), upto(1, 30)): 40,
            lambda: machine.give_up(one()): 15,
            self._come_late: 20,
            lambda: machine.pass_time((100, 600, 3_000)[upto(0, 2)]): 10,
            lambda: machine.pass_time(TIMEOUT_MS + 1_000): 1,
            lambda: machine.die(upto(0, 5)): 4,
            machine.come: 5,
            lambda: machine.hear_of_the_next_leader(one(), upto(0, 5)): 4,
            lambda: machine.new_client("xy"[upto(0, 1)], upto(0, 1) == 0): 3,
        }
        self._acts = [act for act, weight in weights.items() for _ in range(weight)]

    def _upto(self, least: int, most: int) -> int:
        return least + int(self._draw.random() * (most + 1 - least))

    def _one(self) -> int:
        return self._upto(0, 999)

    def _wish(self) -> None:
        upto = self._upto
        batches = [(upto(0, PARTITIONS - 1), upto(1, 3)) for _ in range(upto(1, 3))]
        self._machine.wish(self._one(), KINDS[upto(0, len(KINDS) - 1)], batches)

    def _come_late(self) -> None:
        if self._machine.shared.late:
            self._machine.come_late(
                self._upto(0, 5 if self._upto(0, 1) else 999), self._one(), self._upto(0, 30)
            )

    def run(self, steps: int) -> list[Transaction]:
        for _ in range(steps):
            self._acts[self._upto(0, len(self._acts) - 1)]()
        self._machine.teardown()
        return self._machine.shared.transactions


def test_transactions_of_clients_are_whole_or_not_there_whatever_happens() -> None:
    run_state_machine_as_test(Machine, settings=short_form(15, 30))


def test_transactions_of_clients_are_whole_or_not_there_in_a_long_run() -> None:
    ends = [transaction.committed for seed in range(3) for transaction in Simulation(seed).run(150)]
    assert ends.count(True) > 10
    assert ends.count(False) > 2


@pytest.mark.torture
def test_transactions_of_clients_are_whole_or_not_there_whatever_happens_for_long() -> None:
    run_state_machine_as_test(Machine, settings=settings(max_examples=1_000, stateful_step_count=80))


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(0, 1_000, 50))
def test_transactions_of_clients_are_whole_or_not_there_in_many_long_runs(seed: int) -> None:
    for number in range(50):
        Simulation(seed + number).run(300)
