"""Topics through Spark Connect: batches, streams, the sink, views, pipelines; and what a server lacks."""

import json
import shutil
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from lakelog.client.client import Client
from lakelog.spark.connect import SparkMissing, connected
from lakelog.spark.session import session
from lakelog.spark.sql.topic_scan import usable_table
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidArgument
from log_tables.store.store import open_store
from tests.kit.avro_values import written
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.produce import BINARY
from tests.kit.queries import run_to_end
from tests.kit.spark_connect import (
    ConnectClient,
    bare_environment,
    connect_client,
    connect_server,
    run_pipeline,
)
from tests.kit.support import ROOT, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("process")]

DECLARED = "carrier string, delay double"
PACKAGES = ("lakelog", "log_tables", "pyspark_lakelog")


@dataclass(frozen=True)
class Place:
    """A root with its gateway, a server that sees it, and a client that has a session there."""

    directory: Path
    gateway: RunningGateway
    url: str
    client: ConnectClient

    @property
    def root(self) -> str:
        return self.gateway.data

    def values(self, topic: str, partitions: int = 2) -> list[object]:
        """The JSON values of a topic."""
        with Client(self.gateway.url) as client:
            records = [record for index in range(partitions) for record in client.read(topic, index)]
        return [json.loads(record.value or b"null") for record in records]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("connect")
    with (
        running_gateway(directory / "root", linger_ms=0) as gateway,
        connect_server(directory) as url,
        connect_client() as client,
    ):
        client.call(begun, url)
        yield Place(directory, gateway, url, client)


def begun(url: str) -> str:
    return str(session("tests", remote=url, **{"spark.sql.shuffle.partitions": "3"}).version)


def kept(url: str) -> tuple[str | None, bool]:
    return session().conf.get("spark.sql.shuffle.partitions"), session(remote=url) is session()


def test_a_session_of_the_server_keeps_what_it_was_given(place: Place) -> None:
    assert place.client.call(kept, place.url) == ("3", True)


def batch(root: str, columns: str) -> list[dict[str, object]]:
    frame = session().read.format("lakelog").option("subscribe", "declared").option("columns", columns)
    return [row.asDict() for row in frame.load(root).orderBy("offset").collect()]


def test_a_batch_has_the_columns_that_it_names(place: Place) -> None:
    place.gateway.create_topic("declared", value_columns=DECLARED)
    assert place.gateway.produce("declared", {"carrier": "UA", "delay": 2}, {"delay": 1.5}).is_success
    assert place.client.call(batch, place.root, "offset,delay,carrier") == [
        {"offset": 0, "delay": 2.0, "carrier": "UA"},
        {"offset": 1, "delay": 1.5, "carrier": None},
    ]


def copied(root: str, source: str, target: str, gateway: str, checkpoint: str) -> None:
    """Take in what is new of one topic to another."""
    records = session().readStream.format("lakelog").option("subscribe", source)
    values = records.option("startingOffsets", "earliest").load(root).select("value")
    writer = values.writeStream.format("lakelog").options(path=root, topic=target, gateway=gateway)
    run_to_end(writer.option("checkpointLocation", checkpoint).trigger(availableNow=True))


def appended(root: str, topic: str, gateway: str) -> None:
    rows = session().range(100, 105).selectExpr("string(id) AS value")
    rows.write.format("lakelog").mode("append").options(path=root, topic=topic, gateway=gateway).save()


def test_a_stream_copies_each_record_once_over_two_runs_and_a_batch_is_appended(
    place: Place, tmp_path: Path
) -> None:
    for name in ("from", "to"):
        place.gateway.create_topic(name, 2)
    for first in (0, 20):
        assert place.gateway.produce("from", *range(first, first + 20)).is_success
        where = (place.root, "from", "to", place.gateway.url, str(tmp_path / "checkpoint"))
        place.client.call(copied, *where)
    place.client.call(appended, place.root, "to", place.gateway.url)
    assert sorted(map(str, place.values("to"))) == sorted(map(str, [*range(40), *range(100, 105)]))


def viewed(root: str, names: list[str]) -> list[str]:
    from lakelog.spark import topics

    return topics(session(), root, names=names, json={"few": "n int", "avro": "n int"})


def counted(*sources: str) -> list[int]:
    spark = session()
    return [spark.sql(f"SELECT count(*), sum(n) FROM {source}").head()[1] for source in sources]  # type: ignore[index]


