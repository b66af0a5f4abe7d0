"""The files that commits and merges leave behind in a busy table, hour by hour."""

from functools import partial
from pathlib import Path

from jobs import housekeeping, segment_compaction
from jobs.maintenance import Job, Maintenance
from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.layout import commit_version, segment_base_offset
from log_tables.limits import LOG_RETENTION_MS, REPLACED_FILE_RETENTION_MS
from log_tables.partition.partition import Partition
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from log_tables.testing import ClockedStore
from tests.kit.engines import always, in_process
from tests.kit.partitions import another, append, values

ROUND_MS = 5 * 60_000
PER_ROUND = 10
HOURS = 3
PLAN = partial(housekeeping.plan, checkpoint_interval_commits=PER_ROUND, tidy_tombstones=PER_ROUND)
"""A table that gets few commits is checkpointed and vacuumed as one that gets many."""


def left(partition: Partition) -> tuple[int, int]:
    """How many files of segments are not in the table, and how many commits there are."""
    paths = [item.path for item in partition.table.store.list(f"{partition.directory}/")]
    commits = sum(commit_version(path) is not None for path in paths)
    files = sum(segment_base_offset(path) is not None for path in paths)
    return files - len(another(partition).snapshot.segments), commits


def test_replaced_files_and_commits_stay_for_an_hour_and_a_run(tmp_path: Path, clock: ManualClock) -> None:
    store = ClockedStore(open_store(tmp_path / "root"), clock)
    cluster = Cluster.open(store, clock)
    partition = cluster.claim(create_topic(cluster, "t"), 0)
    merging = Job(segment_compaction.NAME, segment_compaction.plan, segment_compaction.run)
    tidying = Job(housekeeping.NAME, PLAN, housekeeping.run)
    maintenance = Maintenance(
        Cluster.open(store, clock, create=False), always(in_process), (merging, tidying)
    )
    found = []
    for _ in range(HOURS * 3_600_000 // ROUND_MS):
        for _ in range(PER_ROUND):
            clock.advance(ROUND_MS // PER_ROUND)
            append(partition, b"%d" % partition.high_watermark)
        found.append(left(partition))
        assert [outcome.error for outcome in maintenance.run() if outcome.error] == []
    rounds = max(LOG_RETENTION_MS, REPLACED_FILE_RETENTION_MS) // ROUND_MS + 2
    # A merge replaces earlier merges too, one file in several rounds; it and a vacuum are a commit each.
    assert max(files for files, _ in found) <= rounds * (PER_ROUND + 2)
    assert max(commits for _, commits in found) <= rounds * (PER_ROUND + 3)
    later = found[len(found) // 2 :]
    assert max(later)[0] - min(later)[0] <= 2 * PER_ROUND
    assert values(another(partition)) == [b"%d" % number for number in range(partition.high_watermark)]
    assert check(store).problems == []
