"""`lakelog mirror`, from its creation to its end, of a real Kafka."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import asdict, replace
from typer.testing import CliRunner, Result

from jobs.mirror.source import Source
from lakelog.cli import app
from log_tables.cluster.admin.mirror_admin import create_copy
from log_tables.cluster.admin.mirror_gaps import MirrorGap, note_gaps
from log_tables.cluster.cluster import Cluster
from log_tables.record import Record, input_batch, with_offsets
from log_tables.sql.query import query
from log_tables.store.store import open_store
from tests.kit.cli import FAILED, USAGE, Run, lines, printed, wrong
from tests.kit.kafka import librdkafka_producer, read_all
from tests.kit.kafka_broker import Broker
from tests.kit.programs import Program
from tests.kit.support import WAIT_S


@pytest.fixture
def run(store_root: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command of `lakelog mirror` on one root."""
    monkeypatch.setenv("LAKELOG_CONTEXT", "")

    def run(*arguments: str) -> Result:
        words = ["mirror", *arguments, "--data", str(store_root)]
        monkeypatch.setattr(sys, "argv", ["lakelog", *words])
        return CliRunner().invoke(app, words, catch_exceptions=False)

    return run


@pytest.fixture
def sourced(kafka: Broker) -> tuple[str, ...]:
    """How a command names the source, which has the topic `orders` of two records."""
    if "orders" not in kafka.admin.list_topics().topics:
        kafka.create_topic("orders", 2, cleanup_policy="compact,delete", retention_ms=60_000_000)
        producer = librdkafka_producer(kafka.bootstrap)
        for value in (b"one", b"two"):
            producer.produce("orders", value, b"key", partition=0)
        assert producer.flush(WAIT_S) == 0
    return ("--source", kafka.bootstrap)


def test_a_dry_run_for_a_root_that_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["mirror", "create", "shop", "--source", "127.0.0.1:1", "--topic", "t", "--dry-run"]
    monkeypatch.setattr(sys, "argv", ["lakelog", *words])
    done = CliRunner().invoke(app, [*words, "--data", "sftp://host/root"], catch_exceptions=False)
    wrong(done, USAGE, "the scheme 'sftp'")


def test_the_life_of_a_mirror(sourced: tuple[str, ...], run: Run, store_root: Path, tmp_path: Path) -> None:
    create = ("create", "shop", *sourced, "--topic", "orders", "--topic", "^later-.*")
    shown = printed(run(*create, "--dry-run", "--json"))
    copied = {
        "topic": "orders",
        "partitions": 2,
        "configs": {"cleanup.policy": "compact,delete", "retention.ms": "60000000"},
    }
    assert (shown["mirror"], shown["topics"], shown["missing"]) == ("shop", [copied], [])
    wrong(run("create", "a b", *sourced, "--topic", "orders"), USAGE, "a b")
    assert not [*store_root.rglob("*.json")]  # what is only shown, or refused, makes no root
    assert printed(run(*create, "--json")) == shown
    wrong(run(*create), USAGE, "there is a mirror shop already")
    (listed,) = printed(run("list", "--json"))
    assert (listed["mirror"], listed["topics"], listed["state"]) == ("shop", 0, "active")

    command = [sys.executable, "-m", "lakelog", "mirror", "run", "--data", str(store_root)]
    with Program(command, tmp_path / "run") as running:

        def is_level() -> bool:
            found = printed(run("describe", "shop", "--json"))["partitions"]
            return [(each["position"], each["lag"]) for each in found] == [(2, 0), (0, 0)]

        running.until(is_level, "the copy is at the end of its source")
        found = printed(run("verify", "shop", "--json"))
        assert (found["equal"], found["seed"]) == (True, None)
        assert [(each["records"], each["failed"]) for each in found["partitions"]] == [(2, ""), (0, "")]
        wrong(run("delete", "shop"), USAGE, "lakelog mirror promote shop")
        assert printed(run("promote", "shop", "--json")) == {"mirror": "shop", "promoted": ["orders"]}
        assert lines(run("pause", "shop")) == ["the mirror shop is paused"]
        assert printed(run("list", "--json"))[0]["state"] == "paused"
        assert lines(run("resume", "shop")) == ["the mirror shop goes on"]
        running.stop()
    assert lines(run("delete", "shop")) == ["the mirror shop is deleted"]
    wrong(run("describe", "shop"), USAGE, "there is no mirror 'shop'")


