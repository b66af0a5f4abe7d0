"""The blocks of docs/recipes.md run, on roots as the page describes them, and print what it says."""

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from lakelog.cli import app
from log_tables.clock import SystemClock
from log_tables.cluster.admin.remote_admin import set_remote_root
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.cluster.topic_fold import fold
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import Record, input_batch
from log_tables.segments import rewrite
from log_tables.store.store import open_store
from tests.kit.support import ROOT
from tests.kit.tiers import move_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (ROOT / "docs" / "recipes.md").read_text()
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```(?:\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
SECTIONS = {
    text.partition("\n")[0]: BLOCK.findall(text) for text in re.split(r"^## ", PAGE, flags=re.MULTILINE)
}
"""Language, code and answer of the blocks below each heading; those above the first belong to the title."""

ENGINES = ["DuckDB", "Polars", "pandas", "delta-rs", "Declared columns", "Two roots"]
FIRST_US = 1_357_034_400_000_000
Rows = list[tuple[str, str | None]]
"""Keys and values."""


def commit(partition: Partition, rows: Rows) -> None:
    """One commit, whose records are a minute apart."""
    records = [
        Record(
            None if value is None else value.encode(),
            key.encode(),
            timestamp_us=FIRST_US + 60_000_000 * number,
        )
        for number, (key, value) in enumerate(rows, partition.high_watermark)
    ]
    partition.append([AppendRequest(input_batch(records, 0))])


def flight(carrier: str, delay: int) -> str:
    return f'{{"carrier": "{carrier}", "dep_delay": {delay}}}'


FLIGHTS: tuple[list[Rows], ...] = (
    [
        [("N14228", flight("UA", 2)), ("N24211", flight("UA", 4))],
        [("N14228", flight("UA", 15)), ("N24211", None)],
    ],
    [[("N618JB", flight("B6", -1))], [("N618JB", flight("B6", 8))]],
)
"""The commits of each partition of the page's topic."""


def filled(cluster: Cluster, name: str, commits: tuple[list[Rows], ...], **configs: str) -> Topic:
    """A topic with these commits, folded."""
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    topic = create_topic(cluster, name, len(commits), settings)
    for partition, batches in zip(topic.partitions(), commits, strict=True):
        partition.claim("")
        for rows in batches:
            commit(partition, rows)
    fold(topic)
    return topic


def merge(cluster: Cluster, partition: Partition) -> None:
    """All segments of `partition` become one, and the old files stay."""
    inputs = partition.snapshot.segments
    made = rewrite.merge(cluster.store, partition.directory, inputs, "zstd", SystemClock())
    assert rewrite.commit_merge(partition.table, inputs, made)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that the page calls `/data`: topics, one merged, one with columns, one tiered."""
    data = tmp_path_factory.mktemp("data")
    cluster = Cluster.open(open_store(data / "lakelog"))
    flights = filled(cluster, "flights", FLIGHTS)
    merge(cluster, flights.partition(1))
    fold(flights)
    first, second = FLIGHTS
    late: Rows = [("N618JB", '{"carrier": "B6", "dep_delay": "late"}')]
    filled(cluster, "delays", (first, [*second, late]), value_columns="carrier string, dep_delay bigint")
    set_remote_root(cluster, data / "archive")
    pairs: list[Rows] = [[("N1", "{}"), ("N2", "{}")] for _ in range(3)]
    landings = filled(cluster, "landings", (pairs,), remote_storage_enable="true")
    move_topic(cluster, "landings", [2])
    landings.partition(0).refresh()
    landings.partition(0).truncate(1)
    fold(landings)
    return data


def run(data: Path, section: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the Python of a section from top to bottom, as in one session, and compare each answer."""
    names: dict[str, Any] = {}
    for number, (language, code, answer) in enumerate(SECTIONS[section]):
        assert language == "python"
        script = data / f"{number}.py"
        script.write_text(code.replace("/data/", f"{data}/"))
        names |= runpy.run_path(str(script), init_globals=names)
        assert capsys.readouterr().out.rstrip().splitlines() == answer.rstrip().splitlines(), code


def test_every_block_is_run_and_has_an_answer() -> None:
    with_blocks = {title for title, blocks in SECTIONS.items() if blocks}
    assert with_blocks == {"# Recipes", "Spark", *ENGINES}
    assert all(answer for blocks in SECTIONS.values() for _, _, answer in blocks)
    assert len(re.findall(r"^```(?!text)\w+$", PAGE, re.MULTILINE)) == sum(map(len, SECTIONS.values()))


def test_the_topic_of_the_page_is_as_it_says(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((language, code, answer),) = SECTIONS["# Recipes"]
    words = re.fullmatch(r'lakelog sql --data /data/lakelog "(.*)"\n', code)
    assert words is not None
    assert language == "sh"
    arguments = ["sql", "--data", str(data / "lakelog"), words[1]]
    monkeypatch.setattr(sys, "argv", ["lakelog", *arguments])
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert [line.rstrip() for line in done.stdout.splitlines()] == answer.splitlines()


@pytest.mark.parametrize("section", ENGINES)
def test_the_recipes_of_an_engine_print_what_the_page_says(
    data: Path, section: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(data, section, capsys)


@pytest.fixture
def catalog(spark: "SparkSession") -> "Iterator[SparkSession]":
    """The shared session, which has no table of the page's name afterwards."""
    yield spark
    spark.sql("DROP TABLE IF EXISTS flights")


@pytest.mark.spark
def test_the_recipes_of_spark_print_what_the_page_says(
    data: Path, catalog: "SparkSession", capsys: pytest.CaptureFixture[str]
) -> None:
    run(data, "Spark", capsys)
    catalog.sql("DROP TABLE flights")
    assert catalog.read.format("delta").load(str(data / "lakelog/topics/flights")).count() == 6
