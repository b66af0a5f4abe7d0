"""Commands on a topic that a mirror makes: they do not change it, and count its records over gaps."""

from pathlib import Path
from typing import Any

import pytest

from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store
from tests.kit.cli import USAGE, Run, printed
from tests.kit.gateway import RunningGateway
from tests.kit.mirrored import END, OFFSETS, copy, mirrored_topic, state_of


@pytest.fixture
def cluster(gateway: RunningGateway) -> Cluster:
    """The root of the gateway, as a mirror's process opens it."""
    return Cluster.open(open_store(gateway.data))


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    return mirrored_topic(cluster, request.node.name).name


def test_what_changes_it_is_refused(run: Run, cluster: Cluster, topic: str, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("x\n")
    before = state_of(cluster, topic)
    for words in (
        ("produce", topic, str(tmp_path / "lines"), "--format", "lines"),
        ("topic", "alter", topic, "--config", "retention.ms=1"),
        ("topic", "alter", topic, "--partitions", "3"),
        ("topic", "infer", topic, "--yes"),
        ("topic", "delete", "--yes", topic),
    ):
        done = run(*words)
        assert done.exit_code == USAGE, words
        assert f"run `lakelog mirror promote kafka --topic {topic}` first" in done.stderr, words
    assert state_of(cluster, topic) == before


def test_the_last_records_are_counted_over_gaps(run: Run, topic: str) -> None:
    for count in range(len(OFFSETS) + 2):
        done = run("consume", topic, "--from", f"-{count}", "--format", "%o ")
        assert done.stdout.split() == [str(offset) for offset in OFFSETS[max(0, len(OFFSETS) - count) :]]


def test_it_is_read_from_a_gap_and_from_a_time(run: Run, topic: str) -> None:
    def offsets(start: str) -> list[str]:
        return run("consume", topic, "--from", start, "--format", "%o ").stdout.split()

    assert offsets("14") == ["15"]
    assert offsets("17") == offsets(str(END)) == offsets("latest") == []
    assert offsets("2023-11-14T22:13:30Z") == ["13", "15"]


def test_columns_are_inferred_from_the_newest_records(run: Run, cluster: Cluster, topic: str) -> None:
    copy(cluster, cluster.topic(topic), 0, [], 1_000)
    found = printed(run("topic", "infer", topic, "--records", "2", "--json"))
    assert (found["sampled"], found["value.columns"]) == (2, "n bigint")


def test_it_is_queried(run: Run, gateway: RunningGateway, topic: str) -> None:
    def rows(sql: str) -> Any:
        return printed(run("sql", "--data", str(gateway.data), "--format", "json", sql))

    sql = f'select "offset", "value" from "{topic}" where "offset" > 8 order by "offset"'
    assert [row["offset"] for row in rows(sql)] == [9, 13, 15]
    counted = f'select count(*) as n, max("offset") as last from "{topic}"'
    assert rows(counted) == [{"n": 5, "last": 15}]


def test_fsck_finds_nothing(run: Run, gateway: RunningGateway, topic: str) -> None:
    assert topic
    assert run("fsck", "--deep", "--data", str(gateway.data)).exit_code == 0
