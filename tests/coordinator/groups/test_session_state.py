"""The steps of a member's polls, one by one: which comes when, what is given, what is committed."""

import pytest
from msgspec import structs

from coordinator.groups.events import (
    Assign,
    Commit,
    Join,
    LogEnd,
    OffsetAndMetadata,
    Seek,
    Start,
    Subscribe,
    Tick,
    TopicsChanged,
    TopicState,
    Unsubscribe,
)
from coordinator.groups.sessions.session_state import Act, PollState, Step
from log_tables.cluster.group_log import MemberConfig
from log_tables.errors import Damaged, LakelogError, TopicDeleted
from tests.kit.polled_session import AT, LAST, MANY, MEMBER, OTHER, PARTITIONS, ModelLog, Scene


def filled(*, leading: bool = False, count: int = 4, config: MemberConfig = MEMBER) -> Scene:
    scene = Scene(config)
    for log in scene.logs.values():
        log.end, log.leading = count, leading
    return scene


def test_a_look_has_its_steps_in_order() -> None:
    scene = filled()
    scene.logs[AT].leading = True
    assert scene.steps(scene.begin()) == [
        Act.ACKNOWLEDGE,
        Act.OPEN,
        Act.REFRESH,
        Act.FOLLOW,
    ]
    scene.logs[AT].confirmed, scene.due = 0, False
    scene.logs[OTHER].remote = 4
    scene.reset(LAST, 9)
    scene.logs[LAST].leading = True
    assert scene.steps(scene.begin()) == [
        Act.ACKNOWLEDGE,
        Act.OPEN,
        Act.REFRESH,
        Act.FOLLOW,
        Act.CATCH_UP,
        Act.REACH,
        Act.CHECK_TOPICS,
    ]


def test_a_poll_that_is_void_gives_nothing_wherever_it_is() -> None:
    """Another poll at each of its steps."""
    for place in range(5):
        scene = filled()
        poll = scene.begin(timeout_s=30)
        for _ in range(place):
            scene.take(scene.next(poll), poll)
        scene.begin()
        assert scene.next(poll).act is Act.GIVE
        assert poll.news
        assert not poll.plans


def test_a_client_that_does_not_know_its_generation_is_told_before_it_is_given_records() -> None:
    scene = filled()
    poll = scene.begin(generation=0)
    scene.steps(poll)
    assert poll.news
    assert not poll.plans
    assert poll.member.epoch > 0


def test_a_client_is_told_of_a_generation_that_came_while_too_few_records_were_there() -> None:
    scene = Scene(structs.replace(MEMBER, fetch_min_bytes=9))
    scene.steps(scene.begin())
    scene.logs[AT].end = 4
    poll = scene.begin(timeout_s=30, generation=scene.group.member("m").epoch)

    def joined(step: Step) -> None:
        if step.act is Act.WAIT and "n" not in scene.group.members:
            scene.happen(Join("n", MEMBER))
            scene.happen(Subscribe("n", frozenset({"t"})))

    scene.steps(poll, joined)
    assert poll.news
    assert not poll.plans


def test_a_wait_ends_when_the_client_has_gone_or_time_is_over() -> None:
    scene = Scene()
    poll = scene.begin(timeout_s=1)
    taken = scene.steps(poll)
    assert taken.count(Act.WAIT) > 3
    assert scene.now >= poll.deadline
    poll = scene.begin(timeout_s=1)
    poll.ended = True
    assert Act.WAIT not in scene.steps(poll)


def test_pauses_grow_until_the_member_would_be_late() -> None:
    scene = Scene(MemberConfig(auto_offset_reset="earliest", session_timeout_ms=300, auto_commit=False))
    poll, pauses = scene.begin(timeout_s=1), list[float]()
    scene.steps(poll, lambda step: pauses.append(poll.pause_s) if step.act is Act.WAIT else None)
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[-1] == pytest.approx(0.1)


def test_damage_is_an_error_where_nothing_else_is_given() -> None:
    damage = Damaged("a segment is missing")
    for count in (0, 4):
        scene = filled(count=count)
        poll = scene.begin()

        def damaged(step: Step, poll: PollState = poll) -> None:
            if step.act is Act.REFRESH:
                poll.damage = damage

        if count:
            scene.steps(poll, damaged)
            assert poll.plans
        else:
            with pytest.raises(LakelogError, match="a segment is missing"):
                scene.steps(poll, damaged)


