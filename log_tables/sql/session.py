"""One query in DataFusion: the tables that its statement names, and no others, opened for it."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
from datafusion import (
    DataFrame,
    RecordBatchStream,
    RuntimeEnvBuilder,
    SessionConfig,
    SessionContext,
    SQLOptions,
    udf,
)
from datafusion.catalog import SchemaProvider

from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import is_internal
from log_tables.errors import InvalidArgument, LakelogError
from log_tables.layout import AUDIT
from log_tables.spelling import meant
from log_tables.sql.json_view import (
    SUFFIX,
    PlannedScan,
    ScanRequest,
    Types,
    json_table,
    named,
    newest_types,
    types_of,
)
from log_tables.sql.query_request import TableAccess
from log_tables.sql.record_digest import register_functions
from log_tables.sql.scan import Failures
from log_tables.sql.statement import describes_table, words
from log_tables.sql.system_tables import AUDIT_TABLE, SYSTEM_TABLES, WRITES_TABLE, system_tables
from log_tables.sql.topic_files import OnScan, TopicFiles, topic_files, topic_names
from log_tables.sql.topic_view import audit_view, quoted, topic_view, writes_view

_SETTINGS = {
    "datafusion.sql_parser.dialect": "PostgreSQL",  # in others `select key, offset` ends at the comma
    "datafusion.sql_parser.enable_ident_normalization": "false",
}
_OF_NOW = {
    "now": pa.timestamp("ns"),
    "current_timestamp": pa.timestamp("ns"),
    "current_date": pa.date32(),
    "today": pa.date32(),
    "current_time": pa.time64("ns"),
}
OnTables = Callable[[Collection[str], Collection[str]], None]
"""Takes the names of topics, and those of system tables."""

_NAMED_MAX = 20
_SAID_MAX_CHARS = 500
_SAMPLED_RECORDS = 1_000
_PLANS_MAX = 3

_OF_AUDIT = {AUDIT_TABLE: audit_view, WRITES_TABLE: writes_view}
"""The tables that are views of the audit log."""

_UNKNOWN_TABLE = re.compile(r"table '(?:datafusion\.)?(?:public\.)?(?P<name>[^']*)' not found")
_UNKNOWN_COLUMN = re.compile(r'No field named (?:[^ ]+\.)?"?(?P<name>[^ ."]+)"?\.')
_WRAPPED = re.compile(r"^((DataFusion error|External error|Arrow error|Exception): )+")


class _EmptySchema(SchemaProvider):
    """A schema without tables, which notes for which ones it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def table_names(self) -> set[str]:
        return set()

    def table(self, name: str) -> None:
        self.asked.append(name)

    def table_exist(self, name: str) -> bool:  # noqa: ARG002
        return False


