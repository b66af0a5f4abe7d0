"""`lakelog fsck`: check every invariant from the files alone."""

from typing import Annotated

import typer

from lakelog.cli.common import Data, Json, console, existing_root, print_json, print_table


def fsck(
    data: Data = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Derive all declared columns once more, and compare.")
    ] = False,
    json: Json = False,
) -> None:
    """Check the whole root, also while gateways use it. Exit code 1 when something is broken."""
    from log_tables.root.fsck import check

    report = check(existing_root(data), deep)
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
        console().print(
            "every invariant holds" if not report.problems else f"{len(report.problems)} problems"
        )
    if report.problems:
        raise typer.Exit(1)
