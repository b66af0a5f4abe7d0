"""Executors in processes of their own, to which the package comes as a wheel: installed, or with the job."""

import json
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from log_tables.store import open_store
from tests.spark import Topics, spark_submit
from tests.support import ROOT

pytestmark = pytest.mark.spark


def submit(tmp_path: Path, *options: str | Path, **environment: str) -> Path:
    """Run the job on a cluster of two executors; returns where it says that lakelog is."""
    topics = Topics(open_store(tmp_path / "root"))
    topics.create("t", 3)
    for index in range(3):
        topics.append("t", index, 100 + index)
    empty = tmp_path / "cwd"
    empty.mkdir()
    job = (ROOT / "tests" / "spark_counts.py", tmp_path / "root", tmp_path / "target")
    done = spark_submit(empty, "local-cluster[2,1,1024]", *options, *job, **environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    (found,) = [line for line in done.stdout.splitlines() if line.startswith("lakelog at ")]
    return Path(found.removeprefix("lakelog at "))


def rows(directory: Path) -> list[dict[str, int]]:
    return [json.loads(line) for file in directory.glob("*.json") for line in file.read_text().splitlines()]


def check_counts(target: Path) -> None:
    expected = {0: 100, 1: 101, 2: 102}
    assert {row["partition"]: row["count"] for row in rows(target / "batch")} == expected
    assert Counter(row["partition"] for row in rows(target / "stream")) == expected


def test_executors_find_the_package_where_it_is_installed(wheel: Path, tmp_path: Path) -> None:
    installed = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    found = submit(tmp_path, PYTHONPATH=str(installed))
    assert found.is_relative_to(installed)
    check_counts(tmp_path / "target")


def test_executors_get_the_package_with_the_job(wheel: Path, tmp_path: Path) -> None:
    found = submit(tmp_path, "--py-files", wheel, PYTHONPATH="")
    assert wheel.name in found.parts
    check_counts(tmp_path / "target")
