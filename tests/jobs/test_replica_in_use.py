"""A standby is at every moment a root that the original could have been, while clients are busy."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jobs.replica.replicator import Replicator
from log_tables.clock import SystemClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.root.fsck import check
from log_tables.root.promote import promote
from log_tables.store.store import Store, open_store
from log_tables.store.wrapper import StoreWrapper
from log_tables.testing import Fault, FaultyStore, answer_lost
from tests.kit.gateway import running_gateway
from tests.kit.partitions import append, values
from tests.kit.root_clients import busy
from tests.kit.standby import Watched, follow, has, logs, newest_versions
from tests.kit.support import S3Server, wait_until


def test_a_standby_is_whole_while_clients_are_busy(tmp_path: Path) -> None:
    target = Watched(open_store(tmp_path / "there"))
    with busy(str(tmp_path / "here"), {}) as clients:
        source = open_store(tmp_path / "here")
        begun = clients.copied
        follow(source, target, until=lambda: clients.copied > begun + 60 and target.checked > 60)
        assert check(target.inner).problems == []
    assert target.problems == []
    follow(source, target)
    assert logs(target) == logs(source)
    assert check(target.inner).problems == []


@pytest.mark.parametrize("is_here", [True, False], ids=["from a disk", "from a bucket"])
def test_a_bucket_follows_while_clients_are_busy(s3: S3Server, tmp_path: Path, is_here: bool) -> None:
    """It is promoted once its root is gone, and takes records; of its requests some fail."""
    bucket = s3.bucket(f"standby-{'disk' if is_here else 'bucket'}")
    here, there = str(tmp_path / "here") if is_here else f"{bucket}/here", f"{bucket}/there"
    faults = [Fault(number, answer_lost, {"put_if_absent"}) for number in (5, 20, 40)]
    target, ended = Watched(FaultyStore(open_store(there, s3.options), faults)), threading.Event()
    source = open_store(here, s3.options)
    with ThreadPoolExecutor(1) as pool:
        with busy(here, {} if is_here else s3.options) as clients:
            begun = clients.copied
            following = pool.submit(
                follow, source, target, lambda: ended.is_set() and has(target, newest_versions(source))
            )
            wait_until(lambda: clients.copied > begun + 20, "clients go on")
        ended.set()
        following.result()
    assert target.problems == []
    assert logs(target) == logs(source)
    expected = [*read(source)]
    for path in [item.path for item in source.list("")]:
        source.delete(path)
    promoted = open_store(there, s3.options)
    promote(promoted, SystemClock())
    assert [*read(promoted)] == expected
    assert check(promoted).problems == []
    with running_gateway(there, store_options=json.dumps(s3.options)) as gateway:
        assert gateway.produce("in", 1).status_code == 200


class Paid(StoreWrapper):
    """A store whose requests cost money, so that it is looked at less often."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.url = "s3://restless"


def test_a_table_that_never_rests_lags_by_a_look_alone() -> None:
    source, clock, stopping = Paid(open_store("memory://restless")), SystemClock(), threading.Event()
    cluster, lags = Cluster.open(source), list[float]()
    partition = cluster.claim(create_topic(cluster, "t", 1), 0)
    replicator = Replicator(source, open_store("memory://standby"), clock)
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(replicator.run, stopping, lambda now: lags.append(now.lag_s))
        while len(lags) < 5:
            append(partition, b"on")
            clock.pause(0.01)  # each look finds some, and not the most that it may
        stopping.set()
        following.result()
    assert min(lags[3:]) < 2


def read(store: Store) -> Iterator[list[bytes | None]]:
    """The values of each partition of clients' topics."""
    for topic in Cluster.open(store, SystemClock(), create=False).topics():
        yield from map(values, topic.partitions())
