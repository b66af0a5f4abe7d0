"""A mirror of a real Kafka that runs in a thread, and what both sides have."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition

from jobs.mirror.groups import SetOffsets
from jobs.mirror.runner import copy_mirror
from jobs.mirror.source import Source
from log_tables.cluster.admin import mirror_admin
from log_tables.cluster.admin.mirror_progress import places_of, progress
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import MirroredFrom, MirrorRecord
from log_tables.cluster.mirror_report import MirrorReport
from log_tables.cluster.process_report import read_report
from log_tables.layout import mirror_directory
from log_tables.record import header_pairs
from log_tables.root.fsck import check
from log_tables.store.disk_room import UNBOUNDED, DiskBounds
from log_tables.store.store import open_store
from tests.kit.kafka import Read, read_all
from tests.kit.kafka_broker import Broker
from tests.kit.support import WAIT_S, wait_until

NAME = "copy"

_NUMBERS = count()
_OFTEN_S = 0.1
_MIB = 1 << 20


@pytest.fixture
def cluster(store_root: Path) -> Cluster:
    """An empty root, on disk."""
    return Cluster.open(open_store(str(store_root)))


@pytest.fixture
def name() -> str:
    """The name of a topic that no other test has."""
    return f"topic-{next(_NUMBERS)}"


class Listener(Protocol):
    """A Kafka, or a gateway that is one to its clients."""

    @property
    def bootstrap(self) -> str: ...


def transactions(kafka: Broker, topic: str, number: int, ends: str) -> Producer:
    """Two records in each of some transactions: committed ones, aborted ones, open ones (`c`, `a`, `o`)."""
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap, "transactional.id": f"{topic}-{number}", "log_level": 0}
    )
    producer.init_transactions()
    for end in ends:
        producer.begin_transaction()
        for each in range(2):
            producer.produce(topic, f"{end}{each}", "key")
        assert producer.flush(WAIT_S) == 0
        if end == "c":
            producer.commit_transaction()
        elif end == "a":
            producer.abort_transaction()
    return producer


def delete_before(kafka: Broker, topic: str, offset: int) -> None:
    """Delete what the first partition of a topic has below an offset, at the source."""
    (done,) = kafka.admin.delete_records([TopicPartition(topic, 0, offset)]).values()
    done.result(WAIT_S)


def note(cluster: Cluster, kafka: Listener, *topics: str, groups: Sequence[str] = (), **facts: Any) -> None:
    """Note the mirror NAME of these topics and groups."""
    cluster_id = Source(kafka.bootstrap).cluster_id()
    record = MirrorRecord(
        NAME, kafka.bootstrap, topics, tuple(groups), cluster_id=cluster_id, created_ms=1, **facts
    )
    mirror_admin.create_mirror(cluster, record, [])


@contextmanager
def running(
    cluster: Cluster,
    look_s: float = _OFTEN_S,
    set_offsets: SetOffsets | None = None,
    disk: DiskBounds = UNBOUNDED,
) -> Iterator[None]:
    """The mirror NAME copies, and ends in order; what ended it before is raised."""
    stopping = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(copy_mirror, cluster, NAME, stopping, look_s, set_offsets, disk)
        try:
            yield
        finally:
            stopping.set()
            done.result(WAIT_S)


def level(cluster: Cluster, kafka: Listener, *topics: str) -> None:
    """Wait until these topics are here, and at the ends that their sources have now."""
    source = Source(kafka.bootstrap)

    def is_level() -> bool:
        cluster.refresh()
        ranges = source.ranges(places_of(mirror_admin.copies_of(cluster, NAME)))
        found = [each for each in progress(cluster, NAME, ranges) if each.topic in topics]
        return {each.topic for each in found} == {*topics} and all(each.lag == 0 for each in found)

    wait_until(is_level, f"{topics} are copied")


def stopped(cluster: Cluster, topic: str) -> str:
    """Wait until the copy of a topic has stopped; returns why."""
    wait_until(lambda: bool(_mirrored(cluster, topic).stopped), f"the copy of {topic} has stopped")
    return _mirrored(cluster, topic).stopped


def trouble(cluster: Cluster, said: str, *, again: bool = False) -> None:
    """Wait until a process that copies reports a trouble with `said` in it; with `again` in a new report."""
    before = {report.number for report in _reports(cluster)} if again else set()

    def is_reported() -> bool:
        return any(said in each.trouble and each.number not in before for each in _reports(cluster))

    wait_until(is_reported, f"{said!r} is reported")


def _reports(cluster: Cluster) -> list[MirrorReport]:
    processes = [info.path.rsplit("/", 1)[-1] for info in cluster.store.list(f"mirrors/{NAME}")]
    found = [
        read_report(cluster.store, mirror_directory(NAME), process, MirrorReport) for process in processes
    ]
    return [report for report in found if report is not None]


def _mirrored(cluster: Cluster, topic: str) -> MirroredFrom:
    cluster.refresh()
    known = cluster.metadata_log.topic(topic)
    return MirroredFrom("", "") if known is None or known.mirrored is None else known.mirrored


def here(cluster: Cluster, topic: str) -> list[Read]:
    """All records of a copy, as `read_all` gives those of its source. Its times have one kind."""
    opened = cluster.topic(topic)
    kind = 2 if opened.config["message.timestamp.type"] == "LogAppendTime" else 1
    found: list[Read] = []
    for number in range(opened.partition_count):
        log = opened.partition(number)
        log.refresh()
        at = log.log_start
        while at < log.high_watermark:
            plan = log.plan_read(at, _MIB)
            for batch in log.read(plan):
                times = [us // 1000 for us in batch["timestamp"].cast(pa.int64()).to_pylist()]
                columns = [batch[name].to_pylist() for name in ("offset", "key", "value")]
                pairs = header_pairs(batch["headers"])
                found += [
                    Read(number, offset, key, value, tuple(headers), (kind, time))
                    for offset, key, value, headers, time in zip(*columns, pairs, times, strict=True)
                ]
            at = plan.end
    return found


def equal(cluster: Cluster, kafka: Listener, topic: str, count: int | None = None) -> list[Read]:
    """Check that the copy of a topic has what its source has, of so many records; returns them."""
    config: dict[str, Any] = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    there = read_all(kafka.bootstrap, topic, cluster.topic(topic).partition_count, **config)
    assert here(cluster, topic) == there
    assert count is None or len(there) == count
    return there


def sound(cluster: Cluster) -> None:
    """Check that the root has no problem."""
    assert check(cluster.store).problems == []
