"""SQL in Python: the answers of `lakelog sql` as Arrow."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import lakelog
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.partition.partition import AppendRequest
from log_tables.record import Record, input_batch
from log_tables.store.store import open_store
from tests.kit.faces import Face
from tests.kit.gateway import RunningGateway

NOW_US = 1_700_000_000_000_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A root with a topic of two partitions, of which one has records."""
    topic = create_topic(Cluster.open(open_store(tmp_path)), "sales", 2)
    partition = topic.partition(1)
    partition.claim("")
    records = [Record(b'{"amount": %d}' % amount) for amount in range(3)]
    partition.append([AppendRequest(input_batch(records, NOW_US))])
    return tmp_path


def test_an_answer_is_a_table_of_arrow(data: Path) -> None:
    found = lakelog.sql("SELECT sum(amount) AS total FROM sales_json", data=data)
    assert found.schema == pa.schema([("total", pa.int64())])
    assert found.to_pylist() == [{"total": 3}]
    assert duckdb.connect().execute("FROM found").fetchall() == [(3,)]


def test_an_answer_without_rows_has_its_columns(data: Path) -> None:
    found = lakelog.sql("SELECT offset, value FROM sales WHERE partition = 0", data=str(data))
    assert (found.num_rows, found.schema.names) == (0, ["offset", "value"])


def test_all_tables_are_there(data: Path) -> None:
    names = lakelog.sql("SHOW TABLES", data=data).column("name").to_pylist()
    assert {"sales", "sales_json", "consumer_lag", "consumer_offsets"} <= set(names)


def test_what_was_read_is_told(data: Path) -> None:
    scans: list[tuple[str, int, int]] = []
    query = "SELECT count(*) FROM sales WHERE partition = 0"
    lakelog.sql(query, data=data, on_scan=lambda *scan: scans.append(scan))
    ((topic, read, files),) = scans
    assert (topic, read) == ("sales", 0)
    assert files >= 1


@pytest.mark.parametrize("query", ["SELECT * FROM nowhere", "DROP TABLE sales", "SELECT 1 INTO t", ""])
def test_what_cannot_be_answered_is_refused(data: Path, query: str) -> None:
    with pytest.raises(lakelog.InvalidArgument):
        lakelog.sql(query, data=data)


def test_where_there_is_no_root_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(lakelog.InvalidArgument):
        lakelog.sql("SHOW TABLES", data=tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_one_place_is_asked(data: Path) -> None:
    for places in ({}, {"data": data, "url": "http://127.0.0.1:1"}):
        with pytest.raises(lakelog.InvalidArgument, match="data or url"):
            lakelog.sql("SHOW TABLES", **places)  # type: ignore[arg-type]


def test_a_gateway_gives_the_answer_that_its_tables_give(gateway: RunningGateway, topic: str) -> None:
    values = [{"amount": number, "text": "x" * 2_000} for number in range(1_500)]
    gateway.produce(topic, *values, partition=0)
    name = f'"{topic}_json"'
    for query in (
        f"SELECT amount, text, key, timestamp FROM {name} ORDER BY offset",
        f"SELECT amount FROM {name} WHERE amount < 0",
        "SELECT arrow_cast('a', 'Binary') AS b, make_array(1, NULL) AS l, now() IS NULL AS n",
    ):
        asked = lakelog.sql(query, url=gateway.url)
        assert asked.equals(lakelog.sql(query, data=gateway.data)), query


def test_a_gateway_refuses_and_tells_what_it_read(face: Face, gateway: RunningGateway, topic: str) -> None:
    gateway.produce(topic, 1, partition=0)
    scans: list[tuple[str, int, int]] = []
    with face.client(gateway.url) as client:
        with pytest.raises(lakelog.InvalidRequest, match="cannot be answered"):
            client.sql("SELECT")
        with pytest.raises(lakelog.InvalidRequest, match="zero"):
            client.sql(f'SELECT 1 / (offset - offset) FROM "{topic}"')
        client.sql(f'SELECT value FROM "{topic}"', lambda *scan: scans.append(scan))
    assert scans == [(topic, 1, 1)]
