"""`lakelog sql`: ask the tables, without a gateway and without a JVM.

Its answer is a table for people, or csv, ndjson, json and parquet for programs.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from lakelog.cli.common import (
    NULL,
    Data,
    console,
    dimmed,
    existing_file,
    existing_root,
    print_table,
    printable,
    shown,
)
from lakelog.cli.source import STDIN
from log_tables.counts import counted
from log_tables.errors import InvalidArgument, LakelogError
from log_tables.without_pandas import WithoutPandas

if TYPE_CHECKING:
    import pyarrow as pa

    from log_tables.cluster.cluster import Cluster
    from log_tables.sql.answer_file import FileFormat

ROWS_SHOWN_MAX = 1_000
"""Rows of a table on a terminal; nobody reads more, and laying them out takes long."""

_GAP = 2
_OF_EXPLAIN = ["plan_type", "plan"]
"""The columns of an EXPLAIN, whose rows are plans of many lines."""


class AnswerFormat(StrEnum):
    """The formats of an answer."""

    TABLE = "table"
    CSV = "csv"
    NDJSON = "ndjson"
    JSON = "json"
    PARQUET = "parquet"


def print_answer(answer: "pa.RecordBatchReader", form: AnswerFormat) -> None:
    """Print the rows of `answer`; all formats but json and table as they come.

    Raises InvalidArgument for columns of one name where the format has objects and for values that no text
    shows, and what `answer` raises.
    """
    if form is AnswerFormat.PARQUET and sys.stdout.isatty():
        raise InvalidArgument(
            "Parquet is no text for a terminal; send it to a file, as in `… > rows.parquet`"
        )
    if form not in (AnswerFormat.TABLE, AnswerFormat.JSON):
        from log_tables.sql.answer_file import file_pieces

        for piece in file_pieces(answer, cast("FileFormat", form.value)):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    try:
        _print_rows(answer) if form is AnswerFormat.TABLE else _print_json(answer)
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
        raise InvalidArgument(
            f"the answer has a value that cannot be shown ({error}); cast it to text, or use --format parquet"
        ) from None


def _print_json(answer: "pa.RecordBatchReader") -> None:
    import msgspec

    from log_tables.sql.answer_file import objects

    print(msgspec.json.encode([row for rows in objects(answer) for row in rows]).decode())


def _print_rows(answer: "pa.RecordBatchReader") -> None:
    """On a terminal the first rows, with a line for each column where they are wide; else all, unbroken."""
    from log_tables.json_values import plain

    names = answer.schema.names
    columns = ([plain(column, lambda special: special) for column in batch.columns] for batch in answer)
    rows = (row for listed in columns for row in zip(*listed, strict=True))
    terminal = sys.stdout.isatty()
    listed = [*islice(rows, ROWS_SHOWN_MAX if terminal else None)]
    rest = sum(1 for _ in rows)
    if not terminal and names == _OF_EXPLAIN:
        _print_plans(listed)
    elif not terminal:
        _print_unbroken(names, listed)
    elif _width(names, listed) > console().width:
        _print_vertically(names, listed)
    else:
        print_table(names, listed, NULL)
    more = f"({counted(rest, 'more row')}; --format csv prints all)"
    console().print(more if rest else f"({counted(len(listed), 'row')})")


def _width(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> int:
    return sum(_widths(names, [[shown(cell, NULL) for cell in row] for row in rows])) + _GAP * (
        len(names) - 1
    )


def _widths(names: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    from rich.cells import cell_len

    columns = zip(map(printable, names), *cells, strict=True)
    return [max(cell_len(line) for text in column for line in text.split("\n")) for column in columns]


def _print_unbroken(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A row a line, however long it is."""
    cells = [[shown(cell, NULL).replace("\n", "\\n") for cell in row] for row in rows]
    widths = _widths(names, cells)
    numbers = [all(isinstance(cell, int | float) for cell in column) for column in zip(*rows, strict=True)]
    numbers = numbers or [False] * len(names)
    for line in ([*map(printable, names)], *cells):
        padded = (
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(line, widths, numbers, strict=True)
        )
        print((" " * _GAP).join(padded).rstrip())


def _print_plans(plans: Sequence[Sequence[Any]]) -> None:
    """A step of a plan a line, as EXPLAIN has it."""
    for kind, plan in plans:
        print(f"{printable(kind)}\n{printable(plan).rstrip()}")


