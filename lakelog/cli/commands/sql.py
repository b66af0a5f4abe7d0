"""`lakelog sql`: ask the tables, without a gateway and without a JVM."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from lakelog.cli.answer_format import AnswerFormat, print_answer
from lakelog.cli.common import Data, existing_file, existing_root
from lakelog.cli.source import STDIN
from log_tables.counts import counted
from log_tables.errors import InvalidArgument
from log_tables.without_pandas import WithoutPandas


def sql(
    query: Annotated[
        str | None, typer.Argument(metavar="[SQL]", help="Without it, --file or standard input has it.")
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
    statement = _statement(query, file)
    if not statement.strip():
        raise InvalidArgument("the SQL is empty; write a query, such as SHOW TABLES")
    with _without_pandas():
        from log_tables.cluster.cluster import Cluster
        from log_tables.sql.query import query_stream

        scans: list[tuple[str, int, int]] = []
        cluster = Cluster.open(existing_root(data), create=False)
        print_answer(query_stream(cluster, statement, lambda *scan: scans.append(scan)), form)
    if stats:
        for topic, read, files in scans:
            left_out = f"{files - read:,} of {counted(files, 'file')} left out"
            typer.echo(f"{topic}: {left_out}, {read:,} read", err=True)


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
