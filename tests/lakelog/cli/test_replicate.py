"""`lakelog replicate`, promotion and the way back, as commands."""

from pathlib import Path

from log_tables.clock import SystemClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.cli import USAGE, Run, lines, printed, wrong
from tests.kit.partitions import append_each, values


def made(root: Path) -> Cluster:
    cluster = Cluster.open(open_store(root), SystemClock())
    append_each(cluster.claim(create_topic(cluster, "t"), 0), [b"0", b"1"])
    return cluster


def test_there_and_back(run: Run, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    made(old)
    lines(run("replicate", str(new), "--data", str(old), "--once"))
    promoted = printed(run("root", "promote", "--data", str(new), "--json"))
    assert promoted["records"] == 2
    lines(run("root", "failback", str(old), "--data", str(new)))
    lines(run("replicate", str(old), "--data", str(new), "--once"))
    again = Cluster.open(open_store(old), SystemClock(), create=False)
    assert values(again.topic("t").partition(0)) == [b"0", b"1"]
    assert check(open_store(old)).problems == []


def test_a_root_that_is_refused_is_left_as_it_was(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "root"
    made(root)
    before = sorted(root.rglob("*"))
    for target in (root, root / "sub", root / "topics" / "x", tmp_path):
        wrong(run("replicate", str(target), "--data", str(root)), USAGE, "cannot follow itself")
    assert sorted(root.rglob("*")) == before
