"""The metadata log says which topics and which gateways there are: one record of a key, whoever writes it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from jobs import key_compaction
from jobs.state import look
from log_tables.clock import ManualClock, SystemClock
from log_tables.cluster.admin.topic_admin import alter_topic, create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import (
    BrokerLeft,
    BrokerRecord,
    MetadataRecord,
    MirroredFrom,
    MirrorRecord,
    MirrorRemoved,
    TopicRecord,
    decode,
    encode,
)
from log_tables.errors import BrokerReplaced, CorruptLog
from log_tables.layout import CLUSTER_METADATA, METADATA_DIRECTORY, TOPICS
from log_tables.limits import METADATA_HISTORY_MS
from log_tables.partition.partition import AppendRequest
from log_tables.record import Record, input_batch
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from log_tables.testing import Fault, FaultyStore
from tests.kit.clusters import another, names
from tests.kit.engines import in_process
from tests.kit.failures import before
from tests.kit.partitions import entry, records
from tests.kit.support import S3Server

HOUR_MS = 60 * 60 * 1000


def brokers(cluster: Cluster) -> dict[int, BrokerRecord]:
    cluster.refresh()
    return dict(cluster.metadata_log.brokers)


# Records.


@pytest.mark.parametrize(
    ("record", "key"),
    [
        (TopicRecord("t", "id", 2, 3, {"compression.type": "lz4"}, False, {2: 5}), b"t"),
        (TopicRecord("t", "id", 1, 3, {}, mirrored=MirroredFrom("kafka", "t", "0f" * 16, "gone")), b"t"),
        (MirrorRecord("kafka", "a:9092,b:9092", ("orders", "^x.*"), ("^.*",), "kafka.conf", "c1"), b"@kafka"),
        (MirrorRemoved("kafka"), b"@kafka"),
        (BrokerRecord(12, "http://here", "1a", 5, {"t": [0, 2]}), b"~12"),
        (BrokerLeft(12), b"~12"),
    ],
)
def test_records_come_back_as_they_were(record: MetadataRecord, key: bytes) -> None:
    row = encode(record)
    assert row.key == key
    assert decode(row) == record


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b'{"name":7}'),
        (b"t", None),
    ],
)
def test_a_spoilt_record_is_named(cluster: Cluster, key: bytes | None, value: bytes | None) -> None:
    create_topic(cluster, "t")
    cluster.metadata_log.partition.append([AppendRequest(input_batch([Record(value, key)], 0))])
    with pytest.raises(CorruptLog, match="offset 1 of topics/__cluster_metadata/partition=0"):
        another(cluster)
    with pytest.raises(CorruptLog, match="offset 1 of topics/__cluster_metadata/partition=0"):
        cluster.refresh()
    assert "the metadata log cannot be read" in check(cluster.store).problems[0]


@pytest.mark.parametrize(("key", "value"), [(b"~1", b'{"id":1}'), (b"~one", None), (b"~", None)])
def test_a_spoilt_record_of_a_gateway_is_passed_over(
    cluster: Cluster, key: bytes, value: bytes | None
) -> None:
    create_topic(cluster, "t")
    cluster.metadata_log.partition.append([AppendRequest(input_batch([Record(value, key)], 0))])
    create_topic(cluster, "u")
    assert [topic.name for topic in another(cluster).topics()] == ["t", "u"]
    assert another(cluster).metadata_log.brokers == {}


def test_a_long_metadata_log_is_opened_from_its_checkpoint(cluster: Cluster, clock: ManualClock) -> None:
    create_topic(cluster, "t")
    for number in range(1, 8):
        alter_topic(cluster, "t", {"max.message.bytes": str(number)})
    cluster.metadata_log.partition.checkpoint()
    clock.advance(2 * HOUR_MS)
    assert cluster.metadata_log.partition.table.delete_expired_log() > 0
    assert another(cluster).topic("t").config["max.message.bytes"] == "7"
    create_topic(another(cluster), "u")
    assert names(cluster) == ["t", "u"]
    cluster.metadata_log.partition.claim("http://first")
    cluster.metadata_log.partition.sequence(entry(b"never committed"))
    assert names(another(cluster)) == ["t", "u"]


# Gateways.


def test_a_gateway_is_known_to_everyone_by_a_number_of_its_own(cluster: Cluster, clock: ManualClock) -> None:
    elsewhere = another(cluster)
    clock.advance(7)
    first, second = (
        cluster.metadata_log.register_broker("http://a"),
        elsewhere.metadata_log.register_broker("http://b"),
    )
    assert (first.id, first.url, first.since_ms, first.leads) == (1, "http://a", clock.now_ms(), {})
    assert (second.id, second.url) == (2, "http://b")
    assert first.incarnation != second.incarnation
    for process in (cluster, elsewhere, another(cluster)):
        assert brokers(process) == {1: first, 2: second}


def test_a_gateway_that_starts_again_keeps_its_number(cluster: Cluster) -> None:
    log = cluster.metadata_log
    first, second = log.register_broker("http://a"), log.register_broker("http://b")
    log.publish_broker(replace(second, leads={"t": [0]}))
    again = another(cluster).metadata_log.register_broker("http://b")
    assert (again.id, again.leads) == (2, {})
    assert again.incarnation != second.incarnation
    assert brokers(cluster) == {1: first, 2: again}


def test_a_number_is_free_again_when_its_gateway_has_left(cluster: Cluster) -> None:
    log = cluster.metadata_log
    first, second = log.register_broker("http://a"), log.register_broker("http://b")
    log.remove_broker(first)
    assert brokers(another(cluster)) == {2: second}
    assert [another(cluster).metadata_log.register_broker(f"http://{name}").id for name in "cd"] == [1, 3]


def test_gateways_that_register_at_once_have_different_numbers(store_root: Path) -> None:
    processes = [Cluster.open(open_store(store_root), SystemClock(), f"http://{n}") for n in range(3)]
    start = threading.Barrier(3)

    def run(process: Cluster) -> int:
        start.wait()
        return process.metadata_log.register_broker(process.url).id

    with ThreadPoolExecutor(3) as pool:
        assert sorted(pool.map(run, processes)) == [1, 2, 3]
    assert sorted(brokers(processes[0])) == [1, 2, 3]


def test_a_gateway_tells_what_it_leads(cluster: Cluster) -> None:
    elsewhere = another(cluster)
    made = cluster.metadata_log.register_broker("http://a")
    cluster.metadata_log.publish_broker(replace(made, leads={"t": [0, 2]}))
    assert brokers(elsewhere)[1].leads == {"t": [0, 2]}


def test_a_gateway_whose_url_another_took_tells_nothing_any_more(cluster: Cluster) -> None:
    old = cluster.metadata_log.register_broker("http://a")
    new = another(cluster).metadata_log.register_broker("http://a")
    end = another(cluster).metadata_log.partition.high_watermark
    with pytest.raises(BrokerReplaced, match=r"another gateway registered at http://a .* its own URL"):
        cluster.metadata_log.publish_broker(replace(old, leads={"t": [0]}))
    cluster.metadata_log.remove_broker(old)
    assert brokers(another(cluster)) == {1: new}
    assert another(cluster).metadata_log.partition.high_watermark == end


def test_a_gateway_that_left_tells_nothing_any_more(cluster: Cluster) -> None:
    made = cluster.metadata_log.register_broker("http://a")
    for _ in range(2):
        cluster.metadata_log.remove_broker(made)
    with pytest.raises(BrokerReplaced):
        cluster.metadata_log.publish_broker(made)
    assert brokers(cluster) == {}
    assert cluster.metadata_log.partition.high_watermark == 2


def test_who_tells_at_once_with_another_decides_again(cluster: Cluster) -> None:
    """Between the look at the log and the append another gateway registers at the same url."""
    made = cluster.metadata_log.register_broker("http://a")
    taken = Fault(1, before(lambda: another(cluster).metadata_log.register_broker("http://a")), {"put_new"})
    slow = another(cluster, FaultyStore(cluster.store, [taken]))
    with pytest.raises(BrokerReplaced):
        slow.metadata_log.publish_broker(made)


def test_gateways_are_no_change_of_topics(cluster: Cluster) -> None:
    create_topic(cluster, "t")
    version = cluster.version
    made = cluster.metadata_log.register_broker("http://a")
    cluster.metadata_log.publish_broker(replace(made, leads={"t": [0]}))
    cluster.metadata_log.remove_broker(made)
    assert cluster.version == version
    alter_topic(cluster, "t", {"retention.ms": "1"})
    assert cluster.version > version


def test_a_root_with_gateways_is_sound_and_its_topics_are_checked(cluster: Cluster) -> None:
    create_topic(cluster, "t")
    cluster.metadata_log.remove_broker(cluster.metadata_log.register_broker("http://a"))
    cluster.claim(cluster.topic("t"), 0, cluster.metadata_log.register_broker("http://b").id)
    report = check(cluster.store)
    assert report.problems == []
    assert [found.directory for found in report.partitions] == [
        "topics/__cluster_metadata/partition=0",
        "topics/t/partition=0",
    ]


def test_compaction_keeps_who_is_there_and_forgets_in_the_end_who_left(
    store_root: Path, clock: ManualClock
) -> None:
    cluster = Cluster.open(open_store(store_root), clock, "http://first")
    log = cluster.metadata_log
    stays, leaves = log.register_broker("http://a"), log.register_broker("http://b")
    for number in range(5):
        stays = replace(stays, leads={"t": [number]})
        log.publish_broker(stays)
    log.remove_broker(leaves)
    create_topic(cluster, "t")

    def compacted() -> list[bytes | None]:
        states = [state for state in look(cluster)[0] if state.topic == CLUSTER_METADATA]
        steps = key_compaction.plan(states, clock.now_ms(), dirty_records_min=1)
        (outcome,) = key_compaction.run(in_process, cluster, steps)
        assert outcome.error is None
        opened = Cluster.open(cluster.store, clock)
        assert (dict(opened.metadata_log.brokers), names(opened)) == ({1: stays}, ["t"])
        return [record.key for record in records(opened.metadata_log.partition)]

    clock.advance(METADATA_HISTORY_MS + HOUR_MS)
    assert compacted() == [b"~1", b"~2", b"t"]
    alter_topic(cluster, "t", {"retention.ms": "1"})
    clock.advance(METADATA_HISTORY_MS + 25 * HOUR_MS)
    assert compacted() == [b"~1", b"t"]
    assert check(cluster.store).problems == []


def test_a_root_is_empty_though_a_directory_is_shown_before_its_file(s3: S3Server) -> None:
    """As by a bucket on a disk, where another gateway is just creating the log."""
    store = open_store(s3.bucket("shown-early"), s3.options)
    (s3.directory / "shown-early" / METADATA_DIRECTORY).mkdir(parents=True)
    assert store.list_dirs(f"{TOPICS}/") == ["topics/__cluster_metadata"]
    assert Cluster.open(store).metadata_log.brokers == {}