def test_verify_shows_the_first_difference_and_the_sql(
    kafka: Broker, sourced: tuple[str, ...], run: Run, store_root: Path
) -> None:
    printed(run("create", "shop", *sourced, "--topic", "orders", "--json"))
    wrong(run("verify", "shop", "--sql", "lakelog"), USAGE, "the mirror shop has made no topic yet")
    cluster = Cluster.open(open_store(str(store_root)))
    source = Source(kafka.bootstrap)
    made = create_copy(cluster, "shop", "orders", str(source.ids(["orders"])["orders"]), 2, {})
    other = [Record(b"one", b"key", offset=0), Record(b"two", b"yek", offset=1)]
    there = read_all(kafka.bootstrap, "orders", 2)
    records = [
        replace(record, timestamp_us=at.time[1] * 1000) for record, at in zip(other, there, strict=True)
    ]
    batch = with_offsets([input_batch(records, 0)], np.array([0, 1]))
    cluster.claim(made, 0, mirror="shop").mirror(batch, 2)

    done = run("verify", "shop", "--topic", "orders", "--sample", "1", "--seed", "s")
    assert done.exit_code == FAILED
    assert "orders-0: differs at offset 1\norders-1: equal" in done.stderr
    assert done.stdout.splitlines()[-4:] == [
        "a sample of 1 range of each partition, by --seed s",
        "orders-0 differs at offset 1, key",
        "  here:   'yek' (3 bytes)",
        "  source: 'key' (3 bytes)",
    ]
    done = run("verify", "shop", "--range", "1", "--json")
    assert done.exit_code == FAILED
    found = json.loads(done.stdout)["partitions"][0]
    assert found["difference"] == {
        "offset": 1,
        "field": "key",
        "here": "'yek' (3 bytes)",
        "source": "'key' (3 bytes)",
    }
    sql = "\n".join(lines(run("verify", "shop", "--range", "1", "--sql", "lakelog")))
    assert [row["digest"] for row in query(cluster, sql).to_pylist()] == [
        each["here"] for each in found["ranges"]
    ]
    assert "delta_scan('" in run("verify", "shop", "--sql", "duckdb").stdout
    wrong(run("verify", "shop", "--sql", "oracle"), USAGE, "use lakelog, spark, duckdb")
    wrong(run("verify", "shop", "--topic", "order"), USAGE, "orders")
    wrong(run("verify", "shops"), USAGE, "there is no mirror 'shops'")


def test_what_a_mirror_cannot_be_is_refused(
    sourced: tuple[str, ...], run: Run, store_root: Path, tmp_path: Path
) -> None:
    Cluster.open(open_store(store_root))
    wrong(run("create", "a/b", *sourced, "--topic", "orders"), USAGE, "'a/b' is not allowed")
    wrong(run("create", "shop", *sourced, "--topic", "^("), USAGE, "'^(' is not a pattern")
    wrong(run("create", "shop", *sourced, "--topic", "o", "--on-gap", "skip"), USAGE, "use stop or record")
    wrong(run("run", "shop"), USAGE, "there is no mirror 'shop'")
    for line, said in {
        "enable.auto.commit=true": "sets enable.auto.commit",
        "no setting": "line 1 of",
        "no.such=setting": 'No such configuration property: "no.such"',
    }.items():
        config = tmp_path / "kafka.conf"
        config.write_text(f"{line}\n")
        wrong(run("create", "shop", *sourced, "--topic", "orders", "--config", str(config)), USAGE, said)


def test_people_see_what_is_copied(sourced: tuple[str, ...], run: Run) -> None:
    assert lines(run("create", "shop", *sourced, "--topic", "orders", "--topic", "soon"))[1:] == [
        "orders           2  cleanup.policy=compact,delete retention.ms=60000000",
        "not there yet, and copied from when it is: soon",
    ]
    assert lines(run("describe", "shop"))[0].startswith("shop: orders soon of 127.0.0.1:")


def test_people_see_the_gaps_of_a_copy(sourced: tuple[str, ...], run: Run, store_root: Path) -> None:
    assert run("create", "shop", *sourced, "--topic", "orders").exit_code == 0
    gap = MirrorGap(
        mirror="shop",
        topic="orders",
        topic_id="of a topic that was deleted",
        partition=1,
        first_offset=10,
        last_offset=24,
        noted_ms=1,
        reason="the source had deleted them",
    )
    note_gaps(Cluster.open(open_store(store_root)), [gap])
    said = "orders-1 lacks the offsets 10 to 24: the source had deleted them"
    assert said in lines(run("describe", "shop"))
    assert printed(run("describe", "shop", "--json"))["gaps"] == [asdict(gap)]
