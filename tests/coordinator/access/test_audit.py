"""Which decisions become events of the audit, and how many."""

from hypothesis import given
from hypothesis import strategies as st

from coordinator.access.audit import HOUR_MS, MINUTE_MS, Audit
from coordinator.access.principal import Principal, RequestContext
from log_tables.clock import ManualClock
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.audit_record import AuditKind, AuditRecord
from log_tables.errors import AuthenticationFailed, AuthorizationFailed

ANN, BOB = (RequestContext(Principal(f"User:{name}", ("Group:all",)), "10.0.0.7") for name in ("ann", "bob"))
DENIED = AuthorizationFailed("no")
EVERY = 1_000_000


def deny(audit: Audit, who: RequestContext = ANN, topic: str = "t") -> None:
    audit.denied(who, Operation.READ, ResourceType.TOPIC, topic, DENIED)


def read(audit: Audit, who: RequestContext = ANN, topic: str = "t") -> None:
    audit.allowed(who, Operation.READ, ResourceType.TOPIC, topic)


def counts(records: list[AuditRecord]) -> list[tuple[AuditKind, str | None, str, int]]:
    return [(each.kind, each.principal, each.resource_name, each.count) for each in records]


def test_the_first_denial_is_an_event_and_the_others_of_its_minute_are_a_number(clock: ManualClock) -> None:
    audit = Audit(clock, lambda _: 40301)
    for _ in range(4):
        deny(audit)
        clock.advance(1_000)
    deny(audit, BOB)
    deny(audit, topic="u")
    firsts = audit.take(EVERY)
    assert counts(firsts) == [
        (AuditKind.DENIAL, "User:ann", "t", 1),
        (AuditKind.DENIAL, "User:bob", "t", 1),
        (AuditKind.DENIAL, "User:ann", "u", 1),
    ]
    first = firsts[0]
    assert (first.error_code, first.success, first.operation, first.address, first.groups) == (
        40301,
        False,
        "READ",
        "10.0.0.7",
        ("Group:all",),
    )
    clock.advance(MINUTE_MS)
    [number] = audit.take(EVERY)
    assert counts([number]) == [(AuditKind.DENIAL, "User:ann", "t", 3)]
    assert (number.time_ms, number.end_ms) == (first.time_ms + 1_000, first.time_ms + 3_000)
    assert number.uid != first.uid
    deny(audit)
    assert counts(audit.take(EVERY)) == [(AuditKind.DENIAL, "User:ann", "t", 1)]


def test_a_number_is_told_at_once_when_the_gateway_stops(clock: ManualClock) -> None:
    audit = Audit(clock)
    deny(audit)
    deny(audit)
    audit.close()
    assert [each.count for each in audit.take(EVERY)] == [1, 1]


def test_the_first_access_of_each_hour_is_an_event(clock: ManualClock) -> None:
    audit = Audit(clock)
    for _ in range(3):
        read(audit)
        read(audit, BOB)
        read(audit, topic="u")
        audit.allowed(ANN, Operation.WRITE, ResourceType.TOPIC, "t")
        audit.allowed(ANN, Operation.DESCRIBE, ResourceType.TOPIC, "t")
        audit.allowed(ANN, Operation.READ, ResourceType.GROUP, "g")
    found = audit.take(EVERY)
    assert [(each.principal, each.operation, each.resource_name) for each in found] == [
        ("User:ann", "READ", "t"),
        ("User:bob", "READ", "t"),
        ("User:ann", "READ", "u"),
        ("User:ann", "WRITE", "t"),
    ]
    assert all(each.kind is AuditKind.ACCESS and each.success for each in found)
    clock.advance(HOUR_MS)
    audit.take(EVERY)
    read(audit)
    assert len(audit.take(EVERY)) == 1


def test_a_refusal_names_only_those_who_are_known(clock: ManualClock) -> None:
    audit = Audit(clock, lambda _: 40101)
    wrong = AuthenticationFailed("wrong")
    audit.refused(None, "10.0.0.7", wrong)
    audit.refused(None, "10.0.0.7", wrong)
    audit.refused("User:ann", "10.0.0.7", wrong)
    found = audit.take(EVERY)
    assert [(each.kind, each.principal, each.address) for each in found] == [
        (AuditKind.REFUSAL, None, "10.0.0.7"),
        (AuditKind.REFUSAL, "User:ann", "10.0.0.7"),
    ]


