"""Several processes copy one mirror: they share its partitions, and none is copied by two or by nobody."""

import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka.cimpl import NewPartitions

from jobs.mirror.sharing import Sharing
from log_tables.clock import ManualClock
from log_tables.cluster.admin.mirror_progress import SourceRange
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.mirror_report import MirrorReport
from log_tables.cluster.process_report import put_report, read_report
from log_tables.layout import mirror_directory
from log_tables.store.store import Store, open_store
from log_tables.topic_partition import TopicPartition
from tests.kit.kafka import librdkafka_producer
from tests.kit.kafka_broker import Broker
from tests.kit.mirrors import NAME, cluster, equal, level, name, note, running, sound
from tests.kit.support import WAIT_S, wait_until

__all__ = ["cluster", "name"]

PLACES = [TopicPartition(f"topic-{topic}", number) for topic in range(30) for number in range(4)]
LOOK_MS = 3_000


@pytest.fixture
def store(store_root: Path) -> Store:
    return open_store(str(store_root))


def ended_process() -> int:
    """The number of a process of this machine that is no more."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        return process.pid


def owners(*processes: Sharing) -> list[list[str]]:
    """The processes that believe to have a partition, for each."""
    return [[each.process for each in processes if each.owns(place)] for place in PLACES]


def look(clock: ManualClock, *processes: Sharing) -> None:
    """Each process looks, and reports, at a time of its own."""
    for each in processes:
        clock.advance(LOOK_MS // len(processes))
        each.look()
        each.report({}, {})


def processes(store: Store, clock: ManualClock, count: int) -> list[Sharing]:
    return [Sharing(store, clock, NAME) for _ in range(count)]


def test_each_partition_is_copied_by_one_of_them_and_all_have_some(store: Store, seed: int) -> None:
    clock = ManualClock(seed=seed)
    three = processes(store, clock, 3)
    for each in three:
        each.look()
    look(clock, *three)
    found = owners(*three)
    assert all(len(each) == 1 for each in found)
    assert len(Counter(each[0] for each in found)) == 3


def test_who_comes_and_goes_moves_only_its_own(store: Store, seed: int) -> None:
    clock = ManualClock(seed=seed)
    one, two, three = processes(store, clock, 3)
    for _ in range(2):
        look(clock, one, two)
    before = owners(one, two)
    for _ in range(2):
        look(clock, one, two, three)
    for old, new in zip(before, owners(one, two, three), strict=True):
        assert new in (old, [three.process])
    three.close()
    look(clock, one, two)
    assert owners(one, two) == before


def test_a_process_that_is_silent_loses_all_and_gets_it_back(store: Store, seed: int) -> None:
    clock = ManualClock(seed=seed)
    one, two = processes(store, clock, 2)
    for _ in range(2):
        look(clock, one, two)
    before = owners(one, two)
    for _ in range(5):
        look(clock, one)
    assert all(map(one.owns, PLACES))
    for _ in range(2):
        look(clock, two, one)
    assert owners(one, two) == before


def test_one_that_was_killed_on_this_machine_is_not_waited_for(store: Store, seed: int) -> None:
    clock = ManualClock(seed=seed)
    ended = ended_process()
    put_report(store, mirror_directory(NAME), MirrorReport("killed", 7, socket.gethostname(), ended))
    put_report(store, mirror_directory(NAME), MirrorReport("elsewhere", 7, "another host", ended))
    (one,) = processes(store, clock, 1)
    one.look()
    assert not all(map(one.owns, PLACES))  # that of the other machine may live
    for _ in range(5):
        look(clock, one)
    assert all(map(one.owns, PLACES))


def test_the_number_of_a_process_is_believed_only_until_its_report_changes(store: Store, seed: int) -> None:
    clock = ManualClock(seed=seed)
    ended = ended_process()
    (one,) = processes(store, clock, 1)
    for number in range(3):
        put_report(
            store,
            mirror_directory(NAME),
            MirrorReport("a machine of that name", number, socket.gethostname(), ended),
        )
        look(clock, one)
        assert all(map(one.owns, PLACES)) is (number == 0)


def test_reports_of_the_dead_go_after_an_hour(store: Store, seed: int) -> None:
    clock = ManualClock(seed=seed)
    put_report(store, mirror_directory(NAME), MirrorReport("dead", 7, "another host"))
    (one,) = processes(store, clock, 1)
    for _ in range(3_600 // 3 + 10):
        look(clock, one)
    assert read_report(store, mirror_directory(NAME), "dead", MirrorReport) is None


def test_a_report_says_for_how_long_the_copy_is_behind(store: Store, seed: int) -> None:
    clock, place = ManualClock(seed=seed), PLACES[0]
    (one,) = processes(store, clock, 1)
    for end, position, behind_s in (
        (5, 5, 0),
        (7, 5, 0),
        (9, 5, 3),
        (9, 7, 3),
        (9, 8, 6),
        (9, 9, 0),
        (12, 9, 0),
    ):
        one.report({place: SourceRange(2, end)}, {place: position})
        found = read_report(store, mirror_directory(NAME), one.process, MirrorReport)
        assert found is not None
        (at,) = found.topics[place.topic]
        assert (at.partition, at.start, at.end, at.behind_s) == (0, 2, end, behind_s)
        clock.advance(LOOK_MS)
    one.report_trouble("the source is asleep")
    found = read_report(store, mirror_directory(NAME), one.process, MirrorReport)
    assert found is not None
    assert found.trouble == "the source is asleep"
    assert found.topics[place.topic][0].behind_s == 3


def test_three_processes_copy_all_while_they_come_and_go(kafka: Broker, cluster: Cluster, name: str) -> None:
    kafka.create_topic(name, 12)
    note(cluster, kafka, name)
    opened = [Cluster.open(open_store(cluster.store.url)) for _ in range(3)]

    def send(count: int) -> None:
        producer = librdkafka_producer(kafka.bootstrap)
        for number in range(count):
            producer.produce(name, b"%d" % number, partition=number % 12)
        assert producer.flush(WAIT_S) == 0

    def share() -> Counter[str]:
        found: Counter[str] = Counter()
        for info in cluster.store.list(f"mirrors/{NAME}"):
            process = info.path.rsplit("/", 1)[-1]
            report = read_report(cluster.store, mirror_directory(NAME), process, MirrorReport)
            if report is not None:
                found[process] += sum(map(len, report.topics.values()))
        return found

    def partitions() -> int:
        cluster.refresh()
        return cluster.topic(name).partition_count

    def shared(among: int) -> bool:
        counts = share().values()
        return len(counts) == among and sum(counts) == partitions() and min(counts) > 0

    send(120)
    with running(opened[0]):
        level(cluster, kafka, name)
        with running(opened[1]), running(opened[2]):
            wait_until(lambda: shared(3), "they share the partitions")
            send(240)
            level(cluster, kafka, name)
            for count in range(13, 17):
                kafka.admin.create_partitions([NewPartitions(name, count)])[name].result(WAIT_S)
                wait_until(lambda: partitions() == count, "it grows")  # noqa: B023 -- called at once
            wait_until(lambda: shared(3), "they share those, too")
        send(120)
        level(cluster, kafka, name)
        wait_until(lambda: shared(1), "one copies all")
    equal(cluster, kafka, name, 480)
    sound(cluster)
