"""The demo's topic as one Delta table: the flights of each carrier, by SQL and by Polars."""

from collections.abc import Mapping

from rich.console import Console

from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic_fold import fold
from log_tables.sql.query import query

Counts = dict[str, int]
"""Carrier → flights."""


def counted(cluster: Cluster, topic: str, location: str) -> tuple[Counts, list[str]]:
    """The records of each carrier as SQL counts them, and what is wrong when Polars, which reads the table at
    `location`, counts others.
    """
    fold(cluster.topic(topic))  # what the gateway had not folded when it ended
    asked, read = by_sql(cluster, topic), by_polars(location)
    return asked, [] if asked == read else [f"SQL counts {asked} flights of the carriers, Polars {read}"]


def question(topic: str) -> str:
    """The SQL that counts the records of each carrier."""
    return f"SELECT carrier, count(*) AS flights FROM {topic} GROUP BY carrier ORDER BY carrier"  # noqa: S608


def by_sql(cluster: Cluster, topic: str) -> Counts:
    """The records of each carrier, as lakelog's SQL counts them."""
    answer = query(cluster, question(topic))
    return dict(zip(answer["carrier"].to_pylist(), answer["flights"].to_pylist(), strict=True))


def by_polars(location: str) -> Counts:
    """The same from the one table at `location`, as any Delta reader opens it."""
    import polars as pl  # half a second, which nothing else in the command needs

    frame = pl.scan_delta(location).group_by("carrier").len().sort("carrier").collect()
    return dict(frame.rows())


def say_counts(counts: Mapping[str, int], topic: str, location: str, console: Console) -> None:
    """Show both ways to ask, and what both answer."""
    console.print(f"the topic is one Delta table, {location}; lakelog's SQL and Polars count the same:\n")
    console.print(question(topic))
    console.print(f'polars.scan_delta("{location}").group_by("carrier").len()', soft_wrap=True)
    for carrier, count in counts.items():
        console.print(f"  {carrier}  {count:7,} flights")
    console.print()