class Session:
    """The tables of one query. The topics are as last refreshed; `on_scan` is told of each scan of one.

    Only the topics, tables and rows of `access` exist, all without it. `on_tables` is told of the topics and
    system tables before they are read. With `memory_bytes` DataFusion takes that much at most, and writes no
    file.
    """

    def __init__(
        self,
        cluster: Cluster,
        on_scan: OnScan,
        access: TableAccess | None = None,
        on_tables: OnTables = lambda *_: None,
        memory_bytes: int | None = None,
    ) -> None:
        self._cluster, self._on_scan, self._access, self._on_tables = cluster, on_scan, access, on_tables
        self._context = SessionContext(SessionConfig(_SETTINGS), _runtime(memory_bytes))
        _set_time(self._context, cluster.clock.now_us())
        register_functions(self._context)
        self._topics, self._tables = topic_names(cluster), [*SYSTEM_TABLES]
        if access is not None:
            self._topics = [name for name in self._topics if name in access.topics]
            self._tables = [name for name in self._tables if name in access.tables]
        self._audited = cluster.cached_topic(AUDIT) is not None
        self._failures: Failures = []
        self._views: dict[str, TopicFiles] = {}

    def tables(self) -> pa.Table:
        """The answer to SHOW TABLES: each name, and what it is."""
        kinds = dict.fromkeys(self._tables, "table")
        kinds |= {name + SUFFIX: "fields of JSON" for name in self._topics}
        kinds |= dict.fromkeys(self._topics, "topic")
        rows = [{"name": name, "kind": kind} for name, kind in sorted(kinds.items())]
        return pa.Table.from_pylist(rows, pa.schema([("name", pa.string()), ("kind", pa.string())]))

    def plan(self, sql: str) -> DataFrame:
        """The plan of a query, with its tables open. Raises as `query_stream` does."""
        asked = _tables_of(sql)
        views = {name: name for name in asked if name in self._topics}
        views |= {
            name: name.removesuffix(SUFFIX)
            for name in asked
            if name not in views and name.endswith(SUFFIX) and name.removesuffix(SUFFIX) in self._topics
        }
        others = [name for name in self._tables if name in asked and name not in views]
        topics = [*dict.fromkeys(views.values())]
        self._on_tables(topics, others)
        files = {topic: self._files(topic) for topic in topics}
        for name, topic in views.items():
            if name == topic:
                self._views[name] = files[topic]
        for name in _OF_AUDIT if self._audited else ():
            if name in others:
                self._views[name] = self._files(AUDIT)
        self._register_views()
        made = [name for name in others if name not in self._views]
        for name, table in system_tables(self._cluster, made, self._access).items():
            self._register(name, table)
        of_json = {name: files[topic] for name, topic in views.items() if name != topic}
        if not of_json:
            return self._planned(sql)
        try:
            return self._planned_json(sql, of_json, words(sql) - set(asked))
        except InvalidArgument as error:
            raise _with_columns(error, of_json) from None

    def _register_views(self, filtered: bool = True) -> None:
        for name, files in self._views.items():
            self._forget(name)
            make = _OF_AUDIT.get(name, topic_view) if files.name == AUDIT else topic_view
            view = make(self._context, files, self._failures, filtered)
            self._context.register_view(quoted(name), view)

    def _files(self, topic: str) -> TopicFiles:
        return replace(topic_files(self._cluster, topic), on_scan=self._on_scan)

    def _planned_json(self, sql: str, files: Mapping[str, TopicFiles], words: Collection[str]) -> DataFrame:
        """The plan, with the `_json` views that it reads made of what it needs of them."""
        columns = None if describes_table(sql) else named(words)
        needed = self._first_needed(sql, files, words, columns)
        for _ in range(_PLANS_MAX):
            tables = {name: json_table(files[name], needed[name]) for name in files}
            again = self._needed(sql, {name: types_of(table) for name, table in tables.items()}, columns)
            if again is None:
                break
            if all(needed[name].covers(again[name]) for name in files):
                try:
                    return self._planned_over(sql, tables)
                except InvalidArgument:
                    break
            needed = again
        # A field that no row has so far may be in others, and a type may be another one there.
        if any(item.where is not None for item in needed.values()):
            tables = {
                name: json_table(files[name], ScanRequest(None, needed[name].columns)) for name in files
            }
        return self._planned_over(sql, tables)

    def _first_needed(
        self,
        sql: str,
        files: Mapping[str, TopicFiles],
        words: Collection[str],
        columns: frozenset[str] | None,
    ) -> dict[str, ScanRequest]:
        """The requests of the statement, as far as can be said before a type is known."""
        for kind in (pa.null(), pa.float64()):  # most functions take nulls, and `sum` takes numbers
            found = self._needed(sql, dict.fromkeys(files, dict.fromkeys(words, kind)), columns)
            if found is not None:
                return found
        types = {name: newest_types(files[name], columns, _SAMPLED_RECORDS) for name in files}
        return self._needed(sql, types, columns) or {name: ScanRequest(None, None) for name in files}

    def _needed(
        self, sql: str, types: Mapping[str, Types], columns: frozenset[str] | None
    ) -> dict[str, ScanRequest] | None:
        """The request of the statement to each view whose fields have these types; None without a plan."""
        probes = {name: PlannedScan(of_fields) for name, of_fields in types.items()}
        for name, probe in probes.items():
            self._forget(name)
            self._forget(f"{name}/probe")
            self._context.register_view(quoted(name), probe.view(self._context, f"{name}/probe"))
        try:
            self._planned(sql).execution_plan()
        except Exception:  # noqa: BLE001 (DataFusion has no class for them; the last plan says what it was)
            return None
        return {name: probe.needed(columns) for name, probe in probes.items()}

    def _planned_over(self, sql: str, tables: Mapping[str, pa.Table]) -> DataFrame:
        for name, table in tables.items():
            self._forget(name)
            self._register(name, table)
        return self._planned(sql)

    def _register(self, name: str, table: pa.Table) -> None:
        batches = table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
        self._context.register_record_batches(quoted(name), [batches])

    def _forget(self, name: str) -> None:
        if self._context.table_exist(quoted(name)):
            self._context.deregister_table(quoted(name))

    def _planned(self, sql: str) -> DataFrame:
        try:
            return self._context.sql_with_options(sql, _reads_only())
        except Exception as error:  # noqa: BLE001 (as above)
            raise self._unanswered(error) from None

    def batches(self, sql: str, answer: DataFrame) -> Iterator[pa.RecordBatch]:
        """The rows of the answer that was planned of `sql`. Raises as `query_stream` does."""
        try:
            for batch in self._begun(sql, answer):
                yield batch.to_pyarrow()
        except Exception as error:  # noqa: BLE001 (as above)
            raise self._unanswered(error) from None

    def _begun(self, sql: str, answer: DataFrame) -> RecordBatchStream:
        """The rows of the answer. If Arrow cannot say what its filters do, DataFusion filters all rows."""
        try:
            if not (self._views and _explains_error(answer)):
                return answer.execute_stream()
        except Exception:
            if self._failures or not self._views:
                raise
        self._register_views(filtered=False)
        return self._planned(sql).execute_stream()

    def _unanswered(self, error: Exception) -> LakelogError:
        if self._failures:  # what DataFusion says is the text of this one
            return self._failures[0]
        said = " ".join(_WRAPPED.sub("", str(error)).split())[:_SAID_MAX_CHARS]
        unknown = _UNKNOWN_TABLE.search(said)
        if unknown is None:
            return InvalidArgument(f"the SQL cannot be answered: {said}")
        known, others = (
            _listed(sorted(self._topics, key=lambda name: (is_internal(name), name))) or "no topics",
            " and ".join(self._tables),
        )
        views = [view for name in self._topics for view in (name, f"{name}_json")]
        hint = (
            meant(unknown["name"], [*views, *self._tables]) or f"there are {known}, and the tables {others}"
        )
        return InvalidArgument(
            f"there is no topic {unknown['name']!r}; {hint}; put double quotes "
            "around a name that has dots or dashes"
        )


