"""Housekeeping on a disk without any room: it deletes what it may, and with that room it does the rest."""

import shutil
from pathlib import Path

from jobs.housekeeping import NAME
from jobs.maintenance import Maintenance, jobs_named
from jobs.outcome import JobOutcome
from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.limits import CHECKPOINT_INTERVAL_COMMITS, FILE_RETENTION_MS, MIB
from log_tables.root.fsck import check
from log_tables.store.local import LocalStore
from log_tables.testing import ClockedStore
from tests.kit.engines import always, no_engine
from tests.kit.partitions import append, append_each, values
from tests.kit.small_disk import fill, small_disk


def test_files_go_that_may_and_the_rest_is_done_with_their_room(tmp_path: Path, clock: ManualClock) -> None:
    with small_disk(tmp_path / "disk", 16 * MIB) as disk:
        (disk / "root").mkdir()
        store = ClockedStore(LocalStore(disk / "root", clock), clock)
        cluster = Cluster.open(store, clock)
        log = cluster.claim(create_topic(cluster, "t"), 0)

        def tidy() -> list[JobOutcome]:
            jobs = jobs_named([NAME])
            return [*Maintenance(Cluster.open(store, clock, create=False), always(no_engine), jobs).run()]

        for _ in range(4):
            append(log, bytes.fromhex(clock.random_hex(2 * MIB)))
        log.truncate(4)
        assert [each for each in tidy() if each.error] == []
        clock.advance(FILE_RETENTION_MS)
        append_each(log, [b"%d" % number for number in range(CHECKPOINT_INTERVAL_COMMITS)])
        clock.advance(1_000)
        fill(disk / "filling")
        done = {each.topic: each for each in tidy()}
        assert done["t"].error is None
        assert (done["t"].files_before, done["t"].files_after) == (4, 1)
        assert shutil.disk_usage(disk).free > 3 * MIB
        assert [each for each in tidy() if each.error] == []
        assert len(values(log)) == CHECKPOINT_INTERVAL_COMMITS
        assert check(store).problems == []
