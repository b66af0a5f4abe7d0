"""A mirror of a Kafka: how fast a backlog is copied, beside MirrorMaker 2 to a Kafka; how late a record is in
SQL; what a thousand quiet partitions cost; how long a promotion takes; and how fast both sides are compared.
"""

import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.cells import PARTITIONS, Figures, scratch
from bench.contest import OURS, Contest, Results, Scale
from bench.gateway import cpu_seconds_of, running, wait_until
from bench.paced import Paced
from bench.peers import Peers
from jobs.mirror.source import Source
from lakelog.spark.java import java_home
from log_tables.clock import SystemClock, timer
from log_tables.cluster.admin.mirror_admin import create_mirror
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import MirrorRecord
from log_tables.errors import Unreachable
from log_tables.root.fsck import check
from log_tables.sql.query import query
from log_tables.store.store import open_store
from log_tables.topic_partition import TopicPartition as Place

NAME = "bench"
QUIET = 1_000
PACE = 1_000
"""Records a second, of which each is awaited in SQL."""

WITHIN_S = 900
_SETTLED_S = 20.0
_CHUNK = 20_000
_RUNS = count()
_LAKELOG = (sys.executable, "-m", "lakelog")


def backlog(peers: Peers | None, scale: Scale) -> Results:
    """Records of 100 bytes in 4 partitions, which are there before the copy begins, until all are copied."""
    assert peers is not None
    topic = f"mirror-{next(_RUNS)}"
    records = scale.seconds * 300_000
    peers.librdkafka_produce(peers.topic(topic), records)
    with scratch() as directory:
        results = {OURS: _copied(peers.bootstrap, topic, records, directory)}
    with scratch() as directory:
        results["MirrorMaker 2 to a Kafka"] = _made(peers.bootstrap, topic, records, directory)
    return results


def _copied(bootstrap: str, topic: str, records: int, directory: Path) -> Figures:
    cluster = _noted(bootstrap, directory, topic)
    begin = timer()
    with _running(directory) as pid:
        wait_until(lambda: _held(cluster, topic) >= records, "all is copied", WITHIN_S)
        seconds, cpu_s = timer() - begin, cpu_seconds_of(pid)
    if check(cluster.store).problems:
        raise RuntimeError("the copy is not sound")
    return {"records/s": records / seconds, "its processor, us/record": 1e6 * cpu_s / records}


def _made(bootstrap: str, topic: str, records: int, directory: Path) -> Figures:
    """MirrorMaker 2 from the broker to itself: its copy has another name."""
    config = {
        "clusters": "east, west",
        "east.bootstrap.servers": bootstrap,
        "west.bootstrap.servers": bootstrap,
        "east->west.enabled": "true",
        "west->east.enabled": "false",
        "topics": topic,
        "groups": "none",
        "replication.factor": 1,
        **{f"{each}.replication.factor": 1 for each in ("checkpoints.topic", "heartbeats.topic")},
        **{f"{each}.storage.replication.factor": 1 for each in ("offset", "status", "config")},
        "offset-syncs.topic.replication.factor": 1,
        "tasks.max": PARTITIONS,
        "sync.topic.acls.enabled": "false",
        "listeners": "http://127.0.0.1:0",
    }
    file = directory / "mirror.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
    jars = ":".join(f"{Path('.tools', each).absolute()}/*" for each in ("kafka", "kafka-connect"))
    command = [str(java_home() / "bin" / "java"), "-Xms256M", "-Xmx2G", "-cp", jars]  # as its script has it
    begin = timer()
    with running([*command, "org.apache.kafka.connect.mirror.MirrorMaker", str(file)], directory) as pid:
        ends = Source(bootstrap)

        def held() -> int:
            try:
                found = ends.ranges([Place(f"east.{topic}", number) for number in range(PARTITIONS)])
            except Unreachable:
                return 0  # it has not made the topic yet
            return sum(each.end for each in found.values())

        wait_until(lambda: held() > 0, "MirrorMaker has begun", WITHIN_S)
        first, first_s = held(), timer()
        wait_until(lambda: held() >= records, "all is copied", WITHIN_S)
        now = timer()
        cpu_s = cpu_seconds_of(pid)
    return {
        "records/s": records / (now - begin),
        "records/s, once it has begun": (records - first) / (now - first_s),
        "its processor, us/record": 1e6 * cpu_s / records,
    }


def latency(peers: Peers | None, scale: Scale) -> Results:
    """Records at a pace of 1,000 a second over 4 partitions: ms from the source's acknowledgement until SQL
    gives the record; and what a query takes.
    """
    assert peers is not None
    topic = peers.topic(f"mirror-{next(_RUNS)}")
    with scratch() as directory:
        cluster = _noted(peers.bootstrap, directory, topic)
        with _running(directory):
            late, asked = _lateness(peers.bootstrap, cluster, topic, scale.seconds)
    cuts = statistics.quantiles(late, n=100)
    return {
        OURS: {
            "p50 ms": 1e3 * cuts[49],
            "p99 ms": 1e3 * cuts[98],
            "a query, ms": 1e3 * statistics.median(asked),
        }
    }


