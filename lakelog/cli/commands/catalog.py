"""`lakelog catalog sync`: the topics' tables in Unity Catalog, Hive's metastore or AWS Glue."""

import os
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli.common import (
    FAILED,
    CommandGroup,
    Data,
    Json,
    cluster_at,
    console,
    existing_file,
    print_json,
    print_table,
    progress_console,
    seconds,
)
from log_tables.errors import InvalidArgument, LakelogError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobs.catalog.catalog import Catalog
    from jobs.catalog.sync import CatalogSync, SyncOutcome

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)

_UNITY = "unity"
"""The catalog that a new server of Unity Catalog has."""


class Kind(StrEnum):
    """The kinds of catalogs."""

    UNITY = "unity"
    HIVE = "hive"
    GLUE = "glue"


@app.callback()
def _catalog() -> None:
    """With a callback, one command stays a command of its own."""


@app.command()
def sync(  # noqa: PLR0913, PLR0917 -- each is an option
    kind: Annotated[Kind, typer.Argument(metavar="unity|hive|glue", help="The kind of catalog.")],
    schema: Annotated[
        str, typer.Option(help="The schema or database for the tables; made if there is none.")
    ] = "lakelog",
    url: Annotated[
        str | None,
        typer.Option(
            help="The server: http://host:8080 (unity), thrift://host:9083 (hive), an endpoint (glue)."
        ),
    ] = None,
    catalog: Annotated[
        str | None,
        typer.Option(help=f"The catalog (unity; by default {_UNITY}), or the account of the catalog (glue)."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(envvar="LAKELOG_CATALOG_TOKEN_FILE", help="A file with the token for Unity Catalog."),
    ] = None,
    root: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Where readers find the root: s3a://bucket/root; by default --data."
        ),
    ] = None,
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="A run at least this often: 30s, 5m, 1h.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what a run would do.")] = False,
    data: Data = None,
    json: Json = False,
) -> None:
    """Register each topic's table in a catalog, and remove those whose topic is gone. Tables of others are
    left alone. Exit code 1 when a topic is skipped.
    """
    if every is not None and dry_run:
        raise InvalidArgument("--dry-run shows one run; leave out --every")
    interval_s = None if every is None else seconds(every)
    place = _opened(kind, schema, url, catalog, token_file)
    from jobs.catalog.sync import CatalogSync

    cluster = cluster_at(data)
    run = CatalogSync(cluster, place, root or cluster.store.url)
    if dry_run:
        _show(_planned(run), json)
    elif interval_s is None:
        _show([*run.run()], json)
    else:
        _repeat(run, interval_s, json)


def _opened(
    kind: Kind, schema: str, url: str | None, catalog: str | None, token_file: Path | None
) -> "Catalog":
    """The schema of the catalog. Raises InvalidArgument."""
    if kind is Kind.GLUE:
        _check_installed("boto3")
        from jobs.catalog.glue import GlueCatalog

        return GlueCatalog(schema, url, catalog)
    if url is None:
        raise InvalidArgument(
            "--url is missing: name the server of the catalog, see `lakelog catalog sync -h`"
        )
    if kind is Kind.HIVE:
        if catalog is not None:
            raise InvalidArgument("a metastore has one catalog; leave out --catalog, and name a --schema")
        _check_installed("pymetastore")
        from jobs.catalog.hive import HiveCatalog

        return HiveCatalog(url, schema)
    from jobs.catalog.unity import UnityCatalog

    return UnityCatalog(url, catalog or _UNITY, schema, _token(token_file))


def _check_installed(package: str) -> None:
    if find_spec(package) is None:
        raise InvalidArgument(
            f"this catalog needs {package}, which is not installed; install lakelog with its extra catalog"
        )


def _token(path: Path | None) -> str:
    """The token of the file, else that of the environment, else none. Raises InvalidArgument."""
    if path is None:
        return os.environ.get("LAKELOG_CATALOG_TOKEN", "").strip()
    return existing_file(path).read_text().strip()


def _planned(run: "CatalogSync") -> "list[SyncOutcome]":
    from jobs.catalog.sync import SyncOutcome

    steps, unread = run.steps()
    return [*unread, *(SyncOutcome(each.act, each.name, each.topic, each.why) for each in steps)]


def _show(outcomes: "Sequence[SyncOutcome]", json: bool) -> None:
    """Print the outcomes. Raises typer.Exit when one is no success."""
    rows = [(each.act.value, each.table, each.topic, each.error) for each in outcomes]
    columns = ("act", "table", "topic", "problem")
    if json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        print_table(columns, rows)
    else:
        console().print("the catalog has every topic as it is")
    if any(each.error for each in outcomes):
        raise typer.Exit(FAILED)


def _repeat(run: "CatalogSync", interval_s: float, json: bool) -> None:
    """Run until it is to stop. A run that fails is said, and the next one tries again."""
    from lakelog.cli.beside import stopping_event

    with stopping_event(with_stdin=False) as stopping:
        pause_s = 0.0
        while not stopping.wait(pause_s):
            pause_s = interval_s
            try:
                outcomes = [*run.run()]
            except LakelogError as error:
                progress_console().print(f"lakelog: the run ended early: {error}")
                continue
            for each in outcomes:
                row = {"act": each.act.value, "table": each.table, "topic": each.topic, "problem": each.error}
                if json:
                    print_json(row)
                else:
                    said = f": {each.error}" if each.error else ""
                    console().print(f"{each.act.value} {each.table}, of topic {each.topic}{said}")
