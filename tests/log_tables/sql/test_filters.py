"""A query finds the rows that DataFusion finds in a plain table of them, whatever its filter is."""

import pyarrow as pa
import pytest
from datafusion import SessionConfig, SessionContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from log_tables.cluster.admin.topic_admin import alter_topic, create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.sql.query import query
from log_tables.store.store import open_store
from tests.kit.partitions import append

FIRST = "n bigint, s string, day date"
LATER = f"{FIRST}, d double, at timestamp, b boolean, price decimal(12,3), code binary"
FILES = [
    (
        b'{"n":1,"s":"a","day":"2013-01-01","d":-0.0,"price":1.5}',
        b'{"n":2,"s":"b","day":"2013-01-02","d":1.5}',
    ),
    (
        b'{"n":9007199254740993,"s":"nan","d":1e308,"price":"99999999.99","code":"AP8=","b":true,"at":"2013-01-01T00:00:00.000001Z"}',
        b"{}",
    ),
    (
        b'{"n":-3,"s":"NULL","d":-2.5,"price":"-3","code":"YQ==","b":false,"at":"2013-06-01T00:00:00Z","day":"1969-12-31"}',
    ),
    (b"no JSON", None),
    (
        b'{"n":3,"d":0.0,"price":2,"b":true}',
        b'{"n":4,"s":"","d":2}',
        b'{"n":5,"s":"a nan b","d":3,"b":false}',
    ),
]


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    """A topic `t` of two partitions, whose declaration grows after the second file."""
    cluster = Cluster.open(open_store("memory://"))
    partitions = create_topic(cluster, "t", 2, {"value.columns": FIRST}).partitions()
    for partition in partitions:
        partition.claim("")
    for number, file in enumerate(FILES):
        for partition in partitions:
            append(partition, *file)
        if number == 1:
            alter_topic(cluster, "t", {"value.columns": LATER})
    return cluster


@pytest.fixture(scope="module")
def plain(cluster: Cluster) -> SessionContext:
    """A context with the rows as a plain table."""
    context = SessionContext(
        SessionConfig(
            {
                "datafusion.sql_parser.dialect": "PostgreSQL",
                "datafusion.sql_parser.enable_ident_normalization": "false",
            }
        )
    )
    rows = query(cluster, 'select * from t order by partition, "offset"')
    context.register_record_batches("t", [rows.to_batches()])
    return context


NUMBERS = [
    *("0", "1", "2", "-3", "2.0", "1.5", "-0.0", "1e0", "9007199254740992", "9007199254740993", "'2'"),
    *("99999999999999999999", "2::smallint", "1.5::real", "cast('3' as double)"),
    *("'NaN'::double", "'Infinity'::double", "'-inf'::double", "'NaN'::real", "0.0::double / 0.0::double"),
    *("NULL", "NULL::bigint", "NULL::double", "nullif(1, 1)"),
]
TEXTS = ["''", "'a'", "'b'", "'nan'", "'NULL'", "'a nan b'", "NULL", "NULL::text", "nullif('a', 'a')"]
TIMES = [
    *("'2013-01-01'", "date '2013-01-01'", "timestamp '2013-01-01'", "'2013-01-01T00:00:00.000001Z'"),
    *("timestamptz '2013-06-01T01:00:00+01:00'", "now()", "current_date", "NULL", "NULL::timestamp"),
]
COLUMNS = {
    **dict.fromkeys(('"offset"', "partition", "n", "d", "n + 1", "cast(n as double)", "-d"), NUMBERS),
    **dict.fromkeys(("s", "value_error", "key_text", "lower(s)", "cast(n as text)"), TEXTS),
    **dict.fromkeys(("day", "at", "timestamp"), TIMES),
    "b": ["true", "false", "NULL"],
    "price": [
        *NUMBERS[:4],
        *NUMBERS[11:],
        "'1.5'",
        "'99999999.99'",
        "99999999.99",
        "2::decimal(5,2)",
        "-3::decimal",
    ],
    "code": ["'\\x00ff'::bytea", "'a'", "X'61'", "NULL"],
}


def leaves(column: str) -> st.SearchStrategy[str]:
    literal = st.sampled_from(COLUMNS[column])
    compared = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "is distinct from", "is not distinct from"])
    many = st.lists(literal, min_size=1, max_size=6).map(", ".join)
    negated = st.sampled_from(["", "not "])
    return st.one_of(
        st.builds(lambda how, value: f"{column} {how} {value}", compared, literal),
        st.builds(lambda how, value: f"{value} {how} {column}", compared, literal),
        st.builds(lambda no, values: f"{column} {no}in ({values})", negated, many),
        st.builds(lambda no, low, high: f"{column} {no}between {low} and {high}", negated, literal, literal),
        negated.map(lambda no: f"{column} is {no}null"),
    )


filters = st.recursive(
    st.sampled_from([*COLUMNS]).flatmap(leaves) | st.sampled_from(["b", "b is not true", "NULL", "true"]),
    lambda inner: (
        st.builds(
            lambda one, how, other: f"({one}) {how} ({other})", inner, st.sampled_from(["and", "or"]), inner
        )
        | st.builds(
            lambda one, how: how.format(one),
            inner,
            st.sampled_from(["not ({})", "({}) is null", "({}) is not true", "({}) = b", "b <> ({})"]),
        )
    ),
    max_leaves=4,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(where=filters)
def test_a_filter_finds_what_it_finds_in_a_plain_table(
    cluster: Cluster, plain: SessionContext, where: str
) -> None:
    sql = f'select partition, "offset" from t where {where} order by 1, 2'
    assert query(cluster, sql).to_pylist() == plain.sql(sql).to_pylist()


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("n in (NULL, 1)", [1]),
        ('"offset" in (NULL, 1)', [2]),
        ("n between NULL and 4 or n = 1", [1]),
        ("partition between NULL and 4 or n = 1", [1]),
        ("value_error in (NULL, 'x') or n = 1", [1]),
        ("d < 'NaN'::double and n < 4", [-3, 3]),
        ("d between -1 and 'NaN'::double and n < 4", [3]),
        ("not (d >= 'NaN'::double) and n < 4", [-3, 3]),
        ("s = 'a nan b'", [5]),
        ("n not in (1, 2, 3, 4, 6)", [-3, 5, 9007199254740993]),
        ("(n in (1, 2, 3, 4, 6)) is null and value_error is null and s = 'b'", []),
        ("(n in (1, 2, 3, 4, 6)) = b", [-3, 3, 5]),
    ],
)
def test_nulls_and_nan_compare_as_in_datafusion(cluster: Cluster, where: str, found: list[int]) -> None:
    rows = query(cluster, f"select n from t where partition = 0 and ({where}) order by n")
    assert [row["n"] for row in rows.to_pylist()] == found


def test_a_filter_that_is_null_finds_nothing(cluster: Cluster) -> None:
    for where in ("key in (NULL)", "n = NULL", "n between NULL and 4", '"offset" between 0 and NULL'):
        assert query(cluster, f"select n from t where {where}") == pa.table({"n": pa.array([], pa.int64())})


def test_a_filter_that_arrow_cannot_have_is_explained(cluster: Cluster) -> None:
    for where in ("d < 'NaN'::double", "n in (NULL, 1)", "n = 1"):
        rows = query(cluster, f"explain select n from t where {where}").to_pylist()
        assert [row["plan_type"] for row in rows] == ["logical_plan", "physical_plan"]
