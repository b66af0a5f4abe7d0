"""Who has written which offsets: ranges of each author, and when they are told."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from coordinator.access.audit import RANGES_OF_EVENT, Audit, AuditedWrites, Writes
from coordinator.access.write_ranges import WriteRanges
from log_tables.clock import ManualClock
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.audit_record import AuditKind, AuditRecord, encode, flaw, writes_of
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.partition.partition import AppendRequest, Author, SequencedAppend
from log_tables.record import Record, input_batch
from log_tables.store.store import open_store
from tests.coordinator.access.test_audit import ANN

NAME = ("t", "id")
EVERY = 1_000_000
AUTHORS = [None, Author("User:ann"), Author("User:ann", "10.0.0.7"), Author("User:bob")]


def append(author: Author | None, base: int, count: int = 1, duplicate: bool = False) -> SequencedAppend:
    request = AppendRequest(input_batch([Record(b"v")] * count, 0), author=author)
    return SequencedAppend(
        request=request, base_offset=base, count=count, duplicate=duplicate, log_end=base + count, term=1
    )


def topic() -> Topic:
    return create_topic(Cluster.open(open_store("memory://"), ManualClock(1)), "t", 3)


def by_offset(events: Sequence[AuditRecord]) -> dict[tuple[int, int], tuple[str | None, str]]:
    """Who wrote each offset of each partition; each has one author at most."""
    found: dict[tuple[int, int], tuple[str | None, str]] = {}
    for event in events:
        assert flaw(encode(event), event.time_ms * 1000) is None
        for partition, ranges in writes_of(event)[1].items():
            for first, last in ranges:
                for offset in range(first, last + 1):
                    assert (partition, offset) not in found
                    found[partition, offset] = event.principal, event.address
    return found


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.lists(
            st.tuples(st.sampled_from(AUTHORS), st.integers(1, 3), st.booleans()), min_size=1, max_size=4
        ),
        st.booleans(),
    ),
    max_size=20,
)


@given(STEPS)
def test_each_record_has_its_author_and_no_other_one(
    steps: list[tuple[int, list[tuple[Author | None, int, bool]], bool]],
) -> None:
    """Commits of several authors to several partitions, with repeats; events are taken in between."""
    clock, wrote = ManualClock(1), topic()
    audit = Audit(clock, writes=Writes(AuditedWrites.RANGES, interval_s=10))
    ends = [0, 0, 0]
    due: dict[tuple[int, int], Author] = {}
    events: list[AuditRecord] = []
    for partition, commit, told in steps:
        appends = []
        for author, count, duplicate in commit:
            base = ends[partition]
            if duplicate:
                appends.append(append(author, max(0, base - count), count, duplicate=True))
                continue
            appends.append(append(author, base, count))
            due |= {(partition, base + number): author for number in range(count) if author}
            ends[partition] += count
        audit.wrote(wrote, partition, appends)
        if told:
            clock.advance(10_000)
            events += audit.take(EVERY)
    audit.close()
    events += audit.take(EVERY)
    assert by_offset(events) == {at: (author.principal, author.address) for at, author in due.items()}
    assert sum(event.count for event in events) == len(due)


def test_one_author_is_one_range_however_many_commits_and_is_told_after_an_interval() -> None:
    clock, wrote = ManualClock(1), topic()
    audit = Audit(clock, writes=Writes(AuditedWrites.RANGES, interval_s=10))
    begin_ms = clock.now_ms()
    for base in range(100):
        audit.wrote(wrote, 0, [append(AUTHORS[1], base)])
        clock.advance(50)
    assert audit.take(EVERY) == []
    clock.advance(5_000)
    [event] = audit.take(EVERY)
    assert (event.kind, event.count, event.resource_name) == (AuditKind.WRITE, 100, "t")
    assert event.facts == {"topic_id": wrote.topic_id, "partitions": {"0": [[0, 99]]}}
    assert (event.time_ms, event.end_ms) == (begin_ms, begin_ms + 99 * 50)
    audit.put_back([event])
    assert audit.waiting == 1
    assert audit.take(EVERY) == [event]


def test_many_ranges_are_told_sooner_in_several_events_and_those_beyond_are_counted() -> None:
    dropped: list[tuple[str, int]] = []
    clock, wrote = ManualClock(1), topic()
    bounds = Writes(AuditedWrites.RANGES, 10, ranges_max=2 * RANGES_OF_EVENT)
    audit = Audit(clock, dropped=lambda *lost: dropped.append(lost), writes=bounds)
    for base in range(0, 2 * RANGES_OF_EVENT, 2):
        audit.wrote(wrote, 0, [append(AUTHORS[1], base)])
    assert len(audit.take(0)) == 0
    assert audit.waiting == 1, "half of the room is taken, and ranges are told at once"
    for base in range(10_000, 10_000 + 4 * RANGES_OF_EVENT + 6, 2):
        audit.wrote(wrote, 0, [append(AUTHORS[1], base)])
    assert dropped == [("writes", 1)] * 3
    audit.wrote(wrote, 0, [append(AUTHORS[1], 10_000 + 4 * RANGES_OF_EVENT - 1)])  # goes on with a range
    audit.close()
    kinds = [event.kind for event in audit.take(EVERY)]
    assert kinds == [AuditKind.LOSS, *[AuditKind.WRITE] * 3]
    assert len(dropped) == 3


def test_a_repeat_and_what_nobody_has_sent_have_no_range() -> None:
    ranges = WriteRanges(10)
    assert ranges.note(NAME, 0, [append(None, 0), append(AUTHORS[1], 0, duplicate=True)], 1) == 0
    assert (ranges.ranges, ranges.take()) == (0, [])


def test_first_writes_are_told_unless_nothing_is() -> None:
    for audited, count in ((AuditedWrites.NONE, 1), (AuditedWrites.FIRST, 2), (AuditedWrites.RANGES, 2)):
        audit = Audit(ManualClock(1), writes=Writes(audited))
        for operation in (Operation.READ, Operation.WRITE):
            audit.allowed(ANN, operation, ResourceType.TOPIC, "t")
        assert len(audit.take(EVERY)) == count
