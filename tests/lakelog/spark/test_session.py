"""The Spark session: what it sets, and what it leaves alone."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from pyspark.sql import SparkSession

from lakelog.spark import DELTA_PACKAGE, session
from lakelog.spark.connect import SparkMissing
from lakelog.spark.session import python_for_workers, session_config, set_outside
from tests.kit.support import ROOT


def test_a_setting_of_the_caller_wins() -> None:
    made = session_config({"spark.ui.enabled": "true", "spark.master": "local[1]"}, {})
    assert made["spark.ui.enabled"] == "true"
    assert made["spark.master"] == "local[1]"
    assert made["spark.databricks.delta.snapshotPartitions"] == "2"


def test_packages_and_extensions_of_the_caller_stay() -> None:
    made = session_config(
        {"spark.jars.packages": f"a:b:1, {DELTA_PACKAGE}"}, {"spark.sql.extensions": "their.Extension"}
    )
    assert made["spark.jars.packages"] == f"a:b:1,{DELTA_PACKAGE}"
    assert made["spark.sql.extensions"] == "their.Extension,io.delta.sql.DeltaSparkSessionExtension"


def test_what_is_set_outside_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# ours\n\nspark.sql.shuffle.partitions  50\nspark.jars.packages=c:d:2,\\\ne:f:3\n"
        "spark.driver.extraJavaOptions -Dx=y\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf=spark.ui.enabled=true --driver-memory 1g pyspark-shell")
    outside = set_outside()
    assert outside["spark.driver.extraJavaOptions"] == "-Dx=y"
    made = session_config({}, outside)
    assert "spark.sql.shuffle.partitions" not in made
    assert "spark.ui.enabled" not in made
    assert made["spark.jars.packages"] == f"c:d:2,e:f:3,{DELTA_PACKAGE}"
    assert made["spark.databricks.delta.snapshotPartitions"] == "2"


def test_a_file_of_properties_named_in_the_arguments_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "my.conf").write_text("spark.sql.shuffle.partitions 60\nspark.ui.enabled true\n")
    arguments = f"--conf spark.ui.enabled=false --properties-file '{tmp_path}/my.conf' pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", arguments)
    outside = set_outside()
    assert outside["spark.sql.shuffle.partitions"] == "60"
    assert outside["spark.ui.enabled"] == "false"


# In processes of their own: this one has a session, or is to get one with Delta.
SESSION = "from lakelog.spark import session; print(session().conf.get('spark.sql.shuffle.partitions'))"


def run_session(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SESSION],
        cwd=ROOT,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.spark
def test_a_session_without_delta_says_how_to_get_it() -> None:
    done = run_session(
        PYSPARK_SUBMIT_ARGS="--conf spark.jars.packages= --conf spark.sql.extensions= pyspark-shell"
    )
    assert done.returncode == 1
    said = "SparkMissing: Spark runs without Delta's jars, and they cannot be added now: "
    assert f"{said}start it with {DELTA_PACKAGE} among its packages" in done.stderr


@pytest.mark.spark
def test_a_spark_that_does_not_start_says_so(tmp_path: Path) -> None:
    done = run_session(PYSPARK_SUBMIT_ARGS="--no-such-flag pyspark-shell")
    assert done.returncode == 1
    assert "SparkMissing: Spark did not start (JAVA_GATEWAY_EXITED)" in done.stderr


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


@pytest.mark.spark
def test_next_to_a_spark_of_its_own_a_process_gets_no_session_of_a_server(spark: SparkSession) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        with pytest.raises(
            SparkMissing, match=f"this process has a Spark of its own, .*{endpoint}; stop that one"
        ):
            session(remote=f"sc://{endpoint}")
    finally:
        server.stop(None)
    assert session() is spark


def test_a_local_spark_starts_python_without_archives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They stand before all packages, and Python compiles what it imports from them in every process."""
    monkeypatch.setattr("sys.prefix", str(tmp_path / "a prefix"))
    python = python_for_workers("local[2]")
    assert python.startswith(str(tmp_path))
    archives = ["/spark/python/lib/pyspark.zip", "/spark/python/lib/py4j-0.10.9.9-src.zip"]
    path = [*archives, "/spark/jars/spark-core_2.13-4.2.0.jar", "/a job/theirs.zip", "/*"]
    show = "import json, sys; print(json.dumps([sys.path, sys.argv[1:], sys.executable]))"
    done = subprocess.run(
        [python, "-c", show, "two words"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": ":".join(path)},
    )
    found, arguments, executable = json.loads(done.stdout)
    assert found[1:3] == ["/a job/theirs.zip", "/*"]
    assert not set(path[:3]) & set(found)
    assert arguments == ["two words"]
    assert executable == sys.executable


def test_where_the_script_cannot_be_the_interpreter_itself_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On other machines it is not there, and some environments are read-only."""
    assert python_for_workers("spark://driver:7077") == sys.executable
    (tmp_path / "prefix").write_text("a file, in which no directory can be made")
    monkeypatch.setattr("sys.prefix", str(tmp_path / "prefix"))
    assert python_for_workers("local") == sys.executable


def test_the_master_of_the_submit_arguments_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master spark://driver:7077 pyspark-shell")
    assert set_outside()["spark.master"] == "spark://driver:7077"


@pytest.mark.spark
def test_sparks_workers_import_the_installed_pyspark(spark: SparkSession) -> None:
    def imported(_: int) -> str:
        import pyspark

        return pyspark.__file__

    (path,) = spark.sparkContext.range(1, numSlices=1).map(imported).collect()
    assert Path(path).is_file()
