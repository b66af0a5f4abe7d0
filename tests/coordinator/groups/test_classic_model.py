"""A classic group driven by anything, in any order: what `ClassicLife` checks after every step always holds.

Clients join, assign late or never, commit, leave, die and come back as twins; coordinators die with the steps
that nobody has heard of.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.kit.classic_life import PROTOCOLS, REBALANCE_MS, SESSION_MS, TICK_MS, ClassicLife, Client
from tests.kit.models import short_form

CLIENTS = 5

who = st.integers(0, CLIENTS - 1)
lost = st.sampled_from([False, False, False, True])


class Machine(RuleBasedStateMachine):
    """The clients of a group, and time."""

    def __init__(self) -> None:
        super().__init__()
        self.life = ClassicLife(CLIENTS)

    def _client(self, number: int) -> Client:
        return self.life.clients[number]

    @initialize(settled=st.booleans())
    def start(self, settled: bool) -> None:
        if settled:
            self.life.settle()

    @rule(numbers=st.lists(who, min_size=1, max_size=3 * CLIENTS), lost=lost)
    def behave(self, numbers: list[int], lost: bool) -> None:
        for number in numbers:
            self.life.behave(self._client(number), lost and number == numbers[-1])

    @rule(number=who, ms=st.sampled_from([SESSION_MS, REBALANCE_MS]))
    def all_but_one_behave(self, number: int, ms: int) -> None:
        """Let all clients but one do as they should: that one is slow, or dead."""
        for _ in range(ms // TICK_MS):
            for client in self.life.clients:
                if client is not self._client(number):
                    self.life.behave(client)
            self.life.pass_ms(TICK_MS)

    @rule(number=who)
    def come_back(self, number: int) -> None:
        """A client is started again, and joins."""
        self.life.restart(self._client(number))
        self.life.behave(self._client(number))

    @rule(number=who, lost=lost)
    def join(self, number: int, lost: bool) -> None:
        self.life.join(self._client(number), lost)

    @rule(lost=lost)
    def everybody_joins(self, lost: bool) -> None:
        """A member that is new is asked twice."""
        for client in [*self.life.clients, *self.life.clients]:
            self.life.join(client, lost)

    @rule(number=who, lost=lost)
    def sync(self, number: int, lost: bool) -> None:
        self.life.sync(self._client(number), lost)

    @rule(lost=lost)
    def everybody_syncs(self, lost: bool) -> None:
        for client in self.life.clients:
            self.life.sync(client, lost)

    @rule(number=who)
    def heartbeat(self, number: int) -> None:
        self.life.heartbeat(self._client(number))

    @rule(number=who, lost=lost)
    def commit(self, number: int, lost: bool) -> None:
        self.life.commit(self._client(number), lost)

    @rule(lost=lost)
    def everybody_commits(self, lost: bool) -> None:
        for client in self.life.clients:
            self.life.commit(client, lost)

    @rule(number=who, generation=st.integers(0, 8))
    def zombie_commits(self, number: int, generation: int) -> None:
        self.life.zombie_commits(self._client(number), generation)

    @rule(number=who, lost=lost)
    def leave(self, number: int, lost: bool) -> None:
        self.life.leave(self._client(number), lost)

    @rule(number=who)
    def restart(self, number: int) -> None:
        self.life.restart(self._client(number))

    @rule(number=who, protocols=st.sampled_from([*PROTOCOLS]))
    def change_protocols(self, number: int, protocols: str) -> None:
        self._client(number).protocols = protocols

    @rule(ms=st.sampled_from([TICK_MS, SESSION_MS, REBALANCE_MS]))
    def pass_time(self, ms: int) -> None:
        self.life.pass_ms(ms)

    @rule()
    def take_over(self) -> None:
        self.life.take_over()

    @rule()
    def settle(self) -> None:
        self.life.settle()


def test_a_classic_group_keeps_the_rules_whatever_happens() -> None:
    run_state_machine_as_test(Machine, settings=short_form(100, 50))


@pytest.mark.torture
def test_a_classic_group_keeps_the_rules_whatever_happens_for_long() -> None:
    run_state_machine_as_test(Machine, settings=settings(max_examples=2_000, stateful_step_count=80))
