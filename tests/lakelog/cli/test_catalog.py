"""`lakelog catalog sync`, and Spark SQL, which finds `catalog.schema.topic` by it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic_fold import fold
from log_tables.partition.partition import AppendRequest
from log_tables.record import Record, input_batch
from log_tables.store.store import open_store
from tests.kit.catalogs import UnityStandIn, hive_metastore, unity_stand_in
from tests.kit.cli import FAILED, UNREACHABLE, USAGE, Run, lines, on_root, printed, wrong
from tests.kit.support import exit_code, free_port

__all__ = ["on_root"]

READ_BY_SPARK = """
import json, sys
from lakelog.spark import session
metastore = {"spark.sql.catalogImplementation": "hive", "spark.hadoop.hive.metastore.uris": sys.argv[1]}
spark = session("catalog", **metastore)
found = spark.sql("SELECT partition, offset, carrier FROM spark_catalog.lakelog.flights ORDER BY 1, 2")
rows = found.collect()
try:
    spark.sql("INSERT INTO lakelog.flights SELECT * FROM lakelog.flights")
    refused = ""
except Exception as error:
    refused = str(error)
print(json.dumps([[list(row) for row in rows], refused]))
"""


@pytest.fixture
def cluster(store_root: Path) -> Cluster:
    """Two topics; the first has two records."""
    made = Cluster.open(open_store(str(store_root)))
    create_topic(made, "flights", 2, {"value.columns": "carrier string"})
    create_topic(made, "shop.orders", 1)
    for number, carrier in enumerate((b"LH", b"UA")):
        partition = made.topic("flights").partition(number)
        partition.claim("")
        record = Record(b'{"carrier": "%s"}' % carrier)
        partition.append([AppendRequest(input_batch([record], 1_700_000_000_000_000))])
    fold(made.topic("flights"))
    return made


@pytest.fixture
def unity(cluster: Cluster) -> Iterator[UnityStandIn]:
    with unity_stand_in() as server:
        yield server


@pytest.mark.spark
def test_spark_finds_a_topic_by_its_name_and_may_not_write(
    on_root: Run, cluster: Cluster, tmp_path: Path
) -> None:
    with hive_metastore(tmp_path / "metastore") as url:
        said = lines(on_root("catalog", "sync", "hive", "--url", url))
        assert [line.split()[:3] for line in said[1:]] == [
            ["create", "flights", "flights"],
            ["create", "shop__orders", "shop.orders"],
        ]
        done = subprocess.run(
            [sys.executable, "-c", READ_BY_SPARK, url],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    rows, refused = json.loads(done.stdout.splitlines()[-1])
    assert rows == [[0, 0, "LH"], [1, 0, "UA"]]
    assert "lakelogTopic" in refused


def test_a_dry_run_changes_nothing_and_a_run_says_what_it_did(on_root: Run, unity: UnityStandIn) -> None:
    command = ("catalog", "sync", "unity", "--url", unity.url, "--schema", "logs", "--json")
    planned = printed(on_root(*command, "--dry-run"))
    assert unity.schemas == {}
    assert planned == printed(on_root(*command, "--root", "s3a://bucket/root/"))
    assert [each["table"] for each in planned] == ["flights", "shop__orders"]
    table = unity.schemas["logs"]["flights"]
    assert table["storage_location"] == "s3a://bucket/root/topics/flights"
    assert "2 partitions, kept for ever" in table["comment"]
    columns = {each["name"]: (each["type_name"], each["comment"]) for each in table["columns"]}
    assert columns["carrier"] == ("STRING", "The field /carrier of the value.")
    assert columns["offset"][0] == "LONG"


def test_a_name_that_is_taken_is_said_and_the_exit_code_is_1(on_root: Run, unity: UnityStandIn) -> None:
    unity.schemas["lakelog"] = {"flights": {"name": "flights", "properties": {}}}
    done = on_root("catalog", "sync", "unity", "--url", unity.url)
    assert done.exit_code == FAILED
    assert "another program has a table of this name" in done.stdout
    assert unity.schemas["lakelog"]["flights"] == {"name": "flights", "properties": {}}
    assert "shop__orders" in unity.schemas["lakelog"]


def test_a_token_comes_from_a_file(on_root: Run, cluster: Cluster, tmp_path: Path) -> None:
    with unity_stand_in("secret") as server:
        file = tmp_path / "token"
        file.write_text("secret\n")
        command = ("catalog", "sync", "unity", "--url", server.url, "--token-file", str(file))
        assert len(lines(on_root(*command))) == 3


def test_what_is_missing_or_wrong_is_said(on_root: Run, cluster: Cluster) -> None:
    wrong(on_root("catalog", "sync", "unity"), USAGE, "--url is missing")
    wrong(on_root("catalog", "sync", "hive", "--url", "http://x"), USAGE, "thrift://host:9083")
    hive = ("catalog", "sync", "hive", "--url", f"thrift://127.0.0.1:{free_port()}")
    wrong(on_root(*hive), UNREACHABLE, "no metastore answers")
    wrong(on_root(*hive, "--catalog", "c"), USAGE, "leave out --catalog")
    wrong(on_root(*hive, "--every", "1m", "--dry-run"), USAGE, "leave out --every")


def test_repeated_runs_go_on_after_a_failure_and_end_in_order(cluster: Cluster, unity: UnityStandIn) -> None:
    unity.token = "not yet"
    command = ["catalog", "sync", "unity", "--url", unity.url, "--every", "1s", "--data", cluster.store.url]
    process = subprocess.Popen(
        [sys.executable, "-m", "lakelog", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stdout is not None
    assert "the run ended early" in process.stderr.readline()
    unity.token = ""
    assert process.stdout.readline() == "create flights, of topic flights\n"
    process.terminate()
    assert exit_code(process) == 0
