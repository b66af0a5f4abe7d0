"""`lakelog fsck`: a sound root, and a damaged one."""

import json
import shutil
from pathlib import Path

from tests.kit.cli import FAILED, Run, lines, printed


def test_fsck_finds_nothing_in_a_sound_root(run: Run, root: Path) -> None:
    report = printed(run("fsck", "--data", str(root), "--json"))
    assert report["problems"] == []
    assert lines(run("fsck", "--data", str(root)))[-1] == "every invariant holds"


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