def test_damage_of_an_earlier_look_is_forgotten() -> None:
    scene = Scene()
    poll = scene.begin(timeout_s=1)

    def repaired_meanwhile(step: Step) -> None:
        if step.act is Act.OPEN:
            poll.damage = Damaged("it is being written")

    assert Act.WAIT in scene.steps(poll, repaired_meanwhile)
    assert not poll.plans


def test_a_topic_that_is_known_to_be_deleted_ends_the_poll() -> None:
    scene = filled()
    scene.steps(scene.begin())
    scene.logs[AT].deleted = True
    with pytest.raises(TopicDeleted):
        scene.steps(scene.begin())


def test_what_is_opened_or_given_late_counts_for_no_later_poll() -> None:
    scene = filled()
    late = scene.begin()
    scene.take(scene.next(late), late)
    assert scene.next(late).act is Act.OPEN
    scene.begin()
    scene.session.place(late, scene.logs, scene.group)
    assert not scene.session.positions
    late = scene.begin()
    scene.steps(late)
    scene.begin()
    scene.session.advance(late.serial, {at: plan.end for at, plan in late.plans})
    assert not scene.session.given
    assert {position.offset for position in scene.session.positions.values()} == {0}


def test_a_reset_moves_its_partition_and_no_other() -> None:
    """Also while the answer of a poll is on its way to the client."""
    scene = filled()
    poll = scene.begin()
    scene.steps(poll)
    scene.reset(AT, 1)
    scene.give(poll)
    assert scene.session.given.keys() == {OTHER, LAST}
    poll = scene.begin()
    scene.steps(poll)
    assert {at: plan.start for at, plan in poll.plans} == {AT: 1}


@pytest.mark.parametrize("amid", [Act.ACKNOWLEDGE, Act.OPEN, Act.REFRESH, Act.ASK_CLIENT, Act.WAIT])
def test_a_poll_goes_on_when_a_partition_is_reset_amid_it(amid: Act) -> None:
    scene = filled(config=structs.replace(MEMBER, fetch_min_bytes=MANY))
    poll = scene.begin(timeout_s=3)
    resets = iter([(AT, 1)])

    def reset(step: Step) -> None:
        if step.act is amid:
            for at, offset in resets:
                scene.reset(at, offset)

    scene.steps(poll, reset)
    assert {at: plan.start for at, plan in poll.plans} == {AT: 1, OTHER: 0, LAST: 0}
    scene.give(poll)
    assert scene.session.given.keys() == {*PARTITIONS}


def test_a_poll_that_ends_gives_nothing_of_a_partition_that_was_reset_since_its_look() -> None:
    scene = filled(config=structs.replace(MEMBER, fetch_min_bytes=MANY))
    poll = scene.begin(timeout_s=3)

    def end(step: Step) -> None:
        if step.act is Act.ASK_CLIENT:
            scene.reset(AT, 1)
            poll.ended = True

    scene.steps(poll, end)
    assert {at for at, _ in poll.plans} == {OTHER, LAST}


def test_only_records_that_may_and_can_be_read_are_planned() -> None:
    scene = filled()
    scene.logs[AT].remote = 4
    poll = scene.begin()
    while (step := scene.next(poll)).act is not Act.GIVE:
        if step.act is not Act.REACH:  # the remote root does not answer
            scene.take(step, poll)
    assert {at for at, _ in poll.plans} == {OTHER, LAST}
    poll = scene.begin()
    poll.readable = lambda name: name != AT.topic
    scene.steps(poll)
    assert not poll.plans


def test_a_member_begins_where_it_was_set_to_else_where_the_group_has_committed() -> None:
    scene = filled()
    scene.steps(scene.begin())
    scene.happen(Commit("m", {AT: OffsetAndMetadata(1), OTHER: OffsetAndMetadata(2)}, 0))
    scene.happen(Seek("m", {AT: 3}))
    scene.session.forget(PARTITIONS)
    poll = scene.begin()
    scene.steps(poll)
    assert {at: plan.start for at, plan in poll.plans} == {AT: 3, OTHER: 2, LAST: 0}


def test_a_member_at_latest_begins_when_its_start_is_noted() -> None:
    scene = Scene(MemberConfig(auto_commit=False))
    for log in scene.logs.values():
        log.end = 4
    poll = scene.begin()
    scene.steps(poll)
    assert not poll.plans
    assert not scene.session.positions
    ends = {at: LogEnd("t-1", 3) for at in PARTITIONS}
    scene.happen(Start("m", ends, scene.topics, 0))
    poll = scene.begin()
    scene.steps(poll)
    assert [plan.start for _, plan in poll.plans] == [3, 3, 3]


