"""SQL over topics without a JVM: each topic is a view over its Delta tables, in delta-rs' DataFusion.

A view has the columns `topic`, `partition` and those of the records, and begins at the log start offset.
Beside it, `<topic>_json` has the fields of JSON values as typed columns, and `consumer_offsets` and
`consumer_lag` say where the consumer groups are (log_tables/sql/lag.py). A query sees each partition as it is
when the query begins. The dialect is PostgreSQL's, but for names, which are as they are written: only
dots, dashes and the like need double quotes.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidArgument, LakelogError, StoreUnavailable
from log_tables.layout import (
    CLUSTER_METADATA,
    KEY,
    OFFSET,
    TIMESTAMP,
    TXN_LOG_START,
    TXN_TIERED,
    VALUE,
    partition_directory,
)
from log_tables.partition.remote import no_remote_root
from log_tables.record import RECORD_SCHEMA
from log_tables.sql.json_columns import typed_columns
from log_tables.sql.system_tables import SYSTEM_TABLES, system_tables
from log_tables.store.store import Store
from log_tables.table.snapshot import check_data_file

PARTITION = "partition"
TOPIC = "topic"
RAW = "_raw"

_JSON_SUFFIX = "_json"
_JSON_KEPT = (TOPIC, PARTITION, OFFSET, TIMESTAMP, KEY)
_SESSION = {"datafusion.sql_parser.dialect": "PostgreSQL"}  # in others `select key, offset` ends at the comma
_PROBE = "lakelog/probe"  # no topic has a slash in its name
_NAMED_MAX = 20
_SAID_MAX_CHARS = 500

_EXPLAIN = re.compile(
    r"\s*(?:explain|describe|desc)(?:\s+(?:analyze|verbose))*\s+(?P<rest>.*)", re.IGNORECASE | re.DOTALL
)
_INTO = re.compile(r"\binto\b", re.IGNORECASE)
_QUOTED = re.compile(
    r"""(?<!\w)[eE]'(?:[^'\\]|\\.|'')*'  # text with backslashes
    |'(?:[^']|'')*'|"(?:[^"]|"")*"  # text, and names
    |(?<![\w$])\$(?P<tag>\w*)\$.*?\$(?P=tag)\$  # text between dollars
    |--[^\n]*|/\*.*?\*/  # comments""",
    re.DOTALL | re.VERBOSE,
)
"""The parts of SQL in PostgreSQL's dialect that are no keywords: texts, quoted names, comments."""
_NAME = re.compile(r'\s*([\w.]+|"[^"]+")\s*;?\s*')
_UNKNOWN_TABLE = re.compile(r"table '(?:datafusion\.)?(?:public\.)?(?P<name>[^']*)' not found")
_WRAPPED = re.compile(r"^(External error: |Arrow error: |Kernel error -> )+")
_STORE_FAILED = re.compile(r"(Parquet|Object Store|Generic) ")
_LINE = re.compile(r"Line: (\d+)")
_COLOUR = re.compile(r"\x1b\[\d+m")


def query(cluster: Cluster, sql: str) -> pa.Table:
    """The answer to one SQL query, in memory. Raises as `query_stream` does."""
    return query_stream(cluster, sql).read_all()


def query_stream(cluster: Cluster, sql: str) -> pa.RecordBatchReader:
    """The answer to one SQL query (SELECT, WITH, VALUES, EXPLAIN, DESCRIBE), batch by batch.

    Text is `string` and bytes are `binary`. Raises InvalidArgument for SQL that cannot be answered, with what
    DataFusion says, and StoreUnavailable for tables that cannot be read; both also while batches are read.
    """
    cluster.refresh()
    with ExitStack() as stack:
        session = _Session(cluster, stack)
        session.open_topics(sql)
        session.open_groups(sql)
        schema, batches = session.run(sql)
        scratch = stack.pop_all()

    def answer() -> Iterator[pa.RecordBatch]:
        with scratch:
            yield from batches

    return pa.RecordBatchReader.from_batches(schema, answer())


