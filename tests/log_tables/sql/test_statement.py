"""Statements: only those that read are answered, and their words have every name of a column."""

from pathlib import Path

import pytest

from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidArgument
from log_tables.limits import SQL_OPERATORS_MAX
from log_tables.sql.query import query
from log_tables.sql.statement import check_size, describes_table, is_show_tables, words
from log_tables.store.store import open_store
from tests.kit.partitions import append


@pytest.fixture
def cluster(store_root: Path) -> Cluster:
    return Cluster.open(open_store(store_root))


@pytest.mark.parametrize(
    "sql",
    [
        'insert into "orders/0" select * from "orders/0"',
        'with x as (select 1) insert into "orders/0" select * from "orders/0"',
        'delete from "orders/0"',
        "drop view orders",
        "create view x as select 1",
        "create external table x stored as csv location '/etc/passwd'",
        "copy (select 1) to '{file}'",
        "explain analyze copy (select 1) to '{file}'",
        "describe analyze copy (select 1) to '{file}'",
        "EXPLAIN\nANALYZE VERBOSE copy (select 1) to '{file}'",
        "set datafusion.execution.batch_size = 1",
        "select 1) union all (copy (select 1) to '{file}'",
        "select * into y from orders",
        "with x as (select 1) select * into y from x",
        "(select 1 into y)",
        "select 1 union select 2 INTO y",
        "select * from (select 1 into y) x",
        "with x as (select 1 into y) select * from x",
        "explain select 1 into y",
        "explain analyze select 1 into y",
        "select 'it''s' /* into */ as a into--\n y",
        "select 'a\\' as a into y, ''",
        "select 1 as a$x$ into y",
        "truncate table orders",
        "create table x as select 1",
        "prepare p as select 1",
        "explain prepare p as select 1",
        "explain set datafusion.execution.batch_size = 1",
        "select 1; select 2",
        "select * from '/etc/passwd'",
        'select * from "/etc/passwd"',
        "select * from '{file}'",
        "explain create external table x stored as csv location '/etc/passwd'",
        "create function f() returns int return 1",
        "show all",
        "show columns from orders",
        "select * from information_schema.tables",
        "select * from read_json('/etc/passwd')",
        "select * from arrow_file('/etc/passwd')",
        "select * from 'file:///etc/passwd'",
        "select * from read_csv('/etc/passwd')",
        "select * from read_parquet('/etc/passwd')",
        "select * from parquet_metadata('/etc/passwd')",
        "select",
        "",
        "select 'a\x00b'",
        'select 1 as "a\x00"',
    ],
)
def test_only_queries_run(cluster: Cluster, tmp_path: Path, sql: str) -> None:
    partition = cluster.claim(create_topic(cluster, "orders"), 0)
    append(partition, b"x")
    version = partition.snapshot.version
    file = tmp_path / "written.parquet"
    with pytest.raises(InvalidArgument):
        query(cluster, sql.format(file=file))
    assert not file.exists()
    assert partition.refresh().version == version
    assert query(cluster, "select value_text from orders").to_pylist() == [{"value_text": "x"}]


@pytest.mark.parametrize(
    "sql",
    [
        "select 'into' as x",
        "select 'it''s \"into\"' as \"into\"",
        "select E'it\\'s into' as x -- into y",
        "select $$ into $$ as x /* into y */",
        "select $a$ $$ into $a$ as x",
        "select 1 as into_it",
    ],
)
def test_into_is_a_word_like_others_where_it_is_quoted(cluster: Cluster, sql: str) -> None:
    assert query(cluster, sql).num_rows == 1


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("select a, b.c from t where d=1 group by e order by f limit 5", {"a", "b", "c", "t", "d", "e", "f"}),
        ('select "x y", "a""b", "select" from t', {"x y", 'a"b', "select", "t"}),
        ("select sum(a), count (b) over (partition by c)", {"a", "b", "c", "over"} - {"over"}),
        ("select 'a' || E'\\'b' || $$c$$ || $x$d$x$ -- e\n /* f */, g", {"g"}),
        ("select größe, a$b, _c, d1 from t", {"größe", "a$b", "_c", "d1", "t"}),
        ("select group, desc, offset, by from t", {"group", "desc", "offset", "by", "t"}),
        ("select a.\"b\".c['d']", {"a", "b", "c"}),
    ],
)
def test_the_words_of_a_statement_are_its_names(sql: str, found: set[str]) -> None:
    assert words(sql) == found


def test_statements_of_their_own_are_known() -> None:
    assert all(map(is_show_tables, ["show tables", " SHOW\n TABLES ;", "show /* all */ tables -- x"]))
    assert not any(map(is_show_tables, ["show tables x", "select 1", "'show tables'"]))
    assert all(map(describes_table, ["describe t", 'DESC "a b";', "describe public.t -- x"]))
    assert not any(map(describes_table, ["describe select 1", "select 1"]))


@pytest.mark.parametrize(
    "chained",
    [
        " + 1",
        " or true",
        "::int",
        " || ''",
        " union all select 1",
        " at time zone 'UTC'",
        " in (1)",
        ", (select 1, 2 from b where c) t",
    ],
)
def test_a_chain_that_a_plan_cannot_follow_is_refused_before_it_is_planned(chained: str) -> None:
    begin = "select 1 from a" if chained.startswith(",") else "select 1"
    check_size(begin + chained * (SQL_OPERATORS_MAX - 1))
    with pytest.raises(InvalidArgument, match="9000 operators"):
        check_size(begin + chained * 9_000)


def test_a_chain_of_common_table_expressions_and_one_of_parts_is_refused() -> None:
    steps = (f"a{each} as (select x from a{each - 1})" for each in range(1, 9_001))
    for sql in (f"with {', '.join(steps)} select 1", "select a" + "[1]" * 9_001, "select a" + ".b" * 9_001):
        with pytest.raises(InvalidArgument, match="9000 operators"):
            check_size(sql)


def test_lists_and_what_is_quoted_are_no_chains() -> None:
    many = ", ".join(f"t.c{each}" for each in range(2_000))
    check_size(f"select a is distinct from b, {many} from t where e group by {many} order by {many}")
    check_size(f"select x from (values {', '.join(['(1, 2)'] * 2_000)}) v")
    check_size(f"select 'a+b-c' from t where id in ({', '.join(map(str, range(20_000)))}) -- {'+' * 9_000}")
