"""`lakelog mirror`, from its creation to its end, of a real Kafka."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from lakelog.cli import app
from tests.kit.cli import USAGE, Run, lines, printed, wrong
from tests.kit.kafka import librdkafka_producer
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


def test_the_life_of_a_mirror(sourced: tuple[str, ...], run: Run, store_root: Path, tmp_path: Path) -> None:
    create = ("create", "shop", *sourced, "--topic", "orders", "--topic", "^later-.*")
    (shown,) = printed(run(*create, "--dry-run", "--json"))
    assert shown == {
        "topic": "orders",
        "partitions": 2,
        "configs": {"cleanup.policy": "compact,delete", "retention.ms": "60000000"},
    }
    assert len(printed(run(*create, "--json"))) == 1
    wrong(run(*create), USAGE, "there is a mirror shop already")
    (listed,) = printed(run("list", "--json"))
    assert (listed["mirror"], listed["topics"], listed["state"]) == ("shop", 0, "active")

    command = [sys.executable, "-m", "lakelog", "mirror", "run", "--data", str(store_root)]
    with Program(command, tmp_path / "run") as running:

        def is_level() -> bool:
            found = printed(run("describe", "shop", "--json"))["partitions"]
            return [(each["position"], each["lag"]) for each in found] == [(2, 0), (0, 0)]

        running.until(is_level, "the copy is at the end of its source")
        wrong(run("delete", "shop"), USAGE, "lakelog mirror promote shop")
        assert printed(run("promote", "shop", "--json")) == {"mirror": "shop", "promoted": ["orders"]}
        assert lines(run("pause", "shop")) == ["the mirror shop is paused"]
        assert printed(run("list", "--json"))[0]["state"] == "paused"
        assert lines(run("resume", "shop")) == ["the mirror shop goes on"]
        running.stop()
    assert lines(run("delete", "shop")) == ["the mirror shop is deleted"]
    wrong(run("describe", "shop"), USAGE, "there is no mirror 'shop'")


def test_what_a_mirror_cannot_be_is_refused(sourced: tuple[str, ...], run: Run, tmp_path: Path) -> None:
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
