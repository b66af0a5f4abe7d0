"""Audit events that wait in objects of the root: in the log once, whatever fails, and whoever finds them."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.audit_log import (
    AuditBatch,
    append_batch,
    audit_table,
    first_batch,
    keep_audit_topic,
)
from log_tables.cluster.admin.audit_spill import read_batch, spill, spill_problems, spilled
from log_tables.cluster.audit_record import AuditKind, AuditRecord
from log_tables.cluster.cluster import Cluster
from log_tables.errors import CorruptLog, LakelogError
from log_tables.root.copy import copy_root
from log_tables.root.fsck import check
from log_tables.store.store import Store, open_store
from log_tables.testing import (
    Crash,
    Failure,
    Fault,
    FaultyStore,
    answer_lost,
    crash_after,
    crash_before,
    refused,
)
from tests.kit.failures import before

CONFIGS = {"producer.id.expiration.ms": "1000000"}


class Place:
    """A root in memory with an audit log, and processes at it."""

    def __init__(self, store: Store | None = None) -> None:
        self.clock = ManualClock(1)
        self.store = store or open_store("memory://")
        keep_audit_topic(self.process(), CONFIGS)

    def process(self, store: Store | None = None) -> Cluster:
        return Cluster.open(store or self.store, self.clock)

    def batches(self, count: int = 2) -> list[AuditBatch]:
        """Batches of two events each."""
        return [
            first_batch(self.clock, [self.event(f"t{number}-a"), self.event(f"t{number}-b")])
            for number in range(count)
        ]

    def event(self, name: str) -> AuditRecord:
        return AuditRecord(
            uid=self.clock.unique_id(),
            kind=AuditKind.CHANGE,
            time_ms=self.clock.now_ms(),
            operation="DeleteTopics",
            principal="User:ann",
            resource_type="TOPIC",
            resource_name=name,
        )

    def told(self) -> list[str]:
        """The resources of the events that are in the log."""
        return sorted(audit_table(self.process())["resource_name"].to_pylist())


def append_spilled(cluster: Cluster) -> None:
    """As a gateway does that finds what is spilled."""
    for item in spilled(cluster.store):
        batch = read_batch(cluster.store, item.path)
        if batch is not None:
            append_batch(cluster, batch)
            cluster.store.delete(item.path)


def append_or_spill(store: Store, cluster: Cluster, batches: Sequence[AuditBatch]) -> None:
    """As a gateway does that stops."""
    try:
        for batch in batches:
            append_batch(cluster, batch)
    except LakelogError:
        spill(store, batches)


def names(batches: Sequence[AuditBatch]) -> list[str]:
    return [record.resource_name for batch in batches for record in batch.records]


@pytest.mark.parametrize("failure", [crash_before, crash_after, answer_lost, refused])
def test_events_are_in_the_log_once_though_who_appends_what_is_spilled_fails_anywhere(
    failure: Failure,
) -> None:
    counted = Place()
    spill(counted.store, counted.batches())
    watched = FaultyStore(counted.store)
    append_spilled(counted.process(watched))
    assert watched.writes() >= 6
    for nth in range(1, watched.writes() + 1):
        place = Place()
        batches = place.batches()
        spill(place.store, batches)
        with suppress(Crash, LakelogError):
            append_spilled(place.process(FaultyStore(place.store, [Fault(nth, failure)])))
        append_spilled(place.process())
        assert place.told() == names(batches)
        assert spilled(place.store) == []


@pytest.mark.parametrize("failure", [answer_lost, refused])
def test_events_are_in_the_log_once_though_who_stops_cannot_know_whether_it_has_appended_them(
    failure: Failure,
) -> None:
    counted = Place()
    watched = FaultyStore(counted.store)
    append_or_spill(watched, counted.process(watched), counted.batches())
    spills = []
    for nth in range(1, watched.writes() + 1):
        place = Place()
        batches = place.batches()
        process = place.process(FaultyStore(place.store, [Fault(nth, failure)]))
        append_or_spill(place.store, process, batches)
        spills.append(len(spilled(place.store)))
        append_spilled(place.process())
        assert place.told() == names(batches)
    assert failure is answer_lost or max(spills) == 2


def test_two_that_find_the_same_events_append_them_once() -> None:
    counted = Place()
    spill(counted.store, counted.batches())
    watched = FaultyStore(counted.store)
    append_spilled(counted.process(watched))
    operations = {call.operation for call in watched.calls}
    for nth in range(1, len(watched.calls) + 1):
        place = Place()
        batches = place.batches()
        spill(place.store, batches)

        def other(at: Place = place) -> None:
            append_spilled(at.process())

        append_spilled(place.process(FaultyStore(place.store, [Fault(nth, before(other), operations)])))
        assert place.told() == names(batches)
        assert spilled(place.store) == []


def test_a_copy_of_the_root_has_each_event_once(tmp_path: Path) -> None:
    """One batch was appended, and its object is not deleted yet; the other one waits."""
    place = Place(open_store(str(tmp_path / "root")))
    batches = place.batches()
    append_batch(place.process(), batches[0])
    spill(place.store, batches)
    assert check(place.store).root_problems == []
    copied = open_store(str(tmp_path / "copy"))
    copy_root(place.store, copied, place.clock)
    assert len(spilled(copied)) == len(batches)
    copy = Cluster.open(copied, place.clock)
    append_spilled(copy)
    assert sorted(audit_table(copy)["resource_name"].to_pylist()) == names(batches)


def test_a_check_names_what_cannot_be_appended() -> None:
    place = Place()
    spill(place.store, place.batches(1))
    [item] = spilled(place.store)
    whole = place.store.get(item.path)
    place.store.put("audit/note.txt", b"")
    place.store.put(item.path, whole[:-20])
    with pytest.raises(CorruptLog, match="restore the file"):
        read_batch(place.store, item.path)
    first, second = sorted([*spill_problems(place.store)])
    assert first == "audit/note.txt is no object of audit events; move it away"
    assert second.startswith(f"the audit events in {item.path} cannot be read")
    place.store.put(item.path, whole.replace(b'"User:ann"', b'""'))
    assert any("has the principal ''" in each for each in check(place.store).root_problems)
