"""A root that is not there, or is another cluster's, to every process that opens one: nothing is made in its
place, also while they run.
"""

import json
import shutil
import signal
from pathlib import Path

import pytest

from lakelog.cli.common import FAILED, WRONG
from tests.kit.forked import run_lakelog
from tests.kit.gateway import NEVER_MS, RunningGateway, running_gateway, start_gateway
from tests.kit.processes import alive, children, command, send
from tests.kit.support import exit_code, wait_until

OPENERS = [
    ["maintain", "--once"],
    ["mirror", "run"],
    ["mirror", "list"],
    ["mirror", "create", "m", "--source", "localhost:9", "--topic", "t"],
    ["security", "init"],
    ["security", "status"],
    ["serve", "--port", "0", "--workers", "2"],
    ["serve", "--port", "0", "--maintain"],
]
"""Commands that work with the cluster of a root, those that may make one too."""


def made(root: Path) -> str:
    """The id of a new cluster."""
    done = run_lakelog("root", "create", "--data", str(root), "--json")
    return str(json.loads(done.stdout)["cluster_id"])


def is_ready(gateway: RunningGateway) -> bool:
    return gateway.client.get("/ready").status_code == 200


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def workers(gateway: RunningGateway) -> set[int]:
    return {pid for pid in children(gateway.process.pid) if "spawn_main" in command(pid) and alive(pid)}


@pytest.mark.parametrize("words", [*OPENERS, ["replicate", "STANDBY", "--once"]], ids=" ".join)
def test_no_command_makes_or_takes_a_root_but_the_one_that_is_named(words: list[str], tmp_path: Path) -> None:
    root, other, standby = tmp_path / "root", tmp_path / "other", tmp_path / "standby"
    words = [str(standby) if word == "STANDBY" else word for word in words]
    for variables in (
        {"LAKELOG_MUST_EXIST": "true"},
        {"LAKELOG_CLUSTER_ID": "0" * 8 + "-0000" * 3 + "-" + "0" * 12},
    ):
        done = run_lakelog(*words, "--data", str(root), environment=variables)
        assert (done.returncode, done.stdout) == (FAILED, "")
        assert f"lakelog root create --data {root}" in done.stderr
        assert [*tmp_path.iterdir()] == []
    theirs = made(other)
    before = files(other)
    wrong = run_lakelog(*words, "--data", str(other), environment=variables)
    assert (wrong.returncode, wrong.stdout) == (WRONG, "")
    assert f"is that of cluster {theirs}, and cluster_id names 00000000" in wrong.stderr
    assert files(other) == before
    assert not standby.exists()


@pytest.mark.parametrize("words", [["maintain", "--once"], ["mirror", "run"], ["sql", "SELECT 1"], ["fsck"]])
def test_no_job_and_no_look_makes_a_root(tmp_path: Path, words: list[str]) -> None:
    for root in (tmp_path / "none", tmp_path):
        done = run_lakelog(*words, "--data", str(root))
        assert done.returncode == WRONG, done.stderr
        assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("swapped", [False, True], ids=["empty", "another root"])
def test_nothing_is_made_in_the_place_of_a_root_that_is_gone(tmp_path: Path, swapped: bool) -> None:
    root, away = tmp_path / "root", tmp_path / "away"
    with running_gateway(root) as gateway:
        gateway.create_topic("t")
        assert gateway.produce("t", "a", partition=0).status_code == 200
        root.rename(away)
        if swapped:
            made(root)
        else:
            root.mkdir()
        before = files(root)
        wait_until(lambda: not is_ready(gateway), "it has noticed")
        assert gateway.produce("t", "lost", partition=0).status_code == 503
        named = gateway.client.post(f"{gateway.cluster}/topics", json={"topic_name": "new"})
        assert named.status_code == 503
        assert files(root) == before
        shutil.rmtree(root)
        away.rename(root)
        wait_until(lambda: is_ready(gateway), "the root is there again")
        assert gateway.produce("t", "b", partition=0).status_code == 200
        found = gateway.client.get("/topics/t/partitions/0/records").json()
        assert [record["value"] for record in found] == ["a", "b"]


def test_a_worker_that_comes_again_serves_the_cluster_of_its_parent_alone(tmp_path: Path) -> None:
    root, away = tmp_path / "root", tmp_path / "away"
    gateway = start_gateway(root, "--workers", "2", leader_timeout_ms=NEVER_MS)
    try:
        first = workers(gateway)
        root.rename(away)
        root.mkdir()
        send(signal.SIGKILL, sorted(first)[:1])
        wait_until(lambda: bool(workers(gateway) - first), "one is started again")
        (second,) = workers(gateway) - first
        wait_until(lambda: not alive(second), "it has found no root")
        assert files(root) == []
        root.rmdir()
        made(root)
        before = files(root)
        assert exit_code(gateway.process) == WRONG
        assert files(root) == before
    finally:
        gateway.stop()
