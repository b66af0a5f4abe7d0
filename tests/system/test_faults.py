"""A store that fails before and after each single write, under an idempotent producer that repeats."""

from collections.abc import Callable
from pathlib import Path

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.sweep import sweep
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import OutcomeUnknown, Retriable, TopicExists
from log_tables.partition.partition import Partition, ProducerStamp
from log_tables.root.fsck import check
from log_tables.store.store import Store, open_store
from log_tables.testing import (
    WRITES,
    Crash,
    Failure,
    Fault,
    FaultyStore,
    answer_lost,
    crash_after,
    crash_before,
    refused,
    unavailable,
)
from tests.kit.partitions import append, values

BATCHES = [(b"a", b"b"), (b"c",), (b"d", b"e", b"f"), (b"g",)]
FAILURES = [unavailable, refused, answer_lost, crash_before, crash_after]


def persistently(store: FaultyStore, life: Callable[[Store], None]) -> None:
    """Live through the store's fault: after a crash once more, on the store as it is now."""
    try:
        life(store)
    except Crash:
        life(store.inner)


def produce_all(store: Store, clock: ManualClock) -> None:
    """Create the topic if need be, and send each batch until it is acknowledged."""
    cluster = Cluster.open(store, clock)
    create(cluster)
    partition = cluster.topic("t").partition(0)
    sequence = 0
    for batch in BATCHES:
        while not acknowledged(partition, batch, ProducerStamp(7, 0, sequence)):
            continue
        sequence += len(batch)
    partition.checkpoint()


def create(cluster: Cluster) -> None:
    while True:
        try:
            create_topic(cluster, "t", partitions=2)
            return
        except TopicExists:
            return
        except (Retriable, OutcomeUnknown):
            continue


def acknowledged(partition: Partition, batch: tuple[bytes, ...], stamp: ProducerStamp) -> bool:
    try:
        if not partition.leading:
            partition.claim("http://here")
        append(partition, *batch, producer=stamp)
    except (Retriable, OutcomeUnknown):
        return False
    return True


def writes_of_a_run_without_faults() -> int:
    store = FaultyStore(open_store("memory://"))
    produce_all(store, ManualClock())
    return store.writes()


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.__name__)
def test_whichever_write_fails_every_record_is_there_once(failure: Failure) -> None:
    for nth in range(1, writes_of_a_run_without_faults() + 1):
        clock, inner = ManualClock(), open_store("memory://")
        store = FaultyStore(inner, [Fault(nth, failure, WRITES)])

        def life(store: Store, clock: ManualClock = clock) -> None:
            try:
                produce_all(store, clock)
            except (Retriable, OutcomeUnknown):
                produce_all(store, clock)  # the very start, or a checkpoint: a person starts it again

        persistently(store, life)
        expected = [value for batch in BATCHES for value in batch]
        assert values(Cluster.open(inner, clock).topic("t").partition(0)) == expected, nth
        assert check(inner).problems == [], nth


@pytest.mark.parametrize("failure", [crash_before, crash_after], ids=lambda failure: failure.__name__)
def test_a_process_that_dies_while_it_deletes_a_topic_leaves_it_whole_or_gone(failure: Failure) -> None:
    for nth in range(1, 6):
        clock, inner = ManualClock(), open_store("memory://")
        create_topic(Cluster.open(inner, clock), "t", partitions=2)
        dying = FaultyStore(inner, [Fault(nth, failure)])
        try:
            delete_topic(Cluster.open(dying, clock), "t")
        except Crash:
            pass
        survivor = Cluster.open(inner, clock)
        if any(topic.name == "t" for topic in survivor.topics()):
            delete_topic(survivor, "t")
        again = create_topic(survivor, "t")
        assert again.directory == "topics/t~2"
        assert again.partition(0).high_watermark == 0
        assert check(inner).problems == []


def test_half_made_topics_vanish(tmp_path: Path) -> None:
    clock, inner = ManualClock(), open_store("memory://")
    Cluster.open(inner, clock)
    for nth in (1, 2):
        dying = FaultyStore(inner, [Fault(nth, crash_after, ("put_if_absent",), "topics/half")])
        with pytest.raises(Crash):
            create_topic(Cluster.open(dying, clock), "half", partitions=2)
    cluster = Cluster.open(inner, clock)
    assert cluster.topics() == []
    assert create_topic(cluster, "half", partitions=2).directory == "topics/half~3"
    # The store's own clock says that they are young: nothing may be taken from a creation under way.
    assert sweep(cluster) == []
