"""`lakelog sql`: ask the tables, without a gateway and without a JVM."""

from typing import Annotated

import typer

from lakelog.cli.common import Data, Json, console, existing_root, print_table


def sql(
    query: Annotated[str, typer.Argument(metavar="SQL")],
    data: Data = None,
    json: Json = False,
) -> None:
    """Run a query in DataFusion's SQL.

    Each topic is a view with topic, partition and the record's columns; TOPIC_json has the fields of JSON
    values as typed columns. Names with capitals, dots or dashes go in double quotes.
    """
    import msgspec

    from log_tables.cluster import Cluster
    from log_tables.query import query as run

    found = run(Cluster.open(existing_root(data), create=False), query)
    rows = found.to_pylist()
    if json:
        print(msgspec.json.encode(rows).decode())
        return
    print_table(found.column_names, [list(row.values()) for row in rows])
    console.print(f"({len(rows)} rows)")
