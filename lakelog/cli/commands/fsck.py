"""`lakelog fsck`: check every invariant from the files alone."""

from typing import Annotated

import typer

from lakelog.cli.common import Data, Json, console, existing_root, print_json, print_table
from log_tables.counts import counted
from log_tables.errors import InvalidArgument


def fsck(
    data: Data = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Derive all declared columns once more, and compare.")
    ] = False,
    topic: Annotated[str | None, typer.Option(help="Only the tables of this topic.")] = None,
    partition: Annotated[int | None, typer.Option(help="Only this partition of --topic.")] = None,
    json: Json = False,
) -> None:
    """Check the whole root, also while gateways use it. Exit code 1 when something is broken."""
    from log_tables.root.fsck import check, check_topic

    if topic is None and partition is not None:
        raise InvalidArgument("--partition is one of a topic; name it with --topic")
    store = existing_root(data)
    report = check(store, deep) if topic is None else check_topic(store, topic, partition, deep)
    if json:
        print_json(report.as_dict())
    else:
        print_table(
            (
                "table",
                "version",
                "segments",
                "records",
                "log start",
                "high watermark",
                "epoch",
                "unreferenced",
                "problems",
            ),
            [
                (
                    p.directory,
                    p.version,
                    p.segments,
                    p.records,
                    p.log_start,
                    p.high_watermark,
                    p.leader_epoch,
                    p.unreferenced,
                    len(p.problems),
                )
                for p in report.partitions
            ],
        )
        for problem in report.problems:
            console().print(f"BROKEN: {problem}")
        for doubt in report.doubts:
            console().print(f"PERHAPS: {doubt}")
        console().print(
            "every invariant holds" if not report.problems else counted(len(report.problems), "problem")
        )
    if report.problems:
        raise typer.Exit(1)
