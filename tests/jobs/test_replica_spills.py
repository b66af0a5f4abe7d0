"""Audit events that wait at the original to be appended are not lost with it, and told once."""

from collections.abc import Callable
from typing import TypeVar

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.audit_log import (
    AuditBatch,
    append_batch,
    audit_table,
    first_batch,
    keep_audit_topic,
)
from log_tables.cluster.admin.audit_spill import read_batch, spill, spilled
from log_tables.cluster.cluster import Cluster
from log_tables.layout import AUDIT_SPILLS
from log_tables.root.fsck import check
from log_tables.root.promote import promote
from log_tables.store.store import Store, open_store
from log_tables.store.wrapper import StoreWrapper
from log_tables.testing import Failure, Fault, FaultyStore, answer_lost, refused, unavailable
from tests.kit.audits import deletion
from tests.kit.standby import follow
from tests.kit.unfolding import QuickClock

CONFIGS = {"producer.id.expiration.ms": "1000000"}

T = TypeVar("T")


@pytest.fixture
def original(clock: ManualClock) -> Store:
    """A root whose audit events, of topics `a` and `b`, wait to be appended."""
    store = open_store("memory://original")
    keep_audit_topic(Cluster.open(store, clock), CONFIGS)
    spill(store, [first_batch(clock, [deletion(clock, name)]) for name in ("a", "b")])
    return store


def told(store: Store, clock: ManualClock) -> list[str]:
    """The resources of the events that are in the log."""
    return sorted(audit_table(Cluster.open(store, clock, create=False))["resource_name"].to_pylist())


def append_spilled(store: Store, clock: ManualClock) -> None:
    """As a gateway does that finds what is spilled."""
    cluster = Cluster.open(store, clock, create=False)
    batches = [(item.path, read_batch(store, item.path)) for item in spilled(store)]
    for path, batch in batches:
        assert isinstance(batch, AuditBatch)
        append_batch(cluster, batch)
        store.delete(path)


class Told(StoreWrapper):
    """A standby that looks, before an object of events goes, whether they are in its log."""

    def __init__(self, inner: Store, look: Callable[[], list[str]]) -> None:
        super().__init__(inner)
        self._look, self.found = look, list[list[str]]()

    def _call(self, operation: str, path: str, perform: Callable[[], T]) -> T:
        if operation.startswith("delete") and path.startswith(f"{AUDIT_SPILLS}/"):
            self.found.append(self._look())
        return perform()


@pytest.mark.parametrize("failure", [unavailable, refused, answer_lost])
def test_a_promoted_standby_tells_what_waited(original: Store, clock: ManualClock, failure: Failure) -> None:
    inner = open_store("memory://standby")
    follow(original, FaultyStore(inner, [Fault(2, failure, {"put"}, AUDIT_SPILLS)]), clock=QuickClock())
    assert [item.path for item in spilled(inner)] == [item.path for item in spilled(original)]
    promote(inner, clock)
    append_spilled(inner, clock)
    assert told(inner, clock) == ["a", "b"]
    assert check(inner).problems == []


def test_events_go_from_where_they_wait_once_they_are_in_the_log(original: Store, clock: ManualClock) -> None:
    inner = open_store("memory://standby")
    target = Told(inner, lambda: told(inner, clock))
    follow(original, target, clock=QuickClock())
    assert len(spilled(inner)) == 2
    append_spilled(original, clock)
    follow(original, target, lambda: not spilled(inner), QuickClock())
    assert target.found
    assert all(found == ["a", "b"] for found in target.found)
    assert told(inner, clock) == ["a", "b"]