class _Session:
    """One query: the tables that it names, opened once, and the scratch files that are written for it."""

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        self._cluster, self._stack = cluster, stack
        self._builder = QueryBuilder(_SESSION)
        self._topics = _directories(cluster)
        location, self._options = cluster.store.delta_location("topics")
        self._hidden = [location.removesuffix("topics")]

    def open_topics(self, sql: str) -> None:
        """Create the views of the topics that `sql` names."""
        for name, directories in self._topics.items():
            if name in sql:
                self._open(name, directories)
                typed = name + _JSON_SUFFIX
                if typed in sql and typed not in self._topics:
                    self._open_json(name, typed)

    def open_groups(self, sql: str) -> None:
        """Create those of SYSTEM_TABLES that `sql` names, unless a topic has the name."""
        named = [
            name for name in SYSTEM_TABLES if name not in self._topics and re.search(rf"\b{name}\b", sql)
        ]
        for name, table in system_tables(self._cluster, named).items():
            self._add_table(name, table)

    def _open(self, name: str, directories: Sequence[str]) -> None:
        parts = [self._open_partition(name, partition, path) for partition, path in enumerate(directories)]
        self._execute(f'create view "{name}" as ' + " union all ".join(parts))

    def _open_partition(self, name: str, partition: int, directory: str) -> str:
        """Register a partition's tables; returns the SELECT of its rows."""
        table = self._table(self._cluster.store, directory)
        log_start = self._number(table, TXN_LOG_START)
        border = self._number(table, TXN_TIERED)
        local = self._select(name, partition, f"{name}/{partition}", table, f'"{OFFSET}" >= {log_start}')
        if border <= log_start:
            return local
        # After the local one: segments that have left it are there by then.
        there = self._table(self._remote_store(directory), directory)
        between = f'"{OFFSET}" >= {log_start} and "{OFFSET}" < {border}'
        return (
            f"{self._select(name, partition, f'{name}/{partition}/remote', there, between)} union all {local}"
        )

    def _select(self, name: str, partition: int, registered: str, table: DeltaTable, where: str) -> str:
        self._builder.register(registered, table)
        columns = ", ".join(f'"{column}"' for column in RECORD_SCHEMA.names)
        return (
            f"select '{name}' as {TOPIC}, cast({partition} as int) as {PARTITION}, {columns} "  # noqa: S608 (names have no quotes)
            f'from "{registered}" where {where}'
        )

    def _remote_store(self, directory: str) -> Store:
        remote = self._cluster.remote
        if remote is None:
            raise no_remote_root(directory)
        location, _ = remote.store.delta_location("topics")
        self._hidden.append(location.removesuffix("topics"))
        return remote.store

    def _table(self, store: Store, directory: str) -> DeltaTable:
        location, options = store.delta_location(directory)
        try:
            table = DeltaTable(location, storage_options=options)
            files = table.get_add_actions().column("path")
        except (DeltaError, OSError) as error:
            raise self._unreadable(self._said(error)) from None
        for path in files.to_pylist():  # DataFusion would read whatever they name
            check_data_file(path)
        return table

    def _number(self, table: DeltaTable, txn: str) -> int:
        try:
            return table.transaction_version(txn) or 0
        except (DeltaError, OSError) as error:
            raise self._unreadable(self._said(error)) from None

    def _open_json(self, name: str, typed: str) -> None:
        """Make `typed` the table of the values' fields.

        All are read before their types are known: this takes about eight times their size in memory.
        """
        schema, batches = self._answer(f'select * from "{name}"')  # noqa: S608 (as above)
        rows = pa.Table.from_batches(batches, schema)
        columns, are_objects = typed_columns(rows[VALUE])
        table = rows.select(_JSON_KEPT)
        for field, column in zip(columns.schema.names, columns.columns, strict=True):
            table = table.append_column(_free_name(field, table.schema.names), column)
        raw = pc.if_else(are_objects, pa.scalar(None, pa.binary()), rows[VALUE])
        self._add_table(typed, table.append_column(_free_name(RAW, table.schema.names), raw))

    def _add_table(self, name: str, table: pa.Table) -> None:
        """Write `table` to a scratch file, as the table `name`."""
        directory = self._stack.enter_context(TemporaryDirectory(prefix="lakelog-sql-"))
        self._hidden.append(f"{directory}/")
        file = f"{directory}/rows.arrow"
        with pa.OSFile(file, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        location = file.replace("'", "''")
        self._execute(f"""create external table "{name}" stored as arrow location '{location}'""")

    def run(self, sql: str) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Begin to answer `sql`, which must be a query; the views must be open."""
        if _INTO.search(_QUOTED.sub(" ", sql)):  # a view accepts INTO, and it would create a table
            raise InvalidArgument("the SQL writes INTO a table, and only queries are answered; leave it out")
        explained = _EXPLAIN.fullmatch(sql)
        asked = explained["rest"] if explained else sql
        if not (explained and _NAME.fullmatch(asked)):
            # Only a query can become a view: SQL that writes files or changes tables fails here.
            self._execute(f'create view "{_PROBE}" as\n{asked}')
            self._execute(f'drop view "{_PROBE}"')
        return self._answer(sql)

    def _answer(self, sql: str) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        result = self._execute(sql)
        if not result.schema.names:
            raise InvalidArgument("the answer to the SQL has no columns; select some")
        schema = pa.schema([field.with_type(_plain(field.type)) for field in result.schema])
        return schema, self._batches(result, schema)

    def _batches(self, result: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            for batch in result:
                pairs = zip(batch.columns, schema.types, strict=True)
                yield pa.RecordBatch.from_arrays([column.cast(kind) for column, kind in pairs], schema=schema)
        except (pa.ArrowException, OSError) as error:
            raise self._unanswered(error) from None

    def _execute(self, sql: str) -> pa.RecordBatchReader:
        try:
            return pa.RecordBatchReader.from_stream(self._builder.execute(sql))
        except (DeltaError, OSError) as error:
            raise self._unanswered(error) from None

    def _unanswered(self, error: Exception) -> LakelogError:
        said = self._said(error)
        unknown = _UNKNOWN_TABLE.search(said)
        if unknown:
            known = sorted(self._topics)
            more = f" and {len(known) - _NAMED_MAX} more" if len(known) > _NAMED_MAX else ""
            return InvalidArgument(
                f"there is no topic {unknown['name']!r}; there are {', '.join(known[:_NAMED_MAX])}{more}, "
                f"and the tables {' and '.join(SYSTEM_TABLES)}; put double quotes around a name that has "
                "dots or dashes"
            )
        if _STORE_FAILED.match(said):
            return self._unreadable(said)
        return InvalidArgument(f"the SQL cannot be answered: {said}; correct it")

    def _unreadable(self, said: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"a table cannot be read: {said}; repeat the query, and run `lakelog fsck` if it fails again"
        )

    def _said(self, error: Exception) -> str:
        """The message of DataFusion on one line, without paths of this machine and the line that `run`
        added.
        """
        text = _COLOUR.sub("", str(error))
        for hidden in self._hidden:
            text = text.replace(hidden, "").replace(hidden.lstrip("/"), "")
        text = _LINE.sub(lambda match: f"Line: {max(1, int(match[1]) - 1)}", text)
        return " ".join(_WRAPPED.sub("", text).split())[:_SAID_MAX_CHARS]


def _directories(cluster: Cluster) -> dict[str, Sequence[str]]:
    """The tables of every topic, by its name."""
    topics = {
        topic.name: [
            partition_directory(topic.directory, partition) for partition in range(topic.partition_count)
        ]
        for topic in cluster.topics(include_internal=True)
    }
    return {CLUSTER_METADATA: [cluster.metadata_log.partition.directory], **topics}


def _free_name(name: str, taken: Sequence[str]) -> str:
    """`name`, with as many suffixes as it takes to differ from those `taken`."""
    while name in taken:
        name += _JSON_SUFFIX
    return name


def _plain(kind: pa.DataType) -> pa.DataType:
    """DataFusion's views of strings and bytes as what every reader of Arrow knows."""
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind.fields])
    return kind
