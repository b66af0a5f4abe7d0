"""`lakelog fsck`: a sound root, and a damaged one."""

import json
import shutil
from pathlib import Path

from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store
from tests.kit.cli import FAILED, USAGE, Run, lines, printed, wrong
from tests.kit.partitions import append
from tests.kit.tampered import tamper, with_cell


def test_fsck_finds_nothing_in_a_sound_root(run: Run, root: Path) -> None:
    report = printed(run("fsck", "--data", str(root), "--json"))
    assert report["problems"] == []
    for words in ([], ["--deep"]):
        assert lines(run("fsck", "--data", str(root), *words))[-1] == "every invariant holds"


def test_fsck_derives_declared_columns_when_it_is_asked_to(run: Run, tmp_path: Path) -> None:
    cluster = Cluster.open(open_store(tmp_path))
    partition = create_topic(cluster, "t", configs={"value.columns": "n bigint"}).partition(0)
    partition.claim("")
    append(partition, b'{"n":1}', b'{"n":2}')
    tamper(partition, with_cell("n", 1, 17171717))
    assert lines(run("fsck", "--data", str(tmp_path)))[-1] == "every invariant holds"
    done = run("fsck", "--data", str(tmp_path), "--deep")
    assert done.exit_code == FAILED
    said = " ".join(done.stdout.split())
    path = partition.snapshot.segments[0].path
    assert f"BROKEN: topics/t/partition=0: the column n of segment {path} is not what the values say" in said
    assert "17171717" not in said


def test_fsck_names_the_damage_and_ends_with_1(run: Run, root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    (segment, *_) = sorted(copy.glob("topics/sales/partition=0/*.parquet")) or sorted(copy.rglob("*.parquet"))
    segment.unlink()
    done = run("fsck", "--data", str(copy))
    assert done.exit_code == FAILED
    assert "BROKEN: " in done.stdout
    assert segment.name in done.stdout
    done = run("fsck", "--data", str(copy), "--json")
    assert done.exit_code == FAILED
    assert any(segment.name in problem for problem in json.loads(done.stdout)["problems"])


def test_fsck_of_a_topic_or_a_partition_looks_at_nothing_else(run: Run, root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    for damaged in copy.glob("topics/sales/partition=0/*.parquet"):
        damaged.unlink()
    sound = printed(run("fsck", "--data", str(copy), "--json", "--topic", "sales", "--partition", "1"))
    assert [table["directory"] for table in sound["partitions"]] == ["topics/sales/partition=1"]
    assert sound["sound"]
    done = run("fsck", "--data", str(copy), "--json", "--topic", "sales")
    assert done.exit_code == FAILED
    found = json.loads(done.stdout)
    assert [bool(table["problems"]) for table in found["partitions"]] == [True, False]


def test_fsck_of_what_is_not_there_is_refused(run: Run, root: Path) -> None:
    where = ("fsck", "--data", str(root))
    wrong(run(*where, "--topic", "gone"), USAGE, "there is no topic 'gone'")
    wrong(
        run(*where, "--topic", "sales", "--partition", "2"),
        USAGE,
        "topic sales has no partition 2; it has 0 to 1",
    )
    wrong(run(*where, "--partition", "0"), USAGE, "--partition is one of a topic")