def _print_vertically(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A column a line, with a heading for each row."""
    labels = [*map(printable, names)]
    width = max(map(len, labels))
    for number, row in enumerate(rows, 1):
        console().print(f"-[ row {number} ]".ljust(min(40, console().width), "-"))
        for label, cell in zip(labels, row, strict=True):
            said = dimmed(NULL) if cell is None else shown(cell)
            print(f"{label.ljust(width)}  {said}".rstrip())


def sql(
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="[SQL]", help="Without it, --file or standard input has it; on a terminal, a prompt asks."
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="The file that has the SQL; - is standard input.")
    ] = None,
    data: Data = None,
    form: Annotated[
        AnswerFormat, typer.Option("--format", help="A table is for people, the others for programs.")
    ] = AnswerFormat.TABLE,
    stats: Annotated[bool, typer.Option("--stats", help="Say how many files were left out.")] = False,
) -> None:
    """Run a query in DataFusion's SQL.

    Each topic is a view with topic, partition, the record's columns, value_text and key_text; TOPIC_json has
    the fields of JSON values as typed columns. consumer_offsets and consumer_lag say where the consumer
    groups are; SHOW TABLES lists all. Names with capitals, dots or dashes go in double quotes. In JSON, bytes
    are text; those that are not UTF-8 are base64, and called key_base64 and value_base64.
    """
    prompts = query is None and file is None and sys.stdin.isatty() and sys.stdout.isatty()
    statement = "" if prompts else _statement(query, file)
    if not prompts and not statement.strip():
        raise InvalidArgument("the SQL is empty; write a query, such as SHOW TABLES")
    with _without_pandas():
        from log_tables.cluster.cluster import Cluster

        cluster = Cluster.open(existing_root(data), create=False)
        if prompts:
            _prompt(cluster, form, stats)
        else:
            _answer(cluster, statement, form, stats)


def _answer(cluster: "Cluster", statement: str, form: AnswerFormat, stats: bool) -> None:
    from log_tables.sql.query import query_stream

    scans: list[tuple[str, int, int]] = []
    print_answer(query_stream(cluster, statement, lambda *scan: scans.append(scan)), form)
    if stats:
        for topic, read, files in scans:
            left_out = f"{files - read:,} of {counted(files, 'file')} left out"
            typer.echo(f"{topic}: {left_out}, {read:,} read", err=True)


def _prompt(cluster: "Cluster", form: AnswerFormat, stats: bool) -> None:
    """Ask for statements, and answer each."""
    from lakelog.cli.prompt import Shell, quoted, run
    from log_tables.sql.query import query

    chosen = form

    def set_format(name: str) -> None:
        nonlocal chosen
        if name not in set(AnswerFormat) - {AnswerFormat.PARQUET}:
            raise InvalidArgument(f"there is no format {name!r} here; use table, csv, ndjson or json")
        chosen = AnswerFormat(name)

    def first_column(statement: str) -> list[str]:
        try:
            return [str(each) for each in query(cluster, statement).column(0).to_pylist()]
        except LakelogError:  # no completion; the query that follows tells why
            return []

    def failed(error: Exception) -> None:
        sys.stdout.flush()
        typer.echo(f"lakelog: {error}", err=True)

    run(
        Shell(
            answer=lambda statement: _answer(cluster, statement, chosen, stats),
            set_format=set_format,
            tables=lambda: first_column("SHOW TABLES"),
            columns=cache(lambda name: first_column(f"DESCRIBE {quoted(name)}")),
            failed=failed,
        )
    )


def _statement(query: str | None, file: Path | None) -> str:
    if query is not None and file is not None:
        raise InvalidArgument(f"there is SQL among the arguments and in --file {file}; use one of them")
    if query is not None:
        return query
    if file is None and sys.stdin.isatty():
        raise InvalidArgument("there is no SQL; write it as an argument, or name a --file that has it")
    try:
        return sys.stdin.read() if file in (None, STDIN) else existing_file(file).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"the SQL is not UTF-8 at byte {error.start}; convert it") from None


@contextmanager
def _without_pandas() -> Iterator[None]:
    """Load no pandas meanwhile."""
    finder = WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
