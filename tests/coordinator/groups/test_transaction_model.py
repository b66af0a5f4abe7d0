"""The transactions of a group in any order, with repeats and deaths, beside a plain model of them."""

from copy import deepcopy
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from coordinator.groups.events import (
    Applied,
    Assign,
    Commit,
    Delete,
    Event,
    Join,
    OffsetAndMetadata,
    Tick,
    TopicsChanged,
)
from coordinator.groups.state.group import Group
from coordinator.groups.state.group_records import restore
from coordinator.groups.state.step import step
from log_tables.cluster.group_log import (
    AppendedRange,
    Records,
)
from log_tables.errors import (
    Retriable,
    RetryKeyReused,
)
from log_tables.limits import RETRY_RETENTION_MS
from tests.kit.models import short_form
from tests.kit.transact_events import AT_MS, IN0, MANUAL, TOPICS, staged, transact


@dataclass
class Model:
    """The rules of a group's transactions, in the plainest terms."""

    number: int = 0
    pending: dict[int, str] = field(default_factory=dict)
    keys: dict[str, tuple[int, str, int, bool]] = field(default_factory=dict)
    offset: int | None = None


KEYS = st.sampled_from(["", "a", "b", "c"])


class Machine(RuleBasedStateMachine):
    """Transactions, repeats, expiry; and coordinators that die with what was not durable yet."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.durable_model = Model(), Model()
        self.durable: Records = []
        self.unheard: list[tuple[Records, Model]] = []
        self.now_ms = AT_MS
        self.group = Group("g")
        self._happen(TopicsChanged(TOPICS))

    def _happen(self, event: Event) -> None:
        self.group, records = step(self.group, event, 0)
        self.unheard.append((records, deepcopy(self.model)))
        self._check()

    def _check(self) -> None:
        found = self.group.transactions
        assert found.number == self.model.number
        assert {number: intent.key for number, intent in found.pending.items()} == self.model.pending
        assert [*found.pending] == sorted(found.pending)
        assert {
            key: (retry.number, retry.digest, retry.committed_ms, retry.placed is not None)
            for key, retry in found.retries.items()
        } == self.model.keys
        committed = self.group.committed(IN0)
        assert (None if committed is None else committed.offset) == self.model.offset
        written = [*self.durable, *(record for records, _ in self.unheard for record in records)]
        assert restore(written, 0).get("g", Group("g")).transactions == found

    @rule(
        key=KEYS, digest=st.sampled_from("xy"), records=st.booleans(), offset=st.integers(0, 9), forget=KEYS
    )
    def transact(self, key: str, digest: str, records: bool, offset: int, forget: str) -> None:
        files = (staged(str(self.model.number)),) if records else ()
        event = transact(
            None,
            *files,
            offsets={IN0: offset},
            key=key,
            digest=digest,
            forget=(forget,) if forget else (),
            at_ms=self.now_ms,
        )
        known = self.model.keys.get(key)
        if known is not None and known[1] != digest:
            with pytest.raises(RetryKeyReused):
                step(self.group, event, 0)
            return
        if known is None:
            self.model.number += 1
            self.model.offset = offset
            self.model.keys.pop(forget, None)
            if records:
                self.model.pending[self.model.number] = key
            if key:
                self.model.keys[key] = (self.model.number, digest, self.now_ms, not records)
        self._happen(event)

    @rule(which=st.integers(0, 5))
    def apply(self, which: int) -> None:
        if not self.model.pending:
            return
        number = sorted(self.model.pending)[which % len(self.model.pending)]
        key = self.model.pending.pop(number)
        if key in self.model.keys and self.model.keys[key][0] == number:
            self.model.keys[key] = (*self.model.keys[key][:3], True)
        self._happen(Applied(number, (AppendedRange("out", 0, 2, number),)))

    @rule(hours=st.integers(1, 30))
    def wait(self, hours: int) -> None:
        self.now_ms += hours * 3_600_000
        newest = max((number for number, *_ in self.model.keys.values()), default=0)
        self.model.keys = {
            key: found
            for key, found in self.model.keys.items()
            if found[0] == newest or not found[3] or found[2] + RETRY_RETENTION_MS > self.now_ms
        }
        self._happen(Tick(self.now_ms))

    @rule(offset=st.integers(0, 9))
    def commit(self, offset: int) -> None:
        """A member that assigns partitions to itself joins the others."""
        if "m" not in self.group.members:
            self._happen(Join("m", MANUAL))
        if not self.group.member("m").owned:  # a crash may have lost that alone
            self._happen(Assign("m", frozenset({IN0})))
        self.model.offset = offset
        self._happen(Commit("m", {IN0: OffsetAndMetadata(offset)}, self.now_ms))

    @rule()
    def delete(self) -> None:
        if self.model.pending:
            with pytest.raises(Retriable):
                step(self.group, Delete(force=True), 0)
            return
        self.model = Model()
        self._happen(Delete(force=True))

    @rule()
    def settle(self) -> None:
        self.durable += [record for records, _ in self.unheard for record in records]
        self.unheard.clear()
        self.durable_model = deepcopy(self.model)

    @rule(lost=st.integers(0, 4), compacted=st.booleans())
    def crash(self, lost: int, compacted: bool) -> None:
        del self.unheard[max(0, len(self.unheard) - lost) :]
        self.model = deepcopy(self.unheard[-1][1] if self.unheard else self.durable_model)
        self.settle()
        if compacted:
            newest = {key: (place, value) for place, (key, value) in enumerate(self.durable)}
            ordered = sorted(newest.items(), key=lambda item: item[1][0])
            self.durable = [(key, value) for key, (_, value) in ordered if value is not None]
        self.group = restore(self.durable, 0).get("g", Group("g"))
        self._happen(TopicsChanged(TOPICS))


def test_transactions_are_as_a_plain_model_has_them() -> None:
    run_state_machine_as_test(Machine, settings=short_form(100, 40))


@pytest.mark.torture
def test_transactions_are_as_a_plain_model_has_them_for_long() -> None:
    run_state_machine_as_test(Machine, settings=settings(max_examples=2_000, stateful_step_count=80))