def test_every_change_is_an_event_and_changes_come_first(clock: ManualClock) -> None:
    audit = Audit(clock)
    deny(audit)
    for _ in range(3):
        audit.changed(ANN, "DeleteTopics", ("TOPIC", "t"), {"a": 1})
    audit.failed(ANN, "DeleteTopics", ("TOPIC", "t"), 40401)
    audit.failed(ANN, "DeleteTopics", ("TOPIC", "t"), 40401)
    found = audit.take(EVERY)
    kinds = [(each.kind, each.success, each.error_code) for each in found]
    assert kinds == [
        *[(AuditKind.CHANGE, True, 0)] * 3,
        (AuditKind.DENIAL, False, 0),
        (AuditKind.CHANGE, False, 40401),
    ]
    assert found[0].facts == {"a": 1}


def test_events_without_room_are_counted_and_their_number_is_an_event(clock: ManualClock) -> None:
    dropped: list[tuple[str, int]] = []
    audit = Audit(
        clock,
        dropped=lambda *lost: dropped.append(lost),
        waiting_max=2,
        counted_max=4,
        accesses_max=3,
        share=1,
    )
    for number in range(6):
        deny(audit, topic=f"t{number}")
    assert dropped == [("waiting", 1)] * 2 + [("repeats", 1)] * 2
    for _ in range(3):
        audit.changed(ANN, "DeleteTopics", ("TOPIC", "t"), {})
    assert dropped[4:] == [("waiting", 1)]
    found = audit.take(EVERY)
    assert counts(found) == [
        (AuditKind.LOSS, None, "", 5),
        *[(AuditKind.CHANGE, "User:ann", "t", 1)] * 2,
        (AuditKind.DENIAL, "User:ann", "t0", 1),
        (AuditKind.DENIAL, "User:ann", "t1", 1),
    ]
    for number in range(5):
        read(audit, topic=f"t{number}")
        audit.take(EVERY)
    assert dropped[5:] == [("accesses", 1)] * 2
    assert len(dropped) == 7


def test_one_principal_hides_no_event_of_another(clock: ManualClock) -> None:
    audit = Audit(clock, counted_max=20, accesses_max=30, share=10)
    for number in range(100):
        deny(audit, topic=f"t{number}")
        read(audit, topic=f"t{number}")
        audit.refused(None, f"2001:db8::{number}", AuthenticationFailed("wrong"))
    deny(audit, BOB)
    read(audit, BOB)
    audit.refused(None, "10.0.0.7", AuthenticationFailed("wrong"))
    found = [(each.kind, each.principal, each.address) for each in audit.take(EVERY)]
    assert len(found) == 1 + 2 + 3 + 2 + 3
    for kind in (AuditKind.DENIAL, AuditKind.ACCESS):
        assert (kind, "User:bob", "10.0.0.7") in found
    assert (AuditKind.REFUSAL, None, "10.0.0.7") in found


def test_names_of_any_length_take_no_room(clock: ManualClock) -> None:
    audit, long = Audit(clock), "x" * 1_000
    for number in range(10):
        deny(audit, topic=f"{long}{number}")
        read(audit, topic=f"{long}{number}")
    audit.close()
    assert [(each.kind, each.count) for each in audit.take(EVERY)] == [
        (AuditKind.DENIAL, 1),
        (AuditKind.DENIAL, 9),
    ]


def test_what_could_not_be_appended_is_taken_again_in_its_order(clock: ManualClock) -> None:
    audit = Audit(clock, waiting_max=3)
    for number in range(4):
        deny(audit, topic=f"t{number}")
    audit.changed(ANN, "DeleteTopics", ("TOPIC", "t"), {})
    taken = audit.take(EVERY)
    audit.put_back(taken)
    again = audit.take(EVERY)
    assert counts(again) == counts(taken)
    assert again[1:] == taken[1:]
    assert audit.take(EVERY) == []


def test_no_more_is_taken_than_is_asked_for(clock: ManualClock) -> None:
    audit = Audit(clock)
    for number in range(5):
        deny(audit, topic=f"t{number}")
    assert [len(audit.take(most)) for most in (0, 2, 2, 2, 2)] == [0, 2, 2, 1, 0]


STEP = st.tuples(st.sampled_from("abcd"), st.sampled_from([0, 1_000, 30_000, MINUTE_MS]))


@given(st.lists(STEP, max_size=60))
def test_each_denial_is_counted_once(steps: list[tuple[str, int]]) -> None:
    """However they fall into minutes, and whatever there is room for."""
    clock = ManualClock()
    audit = Audit(clock, waiting_max=5, counted_max=3, share=1)
    told = 0
    for place, (topic, pause_ms) in enumerate(steps):
        deny(audit, topic=topic)
        clock.advance(pause_ms)
        if place % 3 == 0:
            told += sum(each.count for each in audit.take(3))
    audit.close()
    told += sum(each.count for _ in range(20) for each in audit.take(3))
    assert told == len(steps)  # events that are lost are counted, too
    assert audit.waiting == 0
