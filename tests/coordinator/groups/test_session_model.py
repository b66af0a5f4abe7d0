"""The polls of a member in any order: its client gets the records in order, whatever comes between two steps.

Another gateway appends to some of the logs, members come and go, records are deleted or tiered, offsets are
reset.
"""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from msgspec import structs

from coordinator.groups.events import (
    Commit,
    Join,
    Leave,
    Poll,
    Subscribe,
)
from coordinator.groups.sessions.session_state import Act, PollState
from log_tables.topic_partition import TopicPartition
from tests.kit.models import short_form
from tests.kit.polled_session import MEMBER, PARTITIONS, Scene

ANY = st.sampled_from(PARTITIONS)


class Machine(RuleBasedStateMachine):
    """Polls of one member, of which the last counts; and whatever may come between two of their steps."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene(structs.replace(MEMBER, fetch_min_bytes=3))
        self.polls: list[PollState] = []
        self.answers: list[PollState] = []

    @rule(timeout_s=st.sampled_from([0, 0.5, 30]), max_bytes=st.integers(1, 12), knows=st.booleans())
    def poll(self, timeout_s: float, max_bytes: int, knows: bool) -> None:
        if len(self.polls) < 3 and "m" in self.scene.group.members:
            generation = self.scene.group.member("m").epoch if knows else None
            self.polls.append(self.scene.begin(timeout_s, max_bytes, generation))

    @precondition(lambda self: self.polls)
    @rule(which=st.integers(0, 2), times=st.integers(1, 12))
    def go_on(self, which: int, times: int) -> None:
        """Take some steps of a poll without any event in between."""
        poll = self.polls[which % len(self.polls)]
        for _ in range(times):
            step = self.scene.next(poll)
            if step.act is Act.GIVE:
                if poll.serial != self.scene.session.serial:
                    assert not poll.plans, "it is void"
                self.scene.check_given(poll)
                self.answers.append(poll)
                self.polls.remove(poll)
                return
            self.scene.take(step, poll)

    @precondition(lambda self: self.answers)
    @rule(which=st.integers(0, 2))
    def hand_over(self, which: int) -> None:
        self.scene.give(self.answers.pop(which % len(self.answers)))

    @precondition(lambda self: self.polls)
    @rule(which=st.integers(0, 2))
    def client_goes(self, which: int) -> None:
        self.polls[which % len(self.polls)].ended = True

    @rule(at=ANY, count=st.integers(1, 5))
    def append(self, at: TopicPartition, count: int) -> None:
        log = self.scene.logs[at]
        log.end += count
        if log.leading:
            log.high_watermark, log.confirmed = log.end, self.scene.now

    @rule(at=ANY)
    def lead(self, at: TopicPartition) -> None:
        """Leadership of the partition comes here, or goes."""
        log = self.scene.logs[at]
        log.leading = not log.leading
        log.refresh(self.scene.now)

    @rule(at=ANY, by=st.integers(1, 4))
    def delete_records(self, at: TopicPartition, by: int) -> None:
        log = self.scene.logs[at]
        log.log_start = min(log.log_start + by, log.high_watermark)

    @rule(at=ANY)
    def tier(self, at: TopicPartition) -> None:
        log = self.scene.logs[at]
        log.remote, log.reached = log.high_watermark, False

    @rule(at=ANY, part=st.floats(0, 1))
    def reset(self, at: TopicPartition, part: float) -> None:
        """Reset an offset, maybe to one whose records this process does not yet know."""
        self.scene.reset(at, int(self.scene.logs[at].end * part))

    @rule()
    def commit(self) -> None:
        scene, owned = self.scene, self.scene.group.member("m").owned
        offsets = {at: place for at, place in scene.session.given.items() if at in owned}
        scene.happen(Commit("m", offsets, 0))
        scene.session.note_committed(offsets)
        assert not scene.session.given.keys() & offsets.keys()

    @rule(name=st.sampled_from(["n", "o"]))
    def another_member(self, name: str) -> None:
        if name in self.scene.group.members:
            self.scene.happen(Leave(name))
        else:
            self.scene.happen(Join(name, MEMBER))
            self.scene.happen(Subscribe(name, frozenset({"t"})))

    @rule(name=st.sampled_from(["n", "o"]))
    def another_polls(self, name: str) -> None:
        if name in self.scene.group.members:
            self.scene.happen(Poll(name))

    @rule(due=st.booleans())
    def follow(self, due: bool) -> None:
        self.scene.due = due

    def teardown(self) -> None:
        """Once all others have left, a poll ends, and the next poll gets every remaining record."""
        for poll in self.polls:
            poll.ended = True
            self.scene.steps(poll)
            self.scene.give(poll)
        for other in self.scene.group.members.keys() - {"m"}:
            self.scene.happen(Leave(other))
        for _ in range(3):
            poll = self.scene.begin()
            self.scene.steps(poll)
            self.scene.give(poll)
        assert self.scene.group.member("m").owned == {*PARTITIONS}
        assert all(self.scene.place(at) == log.end for at, log in self.scene.logs.items())


def test_a_client_is_given_its_records_in_order_whatever_comes_between() -> None:
    run_state_machine_as_test(Machine, settings=short_form(100, 50))
