"""SQL over declared columns: what they hold before and after a change, and the files left out."""

from decimal import Decimal
from pathlib import Path

import pytest

from log_tables.cluster.admin.topic_admin import alter_topic, create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidArgument
from log_tables.sql.query import query
from log_tables.store.store import open_store
from log_tables.testing import FaultyStore
from tests.kit.partitions import append

DECLARED = (
    "carrier string, delay double, at timestamp FROM '/time', tags array<string>, route struct<to: string>"
)
UNITED = b'{"carrier":"UA","delay":2,"time":"2013-01-01T05:00:00Z","tags":["a","b"],"route":{"to":"IAH"}}'
FILES = 6


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster.open(FaultyStore(open_store("memory://")))
    partition = create_topic(cluster, "t", configs={"value.columns": DECLARED}).partition(0)
    partition.claim("")
    append(partition, UNITED)
    return cluster


def rows(cluster: Cluster, sql: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in query(cluster, sql).to_pylist()]


def test_columns_are_typed_and_nested_ones_are_taken_apart(cluster: Cluster) -> None:
    sql = "select carrier, delay + 1, date_part('hour', at), tags[2], route['to'], value_error from t"
    assert rows(cluster, sql) == [("UA", 3.0, 5, "b", "IAH", None)]
    assert rows(cluster, "select carrier from t where tags[1] = 'a' and route['to'] = 'IAH'") == [("UA",)]


def test_a_time_of_the_json_is_that_of_the_declared_column(cluster: Cluster) -> None:
    append(
        cluster.topic("t").partition(0),
        b'{"time":"2026-03-29T03:30:00+02:00"}',
        b'{"time":"2026-03-29 01:30"}',
    )
    for column, view in (("at", "t"), ("time", "t_json")):
        sql = f"select {column} at time zone 'Europe/Berlin' from {view} where offset > 0 order by offset"
        found = rows(cluster, f"select arrow_typeof({column}) from {view} where offset > 0 limit 1")
        assert found == [('Timestamp(µs, "UTC")',)]
        assert [str(when) for (when,) in rows(cluster, sql)] == ["2026-03-29 03:30:00+02:00"] * 2


def test_what_does_not_fit_is_found_by_its_error(cluster: Cluster) -> None:
    partition = cluster.topic("t").partition(0)
    append(partition, b'{"carrier":1}')
    append(partition, None)
    wrong = rows(cluster, 'select "offset", value_error, carrier from t where value_error is not null')
    assert wrong == [(1, "/carrier is a whole number, not string", None)]
    assert rows(cluster, "select count(*) from t where carrier is null and value_error is null") == [(1,)]


def test_a_column_is_null_where_it_was_not_declared(cluster: Cluster) -> None:
    alter_topic(cluster, "t", {"value.columns": "carrier string, seats bigint"})
    append(cluster.topic("t").partition(0), b'{"carrier":"AA","delay":9,"seats":180}')
    assert rows(cluster, "select carrier, delay, seats from t order by offset") == [
        ("UA", 2.0, None),
        ("AA", None, 180),
    ]
    alter_topic(cluster, "t", {"value.columns": None})
    append(cluster.topic("t").partition(0), b'{"carrier":"DL"}')
    assert rows(cluster, "select count(*), count(carrier) from t") == [(3, 2)]


def test_a_column_is_known_before_the_first_record_has_it(cluster: Cluster) -> None:
    create_topic(cluster, "empty", 2, {"value.columns": "n bigint"})
    assert rows(cluster, "select sum(n) from empty") == [(None,)]
    with pytest.raises(InvalidArgument, match="seats"):
        query(cluster, "select seats from t")


def test_decimals_are_exact_and_compare_as_texts_do(cluster: Cluster) -> None:
    partition = create_topic(
        cluster, "p", configs={"value.columns": "price decimal(38,9), code binary"}
    ).partition(0)
    partition.claim("")
    most = f"{'9' * 29}.{'9' * 9}"
    append(partition, b'{"price":"-%b","code":"AP8="}' % most.encode(), b'{"price":0.10}', b'{"price":0.2}')
    assert rows(cluster, "select sum(price) from p where price > -1") == [(Decimal("0.300000000"),)]
    for where in (f"price = '-{most}'", "code = X'00FF'"):
        assert rows(cluster, f"select price, code from p where {where}") == [
            (Decimal(f"-{most}"), b"\x00\xff")
        ]
    assert rows(cluster, "select count(*) from p where price in ('0.1', '0.2') and code is null") == [(2,)]


def test_the_columns_of_a_topic_are_described(cluster: Cluster) -> None:
    described = {row["column_name"]: row["data_type"] for row in query(cluster, "describe t").to_pylist()}
    assert described["delay"] == "Float64"
    assert [*described][-9:-2] == ["headers", "value_error", "carrier", "delay", "at", "tags", "route"]


def test_only_files_that_can_hold_a_match_are_opened(tmp_path: Path) -> None:
    store = FaultyStore(open_store(tmp_path))
    cluster = Cluster.open(store)
    partition = create_topic(
        cluster, "t", configs={"value.columns": "n bigint, s string, p decimal(9,2)"}
    ).partition(0)
    partition.claim("")
    for file in range(FILES):
        append(partition, b'{"n":%d,"s":"%d","p":"%d.5"}' % (file, file, file))

    def opened(sql: str) -> int:
        seen = Cluster.open(FaultyStore(open_store(tmp_path)))
        assert isinstance(seen.store, FaultyStore)
        assert rows(seen, sql) == [(1,)]
        reads = {call.path for call in seen.store.calls if call.operation in ("get", "get_range")}
        return sum(path.startswith("topics/t/") and path.endswith(".parquet") for path in reads)

    assert opened("select count(*) from t where n = 3") == 1
    assert opened("select count(*) from t where s = '3' and n < 5") == 1
    assert opened("select count(*) from t where p = '3.50'") == 1
    assert opened("select count(*) from t where p between 3 and 4") == 1
    assert opened("select count(*) from t where cast(n as double) = 3.0") == FILES
    assert opened("select count(distinct key_text is null) from t where value_error is null") == FILES
