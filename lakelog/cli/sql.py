"""`lakelog sql`: ask the tables, without a gateway and without a JVM."""

from typing import Annotated

import typer

from lakelog.cli.common import Data, Json, as_text_row, console, existing_root, print_table

ROWS_SHOWN_MAX = 1_000
"""Rows of a table for people; nobody reads more, and laying them out takes long."""


def sql(
    query: Annotated[str, typer.Argument(metavar="SQL")],
    data: Data = None,
    json: Json = False,
) -> None:
    """Run a query in DataFusion's SQL.

    Each topic is a view with topic, partition and the record's columns; TOPIC_json has the fields of JSON
    values as typed columns. With --json, bytes are text; those that are not UTF-8 are base64, and called
    key_base64 and value_base64. consumer_offsets and consumer_lag say where the consumer groups are. Names
    with capitals, dots or dashes go in double quotes.
    """
    import msgspec

    from log_tables.cluster.cluster import Cluster
    from log_tables.sql.query import query as run

    found = run(Cluster.open(existing_root(data), create=False), query)
    if json:
        print(msgspec.json.encode([as_text_row(row) for row in found.to_pylist()]).decode())
        return
    shown = found.slice(0, min(ROWS_SHOWN_MAX, found.num_rows))
    columns = [column.to_pylist() for column in shown.columns]
    print_table(found.column_names, list(zip(*columns, strict=True)))
    rest = found.num_rows - shown.num_rows
    rows = "row" if found.num_rows == 1 else "rows"
    console().print(f"({found.num_rows} {rows})" if not rest else f"({rest} more rows; --json prints all)")
