"""Staged files of Kafka's clients hold records of many transactions, committed and open ones."""

from log_tables.clock import ManualClock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import (
    Intent,
    IntentKey,
    TransactionsKey,
    TransactionsValue,
    ids_group,
    pending_files,
)
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.limits import KEPT_PRODUCER_ID_MIN, STAGING_RETENTION_MS
from log_tables.root.fsck import check
from log_tables.root.inspection import inspect
from log_tables.segments.producer_staging import ProducerFile, ProducerRecords, joined, stage
from log_tables.segments.staging import StagedFile
from log_tables.testing import ClockedStore
from log_tables.topic_partition import TopicIdPartition
from tests.kit.groups import say
from tests.kit.partitions import entry


def shared_file(cluster: Cluster) -> ProducerFile:
    """A staged file of two transactions of Kafka's clients, one of which is committed and not yet applied."""
    topic = cluster.topic("t")
    at = TopicIdPartition("t", topic.topic_id, 0)
    entries = [
        ProducerRecords(name, 7, 0, 1, 0, at, entry(value).records)
        for name, value in (("open", b"waiting"), ("ended", b"settled"))
    ]
    file = stage(cluster.store, cluster.clock, 0, entries, joined(entries))
    committed = StagedFile(file.path, (file.runs[1].run,))
    group = ids_group(0)
    say(cluster, (TransactionsKey(group), TransactionsValue(KEPT_PRODUCER_ID_MIN, 1)))
    say(cluster, (IntentKey(group, 1), Intent(KEPT_PRODUCER_ID_MIN, 1, (committed,))))
    return file


def test_a_staged_file_that_transactions_share_is_whole(cluster: Cluster) -> None:
    shared_file(cluster)
    assert check(cluster.store).problems == []
    assert inspect(cluster).problems == []


def test_fsck_names_a_committed_run_of_a_shared_file_that_was_changed(cluster: Cluster) -> None:
    file = shared_file(cluster)
    data = bytes(cluster.store.get(file.path))
    cluster.store.put(file.path, data.replace(b"settled", b"SETTLED"))
    (problem,) = check(cluster.store).problems
    assert "is missing, cut short or changed" in problem


def test_fsck_names_a_staged_file_that_does_not_say_whose_it_is(cluster: Cluster) -> None:
    cluster.store.put("staging/0/0-0.arrow", b"garbage")
    (problem,) = check(cluster.store).problems
    assert "the staged file staging/0/0-0.arrow cannot be read" in problem


def test_fsck_doubts_staged_files_of_yesterday_that_no_transaction_needs(cluster: Cluster) -> None:
    shared_file(cluster)
    at = TopicIdPartition("t", cluster.topic("t").topic_id, 0)
    left = stage(
        cluster.store, cluster.clock, 0, [ProducerRecords("x", 7, 0, 1, 1, at, entry(b"").records)], [[0]]
    )
    assert check(cluster.store).doubts == []
    written_ms = max(item.modified_ms for item in cluster.store.list("staging/"))
    later = ManualClock(written_ms + STAGING_RETENTION_MS + 1)
    (doubt,) = check(ClockedStore(cluster.store, later)).doubts
    assert f"the staged file {left.path} is older than a day" in doubt


def test_a_vacuum_leaves_a_shared_file_while_one_of_its_transactions_is_committed(cluster: Cluster) -> None:
    file = shared_file(cluster)
    partitions = cluster.topic(CONSUMER_OFFSETS).partitions()
    assert file.path in pending_files(partitions)
    say(cluster, (IntentKey(ids_group(0), 1), None))
    for partition in partitions:
        partition.refresh()
    assert file.path not in pending_files(partitions)