def _lateness(
    bootstrap: str, cluster: Cluster, topic: str, seconds: int
) -> tuple[Sequence[float], Sequence[float]]:
    """A query at a time asks for the newest offsets; a record is seen by the first that has it."""
    wait_until(lambda: _exists(cluster, topic), "the topic is here")
    late: list[float] = []
    asked: list[float] = []
    seen_up_to = dict.fromkeys(range(PARTITIONS), -1)
    text = f'SELECT "partition", max("offset") FROM "{topic}" GROUP BY "partition"'
    with Paced(bootstrap, topic, PARTITIONS, PACE, seconds) as load:
        while load.runs():
            at = timer()
            found = query(cluster, text).to_pylist()
            seen = timer()
            asked.append(seen - at)
            for number, newest in (row.values() for row in found):
                ends = range(seen_up_to[number] + 1, newest + 1)
                seen_up_to[number] = newest
                times = [load.acknowledged.get((number, offset)) for offset in ends]
                late.extend(seen - each for each in times if each is not None)
    return late, asked


def quiet(peers: Peers | None, scale: Scale) -> Results:
    """The share of a core that 1,000 quiet partitions cost, and the commits meanwhile."""
    assert peers is not None
    admin = AdminClient({"bootstrap.servers": peers.bootstrap})
    names = [f"quiet-{next(_RUNS)}-{number}" for number in range(QUIET // 10)]
    for done in admin.create_topics([NewTopic(name, 10, 1) for name in names]).values():
        done.result()
    producer = Producer({"bootstrap.servers": peers.bootstrap})
    for name in names:
        for number in range(10):
            producer.produce(name, b"once", partition=number)
        producer.poll(0)
    producer.flush()
    with scratch() as directory:
        cluster = _noted(peers.bootstrap, directory, *names)
        with _running(directory) as pid:
            wait_until(
                lambda: sum(_held(cluster, name) for name in names) == QUIET, "all is copied", WITHIN_S
            )
            SystemClock().pause(_SETTLED_S)
            before, versions = cpu_seconds_of(pid), _versions(cluster, names)
            SystemClock().pause(scale.seconds)
            used = (cpu_seconds_of(pid) - before) / scale.seconds
            commits = _versions(cluster, names) - versions
    return {OURS: {"of a core": used, "commits": commits}}


def promotion(peers: Peers | None, _: Scale) -> Results:
    """Seconds of `lakelog mirror promote` of a topic with 4 partitions, from its call to its end."""
    assert peers is not None
    topic = peers.topic(f"mirror-{next(_RUNS)}")
    peers.librdkafka_produce(topic, 100_000)
    with scratch() as directory:
        cluster = _noted(peers.bootstrap, directory, topic)
        with _running(directory):
            wait_until(lambda: _held(cluster, topic) >= 100_000, "all is copied", WITHIN_S)
            begin = timer()
            subprocess.run(
                [*_LAKELOG, "mirror", "promote", NAME, "--data", str(directory / "root")], check=True
            )
            return {OURS: {"s": timer() - begin}}


def verification(peers: Peers | None, scale: Scale) -> Results:
    """Seconds of `lakelog mirror verify` over a topic with 4 partitions that is copied"""
    assert peers is not None
    topic, records = peers.topic(f"mirror-{next(_RUNS)}"), scale.seconds * 300_000
    peers.librdkafka_produce(topic, records)
    with scratch() as directory:
        cluster = _noted(peers.bootstrap, directory, topic)
        with _running(directory):
            wait_until(lambda: _held(cluster, topic) >= records, "all is copied", WITHIN_S)
        begin = timer()
        subprocess.run([*_LAKELOG, "mirror", "verify", NAME, "--data", str(directory / "root")], check=True)
        return {OURS: {"records/s": records / (timer() - begin)}}


def _noted(bootstrap: str, directory: Path, *topics: str) -> Cluster:
    cluster = Cluster.open(open_store(str(directory / "root")))
    record = MirrorRecord(NAME, bootstrap, topics, cluster_id=Source(bootstrap).cluster_id(), created_ms=1)
    create_mirror(cluster, record, [])
    return cluster


@contextmanager
def _running(directory: Path) -> Iterator[int]:
    command = [*_LAKELOG, "mirror", "run", NAME, "--data", str(directory / "root")]
    with running(command, directory) as pid:
        yield pid


def _exists(cluster: Cluster, topic: str) -> bool:
    cluster.refresh()
    return cluster.cached_topic(topic) is not None


def _held(cluster: Cluster, topic: str) -> int:
    """The offsets of a copy."""
    if not _exists(cluster, topic):
        return 0
    return sum(each.refresh().high_watermark for each in cluster.topic(topic).partitions())


def _versions(cluster: Cluster, names: Sequence[str]) -> int:
    return sum(each.refresh().version for name in names for each in cluster.topic(name).partitions())


CELLS: dict[str, Contest] = {
    "mirror": Contest(backlog, needs_broker=True),
    "mirror: source to SQL": Contest(latency, needs_broker=True),
    "mirror: quiet partitions": Contest(quiet, needs_broker=True),
    "mirror: promotion": Contest(promotion, needs_broker=True),
    "mirror: verification": Contest(verification, needs_broker=True),
}