def _with_columns(error: InvalidArgument, files: Mapping[str, TopicFiles]) -> InvalidArgument:
    """An error of a name that no column has, with the one that may be meant: DataFusion knows only those
    fields of JSON that the statement names.
    """
    unknown = _UNKNOWN_COLUMN.search(error.message)
    if unknown is None:
        return error
    types = (newest_types(each, None, _SAMPLED_RECORDS) for each in files.values())
    names = [*dict.fromkeys(name for of_table in types for name in of_table)]
    hint = meant(unknown["name"], names)
    if not hint and "Did you mean" in error.message:  # a column of another table
        return error
    hint = hint or f"the newest records have {_listed(names)}"
    return InvalidArgument(f"no column of {', '.join(files)} is named {unknown['name']!r}; {hint}")


def _explains_error(answer: DataFrame) -> bool:
    """Whether it is an EXPLAIN of a plan that cannot be made, which says so in a row."""
    if answer.schema().names != ["plan_type", "plan"]:
        return False
    return any("physical_plan_error" in batch.column(0).to_pylist() for batch in answer.collect())


def _runtime(memory_bytes: int | None) -> RuntimeEnvBuilder | None:
    if memory_bytes is None:
        return None
    return RuntimeEnvBuilder().with_disk_manager_disabled().with_greedy_memory_pool(memory_bytes)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more


def _set_time(context: SessionContext, now_us: int) -> None:
    """Let the functions of the current time give this one: DataFusion has another for each plan."""
    now = pa.array([now_us], pa.timestamp("us")).cast(pa.timestamp("ns"))
    for name, kind in _OF_NOW.items():
        value = now.cast(kind)
        context.register_udf(udf(lambda value=value: value, [], kind, "immutable", name))


def _reads_only() -> SQLOptions:
    return SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)


def _tables_of(sql: str) -> list[str]:
    """The names that DataFusion finds in the places of tables; none where it cannot parse the statement."""
    context, names = SessionContext(SessionConfig(_SETTINGS)), _EmptySchema()
    context.catalog().register_schema("public", names)
    with suppress(Exception):  # there are no tables yet; the plan with them says what is wrong
        context.sql_with_options(sql, _reads_only())
    return names.asked
