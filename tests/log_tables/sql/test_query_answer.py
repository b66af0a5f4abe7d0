"""A query of one who may see a part: the rest does not exist, and SQL reaches nothing but tables."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidArgument, LakelogError
from log_tables.limits import MIB
from log_tables.partition.partition import AppendRequest
from log_tables.record import Record, input_batch
from log_tables.sql.query_answer import answer, failure, opened
from log_tables.sql.query_request import (
    FrameKind,
    QueryFailure,
    QueryRequest,
    QueryResult,
    RootRequest,
    TableAccess,
)
from log_tables.sql.system_tables import SYSTEM_TABLES
from log_tables.store.store import open_store
from tests.kit.groups import commit

NOW_US = 1_700_000_000_000_000
MEMORY = 256 * MIB
ACCESS = TableAccess(
    frozenset(("open", "also.open")),
    frozenset(("consumer_offsets", "consumer_lag")),
    frozenset(("ours",)),
    frozenset(("open", "also.open", "seen")),
)
NAMES = ("open", "also.open", "seen", "hidden")
VISIBLE = ("open", "also.open", "open_json", "also.open_json", "consumer_offsets", "consumer_lag")
ADVICE = re.compile(r"did you mean ([^ ]+)\?|there are [^;]*")
"""Depends on the name that is asked for, and names what is visible."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Topics with a record each, two of them readable, and two groups."""
    root = tmp_path_factory.mktemp("root")
    found = Cluster.open(open_store(root))
    for name in NAMES:
        partition = create_topic(found, name, 1).partition(0)
        partition.claim("")
        value = f'{{"secret":"of {name}"}}'.encode()
        partition.append([AppendRequest(input_batch([Record(value)] * 3, NOW_US))])
    for group in ("ours", "theirs"):
        for name in NAMES:
            commit(found, group, name, 0, 1)
    return found


class Asked:
    """The frames of one query."""

    def __init__(
        self, cluster: Cluster, sql: str, access: TableAccess = ACCESS, rows: int = 1_000, size: int = MIB
    ) -> None:
        self.frames: list[tuple[FrameKind, bytes]] = []
        self.result: QueryResult | None = None
        self.error: LakelogError | None = None
        try:
            self.result = answer(cluster, QueryRequest(sql, access, rows, size), MEMORY, self._take)
        except LakelogError as error:
            self.error = error

    def _take(self, kind: FrameKind, content: bytes) -> None:
        self.frames.append((kind, content))

    @property
    def rows(self) -> list[list[str]]:
        assert self.error is None
        parts = [msgspec.json.decode(content) for kind, content in self.frames if kind is FrameKind.ROWS]
        return [row for part in parts for row in part]

    @property
    def said(self) -> str:
        """The whole text that the client sees."""
        message = "" if self.error is None else self.error.message
        return message + b"".join(content for _, content in self.frames).decode()


def test_what_may_be_read_is_there(cluster: Cluster) -> None:
    found = Asked(cluster, 'select a.value_text from open a join "also.open" b using (partition, "offset")')
    assert found.rows == [['{"secret":"of open"}']] * 3
    assert found.frames[0] == (FrameKind.TABLES, b'{"topics":["also.open","open"],"tables":[]}')
    assert Asked(cluster, "select secret from open_json limit 1").rows == [["of open"]]
    tables = [row[0] for row in Asked(cluster, "show tables").rows]
    assert tables == ["also.open", "also.open_json", "consumer_lag", "consumer_offsets", "open", "open_json"]


@pytest.mark.parametrize(
    "sql",
    [
        "select * from {}",
        'select * from "{}"',
        'select * from public."{}"',
        'select * from datafusion.public."{}"',
        'select * from "lakelog/{}"',
        "with a as (select * from {}) select * from a",
        "select * from open where exists (select 1 from {})",
        "select (select max(value_text) from {})",
        "select * from open o join {} h on true",
        "select * from open union all select * from {}",
        "describe {}",
        "explain select * from {}",
        "explain analyze select * from {}",
        "explain verbose select * from {}",
        "table {}",
    ],
)
def test_what_may_not_be_read_is_as_what_does_not_exist(cluster: Cluster, sql: str) -> None:
    missing = Asked(cluster, sql.format("nothing_here"))
    for name in ("hidden", "seen", "hidden_json", "__cluster_metadata", "__consumer_offsets", "audit"):
        denied = Asked(cluster, sql.format(name))
        assert denied.result is None
        assert {found[1] for found in ADVICE.finditer(denied.said)} <= {None, *VISIBLE}
        assert ADVICE.sub("", denied.said.replace(name, "nothing_here")) == ADVICE.sub("", missing.said)
        assert "secret" not in denied.said


def test_no_message_names_what_may_not_be_read(cluster: Cluster) -> None:
    for sql in (
        "select * from nothing",
        "select nothing from open",
        "show tables",
        "selec",
        "select * from hiden",
    ):
        said = Asked(cluster, sql).said
        assert not any(
            name in said for name in ("hidden", "seen", "audit", "maintenance_runs", "mirror_gaps", "__")
        )


def test_rows_about_groups_are_those_of_groups_and_topics_that_may_be_described(cluster: Cluster) -> None:
    for table in ("consumer_offsets", "consumer_lag"):
        found = Asked(cluster, f'select "group", topic from {table} order by topic')
        assert found.rows == [["ours", "also.open"], ["ours", "open"], ["ours", "seen"]]
        assert found.frames[0] == (FrameKind.TABLES, b'{"topics":[],"tables":["%b"]}' % table.encode())
    nobody = TableAccess(frozenset(), frozenset(SYSTEM_TABLES), frozenset(), frozenset())
    assert Asked(cluster, "select count(*) from consumer_lag", nobody).rows == [["0"]]
    assert Asked(cluster, "select count(*) from audit", nobody).rows == [["0"]]


