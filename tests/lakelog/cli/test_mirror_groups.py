"""`lakelog mirror groups`, and the last offsets before `lakelog mirror promote`."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from lakelog.cli import app
from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store
from tests.kit.cli import FAILED, USAGE, Run, lines, printed, wrong
from tests.kit.kafka import kafka_gateway
from tests.kit.kafka_broker import Broker
from tests.kit.mirror_groups import commit, committed, member, produce
from tests.kit.programs import Program

TOPIC, GROUP = "orders", "billing"


@pytest.fixture
def run(store_root: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command of `lakelog mirror` on one root."""
    monkeypatch.setenv("LAKELOG_CONTEXT", "")

    def run(*arguments: str) -> Result:
        words = ["mirror", *arguments, "--data", str(store_root)]
        monkeypatch.setattr(sys, "argv", ["lakelog", *words])
        return CliRunner().invoke(app, words, catch_exceptions=False)

    return run


def test_groups_move_and_then_their_topic(kafka: Broker, run: Run, store_root: Path, tmp_path: Path) -> None:
    Cluster.open(open_store(store_root))
    kafka.create_topic(TOPIC)
    produce(kafka, TOPIC, 10)
    commit(kafka, TOPIC, {0: 4}, GROUP, "other")
    source = ("--source", kafka.bootstrap, "--topic", TOPIC)
    wrong(run("create", "shop", *source, "--group", "^("), USAGE, "--group '^(' is not a pattern")
    assert run("create", "shop", *source).exit_code == 0
    command = [sys.executable, "-m", "lakelog", "mirror", "run", "--data", str(store_root)]
    wait = ("groups", "shop", "--group", GROUP, "--wait")
    with Program(command, tmp_path / "run") as running:

        def is_level() -> bool:
            found = printed(run("describe", "shop", "--json"))["partitions"]
            return [each["lag"] for each in found] == [0]

        running.until(is_level, "the copy is at the end of its source")
        wrong(run(*wait, "0"), FAILED, "no gateway is listed on this root")
        wrong(run("promote", "shop", "--wait", "0"), FAILED, "add --now to promote without the groups")
        with kafka_gateway(store_root) as gateway:
            with member(kafka.bootstrap, GROUP, TOPIC):
                wrong(run(*wait, "0"), FAILED, f"the group {GROUP} has members at the source")
            assert printed(run(*wait, "60", "--json")) == [
                {
                    "group": GROUP,
                    "topic": TOPIC,
                    "partition": 0,
                    "source": 4,
                    "here": 4,
                    "state": "equal",
                    "reason": "",
                }
            ]
            assert committed(gateway.bootstrap, GROUP) == {(TOPIC, 0): (4, "")}
            wrong(run("groups", "shop", "--group", "biling"), USAGE, "mean billing")
            with member(gateway.bootstrap, GROUP, TOPIC) as consumer:
                first = consumer.poll(10)
                assert first is not None
                assert first.offset() == 4
                consumer.commit(message=first, asynchronous=False)
            wrong(run(*wait, "0"), USAGE, f"lakelog group delete {GROUP}")
            assert lines(run("groups", "shop", "--wait", "60"))[1].split() == [
                *(GROUP, TOPIC, "0", "4", "5", "used", "here")
            ]
            produce(kafka, TOPIC, 10)
            commit(kafka, TOPIC, {0: 20}, "other")
            promoted = run("promote", "shop", "--topic", TOPIC)
            assert lines(promoted) == ["1 topic promoted: orders"]
            assert promoted.stderr.splitlines() == [f"the group {GROUP} in {TOPIC}-0: used here"]
            assert committed(gateway.bootstrap, "other") == {(TOPIC, 0): (20, "")}
            assert printed(run("groups", "shop", "--json")) == []
        running.stop()
