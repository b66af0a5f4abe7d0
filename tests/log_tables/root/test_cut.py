"""A copy holds all tables as of one moment, whatever the original does between two looks of the copy."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import (
    Act,
    Intent,
    IntentKey,
    OffsetKey,
    OffsetValue,
    PendingKey,
    PendingValue,
    ProducerKey,
    ProducerValue,
    TransactionsKey,
    TransactionsValue,
    UndoKey,
    UndoValue,
    producers_of,
    replay,
)
from log_tables.errors import CorruptLog
from log_tables.key_hash import MURMUR3, partition_for_key
from log_tables.layout import CONSUMER_OFFSETS, commit_path, partition_directory, topic_directory
from log_tables.limits import KEPT_PRODUCER_ID_MIN
from log_tables.partition.partition import ProducerStamp
from log_tables.partition.tier import remove_expired
from log_tables.root.copy import copy_root
from log_tables.root.fsck import check
from log_tables.root.inspection import check_location, inspect
from log_tables.segments.staging import PartitionRecords, stage
from log_tables.store.store import Store, open_store
from log_tables.store.wrapper import StoreWrapper
from tests.kit.groups import say
from tests.kit.partitions import append, append_each, entry, values
from tests.kit.tiers import move_topic, tiered_cluster

T = TypeVar("T")
VALUES = [b"0", b"1", b"2", b"3"]
LONG_S = 30.0
OFFSETS = [partition_directory(topic_directory(CONSUMER_OFFSETS), index) for index in range(2)]
APPLIER = KEPT_PRODUCER_ID_MIN + 7


class Busy(StoreWrapper):
    """The original, where `act` happens once: `after` or else before the call that `meets`."""

    def __init__(
        self, inner: Store, meets: Callable[[str, str], bool], act: Callable[[], object], after: bool = False
    ) -> None:
        super().__init__(inner)
        self._meets, self._act, self._after, self.done = meets, act, after, False

    def _call(self, operation: str, path: str, perform: Callable[[], T]) -> T:
        due = not self.done and self._meets(operation, path)
        self.done |= due
        if due and not self._after:
            self._act()
        try:
            return perform()
        finally:
            if due and self._after:
                self._act()


def copied(source: Store, original: Cluster, target: Path) -> Cluster:
    copy_root(source, open_store(target), original.clock)
    made = Cluster.open(open_store(target), original.clock, create=False)
    check_location(made, 0)
    assert check(made.store).problems == []
    return made


@pytest.fixture
def cluster(tmp_path: Path, clock: ManualClock) -> Cluster:
    """Group `g` has written to the topic `t` by a transaction, and `h` has consumed it; they are in two
    partitions of groups.
    """
    made = Cluster.open(open_store(tmp_path / "here"), clock)
    append(made.claim(create_topic(made, "t"), 0), b"first")
    transact(made, 1)
    say(made, (OffsetKey("h", "t", 0), OffsetValue(2, made.topic("t").topic_id)), index=1)
    return made


def transact(cluster: Cluster, number: int) -> None:
    """Commit transaction `number` of group `g`, and apply it."""
    say(cluster, (TransactionsKey("g"), TransactionsValue(APPLIER, number)))
    applier = ProducerStamp(APPLIER, number, 0, True)
    append(cluster.claim(cluster.topic("t"), 0), b"of a transaction", producer=applier)


def test_staged_files_of_one_partition_are_applied_while_another_is_read(
    cluster: Cluster, tmp_path: Path
) -> None:
    part = PartitionRecords("t", cluster.topic("t").topic_id, 0, [entry(b"pending").records])
    staged = stage(cluster.store, cluster.clock, "g", [part])
    say(cluster, (IntentKey("g", 1), Intent(APPLIER, 1, (staged,))))

    def apply() -> None:
        say(cluster, (IntentKey("g", 1), None))
        cluster.store.delete(staged.path)

    source = Busy(cluster.store, lambda what, path: (what, path) == ("get", staged.path), apply, after=True)
    made = copied(source, cluster, tmp_path / "copy")
    assert source.done
    found = inspect(made)
    assert (found.problems, found.groups.offsets[OffsetKey("h", "t", 0)].offset) == ([], 2)


def test_a_staged_file_that_is_gone_leads_to_a_look_at_every_partition(
    cluster: Cluster, tmp_path: Path
) -> None:
    """By partition 1 the file is pending; when it is read, partition 1 says that it was applied."""
    part = PartitionRecords("t", cluster.topic("t").topic_id, 0, [entry(b"pending").records])
    staged = stage(cluster.store, cluster.clock, "h", [part])
    say(cluster, (IntentKey("h", 1), Intent(APPLIER, 1, (staged,))), index=1)

    def apply() -> None:
        say(cluster, (IntentKey("h", 1), None), index=1)
        cluster.store.delete(staged.path)

    source = Busy(cluster.store, lambda what, path: (what, path) == ("get", staged.path), apply)
    made = copied(source, cluster, tmp_path / "copy")
    assert source.done
    assert [*made.store.list("staging/")] == []


def test_a_staged_file_that_stays_away_is_reported(cluster: Cluster, tmp_path: Path) -> None:
    part = PartitionRecords("t", cluster.topic("t").topic_id, 0, [entry(b"pending").records])
    staged = stage(cluster.store, cluster.clock, "g", [part])
    say(cluster, (IntentKey("g", 1), Intent(APPLIER, 1, (staged,))))
    cluster.store.delete(staged.path)
    with pytest.raises(CorruptLog, match="staged files are missing"):
        copied(cluster.store, cluster, tmp_path / "copy")


def between_looks(cluster: Cluster) -> Callable[[str, str], bool]:
    """Meets the look at the second partition of groups, once the first one was read."""
    probes = [
        commit_path(directory, cluster.topic(CONSUMER_OFFSETS).partition(index).snapshot.version + 1)
        for index, directory in enumerate(OFFSETS)
    ]
    seen, looked = [0, 0], threading.Event()

    def meets(operation: str, path: str) -> bool:
        if operation != "get" or path not in probes:
            return False
        index = probes.index(path)
        seen[index] += 1
        if seen[index] < 2:  # it is opened
            return False
        if index == 0:
            looked.set()
            return False
        assert looked.wait(LONG_S)
        return True

    return meets


def test_no_group_is_ahead_of_what_another_groups_transaction_wrote(cluster: Cluster, tmp_path: Path) -> None:
    """Between looks at two partitions of groups `g` writes to `t` by a transaction, and `h` consumes that."""

    def consume() -> None:
        transact(cluster, 2)
        append(cluster.claim(cluster.topic("t"), 0), b"plain")
        say(cluster, (OffsetKey("h", "t", 0), OffsetValue(4, cluster.topic("t").topic_id)), index=1)

    source = Busy(cluster.store, between_looks(cluster), consume)
    made = copied(source, cluster, tmp_path / "copy")
    assert source.done
    committed = inspect(made).groups.offsets[OffsetKey("h", "t", 0)].offset
    assert made.topic("t").partition(0).high_watermark >= committed == 4


def test_an_undo_in_a_copy_sets_no_offset_beyond_its_records(cluster: Cluster, tmp_path: Path) -> None:
    """Between looks at two partitions of groups `h` consumes what comes to `t`, and is reset to the start."""

    def consume() -> None:
        transact(cluster, 2)
        append(cluster.claim(cluster.topic("t"), 0), b"plain")
        topic_id = cluster.topic("t").topic_id
        act = Act("reset", 1, (("t", 0, OffsetValue(4, topic_id)),))
        start = (OffsetKey("h", "t", 0), OffsetValue(0, topic_id))
        say(cluster, start, (UndoKey("h"), UndoValue((act,))), index=1)

    source = Busy(cluster.store, between_looks(cluster), consume)
    made = copied(source, cluster, tmp_path / "copy")
    assert source.done
    assert UndoKey("h") in inspect(made).groups.undo
    assert made.topic("t").partition(0).high_watermark >= 4


@pytest.mark.parametrize("told", [True, False])
def test_no_group_has_offsets_of_a_transaction_that_its_id_has_not(
    cluster: Cluster, tmp_path: Path, told: bool
) -> None:
    """Between looks at its partition and at that of its group a transactional id commits; the group has
    `told` that this was all, or has a part of the offsets.
    """
    topic_id = cluster.topic("t").topic_id
    name = next(each for each in map(str, range(100)) if not partition_for_key(each.encode(), 2, MURMUR3))
    place, pending = OffsetValue(3, topic_id), PendingKey("h", name)
    say(cluster, (ProducerKey(name), ProducerValue(7, 0, 1_000)))
    say(cluster, (pending, PendingValue(1, (("t", 0, place), ("t", 1, place)))), index=1)

    def commit() -> None:
        say(cluster, (ProducerKey(name), ProducerValue(7, 0, 1_000, 1, True, telling=("h",))))
        say(cluster, (OffsetKey("h", "t", 0), place), *([(pending, None)] if told else []), index=1)

    append(cluster.claim(cluster.topic("t"), 0), b"plain")
    source = Busy(cluster.store, between_looks(cluster), commit)
    made = copied(source, cluster, tmp_path / "copy")
    assert source.done
    assert inspect(made).groups.offsets[OffsetKey("h", "t", 0)].offset == 3
    of_ids = made.topic(CONSUMER_OFFSETS).partition(0)
    of_ids.refresh()
    assert producers_of(dict(replay(of_ids)))[name].number == 1


def test_records_that_retention_removes_from_the_remote_root_are_not_copied(
    tmp_path: Path, clock: ManualClock
) -> None:
    original = tiered_cluster(tmp_path, clock)
    tiered = original.claim(create_topic(original, "t", configs={"remote.storage.enable": "true"}), 0)
    append_each(tiered, VALUES)
    move_topic(original, "t", [2])
    following = commit_path("topics/t/partition=0", tiered.snapshot.version + 1)

    def expire() -> None:
        tiered.truncate(1)
        remote = original.remote
        assert remote is not None
        remove_expired(remote.table("topics/t/partition=0"), 1)

    looks: list[str] = []

    def meets(_: str, path: str) -> bool:
        looks.append(path)
        return looks.count(following) == 2  # when it was opened, and when it is followed

    source = Busy(original.store, meets, expire, after=True)
    made = copied(source, original, tmp_path / "copy").topic("t").partition(0)
    assert source.done
    assert (made.log_start, values(made)) == (1, VALUES[1:])
