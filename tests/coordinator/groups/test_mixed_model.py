"""A group of members of every kind, driven by anything, in any order.

What `MixedLife` checks after every step always holds, and in the end each partition is read once.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.kit.mixed_clients import Client, Fate, Kind
from tests.kit.mixed_life import REBALANCE_MS, SESSION_MS, TICK_MS, MixedLife
from tests.kit.models import short_form

CLIENTS = 5

who = st.integers(0, CLIENTS - 1)
fates = st.sampled_from([Fate.HEARD, Fate.HEARD, Fate.HEARD, Fate.UNHEARD, Fate.LOST])


class Machine(RuleBasedStateMachine):
    """The clients of a group, and time."""

    def __init__(self) -> None:
        super().__init__()
        self.life = MixedLife([])

    @initialize(
        kinds=st.lists(st.sampled_from(Kind), min_size=CLIENTS, max_size=CLIENTS),
        cooperative=st.booleans(),
        settled=st.booleans(),
    )
    def start(self, kinds: list[Kind], cooperative: bool, settled: bool) -> None:
        self.life = MixedLife(kinds, cooperative)
        if settled:
            self.life.settle()

    def _client(self, number: int) -> Client:
        return self.life.clients[number]

    @rule(numbers=st.lists(who, min_size=1, max_size=3 * CLIENTS), fate=fates, slow=st.booleans())
    def behave(self, numbers: list[int], fate: Fate, slow: bool) -> None:
        for number in numbers[:-1]:
            self.life.behave(self._client(number))
        self.life.behave(self._client(numbers[-1]), fate, slow)

    @rule(number=who, fate=fates, for_a_while=st.booleans())
    def leave(self, number: int, fate: Fate, for_a_while: bool) -> None:
        self.life.leave(self._client(number), fate, for_a_while)

    @rule(number=who)
    def commit(self, number: int) -> None:
        self.life.commit(self._client(number))

    @rule(number=who)
    def start_again(self, number: int) -> None:
        self.life.restart(self._client(number))

    @rule(number=who, kind=st.sampled_from(Kind))
    def deploy(self, number: int, kind: Kind) -> None:
        """A client comes back with another protocol."""
        self.life.leave(self._client(number))
        self._client(number).kind = kind
        self.life.behave(self._client(number))

    @rule(number=who, ms=st.sampled_from([SESSION_MS, REBALANCE_MS]), slow=st.booleans())
    def all_but_one_behave(self, number: int, ms: int, slow: bool) -> None:
        """One of them is dead, or slow."""
        for _ in range(ms // TICK_MS + 1):
            for client in self.life.clients:
                if client is not self._client(number):
                    self.life.behave(client)
                elif slow:
                    self.life.behave(client, slow=True)
            self.life.pass_ms(TICK_MS)

    @rule(ms=st.sampled_from([TICK_MS, SESSION_MS, REBALANCE_MS]))
    def pass_time(self, ms: int) -> None:
        self.life.pass_ms(ms)

    @rule()
    def compute(self) -> None:
        self.life.late.compute(self.life.group)

    @rule()
    def die(self) -> None:
        self.life.die()

    def teardown(self) -> None:
        if self.life.clients:
            self.life.settle()


def test_each_partition_has_one_holder() -> None:
    run_state_machine_as_test(Machine, settings=short_form(60, 20))


@pytest.mark.torture
def test_each_partition_has_one_holder_at_length() -> None:
    run_state_machine_as_test(Machine, settings=settings(max_examples=1_500, stateful_step_count=60))
