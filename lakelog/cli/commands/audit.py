"""`lakelog audit`: what the audit log says. It needs the store alone."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli.common import CommandGroup, Data, Json, cluster_at, console, print_json
from log_tables.errors import OffsetOutOfRange

if TYPE_CHECKING:
    from log_tables.cluster.admin.audit_writes import WrittenRange

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)

_UNKNOWN = (
    "the audit log does not say who wrote this record: gateways note it while audit_writes is 'ranges', one "
    "that is killed loses what it has not noted yet, and old events are deleted; ask for its neighbours with "
    "`lakelog sql \"SELECT * FROM audit_writes WHERE topic = '{topic}' AND partition = {partition}\"`"
)


@app.command()
def who(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0)],
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0)],
    data: Data = None,
    json: Json = False,
) -> None:
    """Print which principal wrote a record, from where and through which gateway. Exits with 1 if unknown."""
    from log_tables.cluster.admin.audit_writes import writer_of

    cluster = cluster_at(data)
    known = cluster.topic(topic)
    log = known.partition(partition)
    log.refresh()
    if offset >= log.high_watermark:
        raise OffsetOutOfRange(
            f"there is no record at offset {offset} of {topic}-{partition} yet; the next one gets "
            f"{log.high_watermark}",
            log_start_offset=log.log_start,
            high_watermark=log.high_watermark,
        )
    found = writer_of(cluster, known.name, known.topic_id, partition, offset)
    if json:
        print_json(None if found is None else asdict(found))
    elif found is not None:
        _print(found)
    if found is None:
        typer.echo("lakelog: " + _UNKNOWN.format(topic=topic, partition=partition), err=True)
        raise typer.Exit(1)


def _print(found: "WrittenRange") -> None:
    where = f" from {found.address}" if found.address else ""
    console().print(
        f"{found.principal}{where}\n"
        f"  offsets {found.first_offset} to {found.last_offset}, committed by {found.gateway}\n"
        f"  between {_time(found.first_ms)} and {_time(found.last_ms)}",
        soft_wrap=True,
    )


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
