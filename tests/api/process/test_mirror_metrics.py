"""Mirrors in a gateway's metrics: how far behind they are, while a process lives that says so."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from api.mirror_reports import MirrorReports
from api.process.mirror_metrics import LOOKS_MAX, MirrorFollower, MirrorMetrics
from log_tables.clock import ManualClock
from log_tables.cluster.admin.mirror_admin import pause, resume, stop_copy
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.mirror_report import SourcePartition
from log_tables.cluster.process_report import SILENT_S
from log_tables.store.store import open_store
from log_tables.testing import FaultyStore
from tests.kit.clusters import another
from tests.kit.mirrored import END, MIRROR, copy, mirrored_topic
from tests.kit.reporting import Reporting

Series = tuple[str, ...]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster.open(FaultyStore(open_store(str(tmp_path))), ManualClock(seed=3))


class Scraped:
    """A gateway's metrics of mirrors, which are `ours` or another's."""

    def __init__(self, cluster: Cluster, ours: bool = True) -> None:
        self.reports = MirrorReports(cluster, cluster.clock)
        self.follower = MirrorFollower(cluster, self.reports, lambda _: ours)
        self._registry = CollectorRegistry()
        self._registry.register(MirrorMetrics(self.follower.figures))

    def read(self) -> dict[Series, float]:
        """The metric, and its labels other than the mirror's → value."""
        found = {}
        for family in text_string_to_metric_families(generate_latest(self._registry).decode()):
            for each in family.samples:
                assert each.labels["mirror"] == MIRROR
                labels = (
                    each.labels[name] for name in ("state", "topic", "partition") if name in each.labels
                )
                found[(each.name.removeprefix("lakelog_mirror_"), *labels)] = each.value
        return found


def test_lags_are_those_that_a_living_process_reports(cluster: Cluster) -> None:
    writer = another(cluster)
    topic = mirrored_topic(writer, "orders", partitions=2)
    cluster.refresh()
    scraped, process = Scraped(cluster), Reporting(writer.store)
    scraped.follower.follow()
    states: dict[Series, float] = {("topics", "active"): 1, ("topics", "paused"): 0, ("topics", "stopped"): 0}
    nobody = {**states, ("processes",): 0, ("troubled_processes",): 0, ("offsets_behind",): 0}
    assert scraped.read() == nobody

    topics = {"orders": [SourcePartition(0, 0, END + 4, 2.5), SourcePartition(1, 0, END)]}
    process.report(topics)
    scraped.follower.follow()
    assert scraped.read() == nobody  # it may be an old one's
    process.report(topics, trouble="no broker answers", offsets_behind=3)
    scraped.follower.follow()
    found = scraped.read()
    assert (found["lag_records", "orders", "0"], found["lag_seconds", "orders", "0"]) == (4, 2.5)
    assert found["lag_bytes", "orders", "0"] > 0
    assert [found[f"lag_{unit}", "orders", "1"] for unit in ("records", "seconds", "bytes")] == [0, 0, 0]
    assert (found["processes",], found["troubled_processes",], found["offsets_behind",]) == (1, 1, 3)

    copy(writer, topic, 0, [END], END + 3)
    process.report(topics)
    scraped.follower.follow()
    assert scraped.read()["lag_records", "orders", "0"] == 1

    assert isinstance(cluster.clock, ManualClock)
    cluster.clock.advance(round(SILENT_S * 1000))
    assert scraped.read() == nobody  # its numbers are old, though nobody has looked
    scraped.follower.follow()
    assert scraped.read() == nobody


def test_states_of_topics_are_counted(cluster: Cluster) -> None:
    for name in ("a", "b", "c"):
        mirrored_topic(cluster, name)
    stop_copy(cluster, MIRROR, "b", "the source has no such topic any more")
    scraped = Scraped(cluster)

    def counts() -> list[float]:
        found = scraped.read()
        return [found["topics", state] for state in ("active", "paused", "stopped")]

    assert counts() == [2, 0, 1]
    pause(cluster, MIRROR)
    assert counts() == [0, 2, 1]
    resume(cluster, MIRROR)
    assert counts() == [3, 0, 0]


def test_without_a_mirror_nothing_is_looked_at_and_of_anothers_no_table(cluster: Cluster) -> None:
    assert isinstance(cluster.store, FaultyStore)
    before = cluster.store.calls.copy()
    scraped = Scraped(cluster)
    scraped.follower.follow()
    assert (scraped.read(), cluster.store.calls) == ({}, before)
    mirrored_topic(another(cluster), "t")
    cluster.refresh()
    scraped = Scraped(cluster, ours=False)
    Reporting(cluster.store).live(scraped.follower.follow, {"t": [SourcePartition(0, 0, END + 1)]})
    assert scraped.read() == {}
    assert len(scraped.reports.living(MIRROR)) == 1
    topic = cluster.cached_topic("t")
    assert topic is not None
    assert [*topic.opened()] == []


def test_of_very_many_partitions_that_lag_each_has_its_turn(cluster: Cluster) -> None:
    count = LOOKS_MAX + 10
    topic = mirrored_topic(another(cluster), "wide", partitions=count, commits=())
    cluster.refresh()
    scraped, process = Scraped(cluster), Reporting(cluster.store)
    topics = {"wide": [SourcePartition(number, 0, 7) for number in range(topic.partition_count)]}
    process.report(topics)
    scraped.follower.follow()
    seen = []
    for _ in range(2):
        process.report(topics)
        scraped.follower.follow()
        seen.append(sum(each[0] == "lag_records" for each in scraped.read()))
    assert seen == [LOOKS_MAX, count]