def test_views_show_what_is_acknowledged(place: Place) -> None:
    place.gateway.create_topic("few", 1)
    place.gateway.create_topic("many", 4, value_columns="n bigint")
    kind = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]}
    place.gateway.create_topic("avro", value_columns_format="avro", value_columns_schema=json.dumps(kind))
    encoded = [{"value": b64encode(written(kind, {"n": n})).decode()} for n in (3, 4)]
    headers = {"Content-Type": BINARY}
    assert place.gateway.client.post("/topics/avro", json={"records": encoded}, headers=headers).is_success
    numbers = [{"n": number} for number in range(40)]
    for topic in ("few", "many"):
        assert place.gateway.produce(topic, *numbers).is_success
    cluster = Cluster.open(open_store(place.root), create=False)
    many = cluster.topic("many")
    logs = [many.partition(number) for number in range(4)]
    wait_until(lambda: usable_table(cluster, "many", logs) is not None, "the gateway has folded the topic")
    names = place.client.call(viewed, place.root, ["few", "many", "avro", "consumer_lag"])
    assert names == ["few", "few_json", "many", "avro", "avro_json", "consumer_lag"]
    assert place.client.call(counted, "few_json", "many", "avro_json") == [780, 780, 7]
    assert place.gateway.produce("many", {"n": 1000}).is_success
    assert place.client.call(counted, "many") == [1780]
    assert place.client.call(counted, "(SELECT lag AS n FROM consumer_lag)") == [None]


def test_a_pipeline_continues_with_its_tables_and_its_sink(place: Place, tmp_path: Path) -> None:
    project = tmp_path / "pipeline"
    shutil.copytree(ROOT / "examples" / "pipeline", project, ignore=shutil.ignore_patterns("__pycache__"))
    spec = project / "spark-pipeline.yml"
    text = spec.read_text()
    for named, real in {
        "file:///tmp/lakelog-pipeline": (tmp_path / "storage").as_uri(),
        "../../lakelog-data": place.root,
        "http://127.0.0.1:8082": place.gateway.url,
    }.items():
        assert named in text
        text = text.replace(named, real)
    spec.write_text(text)
    place.gateway.create_topic("flights", 2)
    place.gateway.create_topic("late_flights", 2)
    for first in (0, 30):
        flights = [{"carrier": "UA", "dep_delay": delay} for delay in range(first, first + 30)]
        assert place.gateway.produce("flights", *flights).is_success
        assert "Run is COMPLETED" in run_pipeline(place.url, spec)
    late = [{"carrier": "UA", "dep_delay": delay} for delay in range(16, 60)]
    assert sorted(map(str, place.values("late_flights"))) == sorted(map(str, late))
    assert place.client.call(rows, "SELECT * FROM delays") == [("UA", 29.5, 60)]
    assert place.client.call(rows, "SELECT count(DISTINCT dep_delay), count(*) FROM flights") == [(60, 60)]


def rows(query: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in session().sql(query).collect()]


def refusals(url: str, other: str, root: str, archive: str) -> list[str]:
    """Errors at a server without lakelog and Delta, and of `other` next to it; then the number of records
    that are read there with the code in the session.
    """
    from pyspark.sql import SparkSession

    from lakelog.spark import register, topics

    said = []
    for refused in (
        lambda: session(remote=url),
        lambda: session(remote=other),
        lambda: register(SparkSession.active()),
        lambda: topics(SparkSession.active(), root, names="unseen"),
        lambda: topics(SparkSession.active(), root, names="consumer_lag"),
    ):
        try:
            refused()
        except (InvalidArgument, SparkMissing) as error:
            said.append(str(error))
    spark = SparkSession.active()
    spark.addArtifacts(archive, pyfile=True)
    register(spark)
    return [*said, str(spark.read.format("lakelog").option("subscribe", "unseen").load(root).count())]


def test_a_server_is_told_what_it_lacks(place: Place, tmp_path: Path) -> None:
    place.gateway.create_topic("unseen", 1)
    assert place.gateway.produce("unseen", 1, 2, 3).is_success
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / "code" / package)
    archive = shutil.make_archive(str(tmp_path / "lakelog"), "zip", tmp_path / "code")
    python = bare_environment(tmp_path / "environment")
    with connect_server(tmp_path, python) as url, connect_client() as client:
        first, second, third, of_view, of_group, count = client.call(
            refusals, url, place.url, place.root, archive
        )
    endpoint = url.removeprefix("sc://")
    lacks = (
        f"the Python of the Spark Connect server at {endpoint} does not find lakelog; install lakelog there"
    )
    assert first.startswith(lacks)
    assert "PYSPARK_PYTHON" in first
    other = place.url.removeprefix("sc://")
    assert second.startswith(f"this process has a session of {endpoint}, so it gets none of {other};")
    assert third == of_group == first
    assert f"start the Spark Connect server at {endpoint} with io.delta:delta-spark" in of_view
    assert count == "3"


def test_where_nothing_answers_an_error_comes_soon() -> None:
    with pytest.raises(SparkMissing, match="no Spark Connect server answers at localhost:1 within"):
        connected("tests", "sc://localhost:1/;token=secret", {}, answer_s=0.1)
    with pytest.raises(PySparkException, match="INVALID_CONNECT_URL"):
        session(remote="127.0.0.1:15002")


def test_without_its_packages_spark_connect_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:1")
    with pytest.raises(SparkMissing, match=r"Spark Connect is not installed here .*grpc.* extra connect"):
        session()


def test_a_pyspark_without_java_is_enough_for_a_client() -> None:
    """`pyspark-client` has neither of the two packages."""
    program = (
        "import sys; sys.modules.update({'py4j': None, 'pyspark.core': None});"
        "from lakelog.spark import session; session(remote='nowhere')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "INVALID_CONNECT_URL" in done.stderr