def test_a_position_in_a_topic_that_was_made_again_is_forgotten() -> None:
    scene = Scene()
    scene.happen(Unsubscribe("m"))
    scene.happen(Assign("m", frozenset({AT})))
    scene.logs[AT].end = 4
    poll = scene.begin()
    scene.steps(poll)
    scene.give(poll)
    assert scene.session.given.keys() == {AT}
    scene.happen(TopicsChanged({"t": TopicState("t-2", 3)}))
    scene.logs[AT] = ModelLog(end=2)
    scene.expected.clear()
    poll = scene.begin()
    scene.steps(poll)
    assert [plan.start for _, plan in poll.plans] == [0]
    assert not scene.session.given


def test_a_member_with_partitions_of_its_own_commits_nothing_beside_others() -> None:
    config = MemberConfig(auto_offset_reset="earliest", auto_commit=True)
    scene = Scene(config)
    scene.happen(Unsubscribe("m"))
    scene.happen(Assign("m", frozenset({AT})))
    scene.logs[AT].end = 4
    poll = scene.begin()
    scene.steps(poll)
    scene.give(poll)
    assert scene.session.last_commit(scene.group) == {AT: OffsetAndMetadata(4)}
    scene.happen(Join("n", MEMBER))
    scene.happen(Subscribe("n", frozenset({"t"})))
    assert scene.session.last_commit(scene.group) == {}


def test_a_full_answer_waits_for_no_more_records_and_another_wait_knows_what_is_there() -> None:
    scene = Scene(structs.replace(MEMBER, fetch_min_bytes=9))
    scene.logs[AT].end = 4
    assert Act.WAIT not in scene.steps(scene.begin(timeout_s=30, max_bytes=2))
    poll = scene.begin(timeout_s=30)
    while (step := scene.next(poll)).act is not Act.WAIT:
        scene.take(step, poll)
    assert poll.seen == {AT: 4, OTHER: 0, LAST: 0}


def test_each_partition_comes_first_in_turn() -> None:
    scene, first = filled(), []
    for _ in range(3):
        poll = scene.begin(max_bytes=3)
        scene.steps(poll)
        scene.give(poll)
        first.append(poll.plans[0][0])
    assert {*first} == {*PARTITIONS}


def test_auto_commit_is_all_each_interval_and_else_what_is_given_up() -> None:
    config = MemberConfig(auto_offset_reset="earliest", auto_commit=True, auto_commit_interval_ms=5_000)
    scene = Scene(config)
    for log in scene.logs.values():
        log.end = 4
    poll = scene.begin()
    scene.steps(poll)
    scene.give(poll)
    session, given = scene.session, {at: OffsetAndMetadata(4) for at in PARTITIONS}
    assert session.auto_commit(scene.group, None, scene.now) == {}
    scene.happen(Join("n", MEMBER))
    scene.happen(Subscribe("n", frozenset({"t"})))
    leaving = scene.group.to_revoke(scene.group.member("m"))
    assert leaving
    epoch = scene.group.member("m").epoch
    assert session.auto_commit(scene.group, epoch - 1, scene.now) == {}, "it does not know yet"
    assert session.auto_commit(scene.group, epoch, scene.now).keys() == leaving
    assert session.auto_commit(scene.group, epoch - 1, scene.now + 5) == given
    assert session.auto_commit(scene.group, epoch - 1, scene.now + 6) == {}
    assert session.last_commit(scene.group) == given
    session.note_committed(given)
    assert session.last_commit(scene.group) == {}


def test_a_member_that_did_not_poll_goes_on_where_the_group_has_committed() -> None:
    """The member has its partitions again, but other members may have had them meanwhile."""
    scene = Scene(MemberConfig(auto_offset_reset="earliest", auto_commit=False, max_poll_interval_ms=5_000))
    scene.logs[AT].end = 4
    poll = scene.begin()
    scene.steps(poll)
    scene.give(poll)
    scene.now += 6
    scene.happen(Tick(0))
    assert not scene.group.member("m").owned
    poll = scene.begin()
    scene.steps(poll)
    assert [(at, plan.start) for at, plan in poll.plans] == [(AT, 0)]