def test_a_topic_with_the_name_of_a_table_that_may_not_be_read_does_not_hide_it(cluster: Cluster) -> None:
    create_topic(cluster, "maintenance_runs", 1)
    admin = TableAccess(frozenset(), frozenset(SYSTEM_TABLES), frozenset(), frozenset())
    found = Asked(cluster, "select * from maintenance_runs", admin)
    assert found.result is not None
    assert b"value_text" not in found.frames[1][1]


def attempts(directory: Path) -> Iterable[str]:
    """Statements that would read or write a file, change the session, or show how it is made."""
    for path in (directory / "data.parquet", directory / "data.csv", directory / "data.json"):
        for named in (
            f"'{path}'",
            f'"{path}"',
            f'"file://{path}"',
            f"read_parquet('{path}')",
            f"read_csv('{path}')",
        ):
            yield f"select * from {named}"
        yield f"create external table x stored as csv location '{path}'"
        yield f"explain create external table x stored as csv location '{path}'"
        yield f"copy open to '{path}.out'"
        yield f"copy (select 1) to '{path}.out' stored as csv"
        yield f"explain analyze copy open to '{path}.out' stored as parquet"
        yield f"describe '{path}'"
        yield f"select * from parquet_metadata('{path}')"
        yield f"load data inpath '{path}' into table open"
    yield from (
        "create table x as select 1",
        "create view x as select 1",
        "create schema x",
        "create database x",
        "create function f() returns int return 1",
        "drop table open",
        "select 1 into x",
        "insert into open values (1)",
        "with a as (insert into open values (1) returning *) select * from a",
        "with a as (select 1) insert into open select * from a",
        "update open set value = 'x'",
        "delete from open",
        "truncate open",
        "merge into open using open on true when matched then delete",
        "set datafusion.catalog.information_schema = true",
        "set datafusion.execution.batch_size = 1",
        "reset datafusion.execution.batch_size",
        "show all",
        "show columns from open",
        "show functions",
        "show create table open",
        "select * from information_schema.tables",
        "select * from datafusion.information_schema.df_settings",
        "select * from pg_catalog.pg_class",
        "prepare p as select 1",
        "execute p",
        "deallocate p",
        "begin",
        "commit",
        "use x",
        "select 1; select 2",
        "analyze table open",
        "vacuum",
        "select pg_read_file('/etc/passwd')",
        "select getenv('HOME')",
        "select current_setting('data_directory')",
        "select input_file_name() from open",
    )


def test_no_statement_reaches_a_file_or_changes_anything(cluster: Cluster, tmp_path: Path) -> None:
    for name in ("data.parquet", "data.csv", "data.json"):
        (tmp_path / name).write_text('{"a":"file content"}\n')
    before = sorted(os.listdir(tmp_path))
    for sql in attempts(tmp_path):
        found = Asked(cluster, sql)
        assert isinstance(found.error, InvalidArgument), sql
        assert "file content" not in found.said
    assert sorted(os.listdir(tmp_path)) == before
    assert len(Asked(cluster, "select * from open").rows) == 3


@pytest.mark.parametrize(
    "sql", ["explain select * from open", "explain analyze select * from open where partition = 0"]
)
def test_a_plan_names_no_path_of_the_machine(cluster: Cluster, sql: str) -> None:
    found = Asked(cluster, sql)
    assert len(found.rows) > 0
    assert cluster.store.url not in found.said
    assert ".parquet" not in found.said


def test_an_answer_ends_at_the_rows_that_are_wanted(cluster: Cluster) -> None:
    found = Asked(cluster, "select value from generate_series(1, 100000)", rows=1_000)
    assert found.result is not None
    assert (found.result.rows, found.result.cut, len(found.rows)) == (1_000, "rows", 1_000)
    exact = Asked(cluster, "select * from open", rows=3)
    assert exact.result is not None
    assert (exact.result.rows, exact.result.cut) == (3, "")


def test_an_answer_ends_at_the_bytes_that_are_wanted(cluster: Cluster) -> None:
    sql = "select repeat('x', 900) from generate_series(1, 100000)"
    found = Asked(cluster, sql, rows=100_000, size=MIB)
    assert found.result is not None
    assert found.result.cut == "bytes"
    assert sum(len(content) for kind, content in found.frames if kind is FrameKind.ROWS) <= MIB


def test_a_query_that_takes_too_much_memory_says_so(cluster: Cluster) -> None:
    found = Asked(cluster, "select array_agg(value) from generate_series(1, 100000000)")
    assert found.error is not None
    told = msgspec.json.decode(failure(found.error, 7), type=QueryFailure)
    assert (told.code, told.memory_bytes) == ("invalid_argument", 7)
    assert "sql_memory" in told.message


def test_a_mistake_of_ours_is_told_to_the_gateway_alone() -> None:
    told = msgspec.json.decode(failure(ZeroDivisionError("x"), 0), type=QueryFailure)
    assert told.code == ""
    assert "ZeroDivisionError" in told.message


def test_a_root_is_opened_and_never_made(cluster: Cluster, tmp_path: Path) -> None:
    root = RootRequest(cluster.store.url, dict(cluster.store.options), MEMORY)
    assert opened(root).cluster_id == cluster.cluster_id
    with pytest.raises(LakelogError):
        opened(RootRequest(str(tmp_path / "nothing"), {}, MEMORY))
    assert not (tmp_path / "nothing").exists()
