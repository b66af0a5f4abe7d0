"""Histories of settings and rules, and reverts of them, as commands show them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakelog.cli.common import console, iso_ms, iso_text, print_json, print_table
from log_tables.errors import InvalidArgument

if TYPE_CHECKING:
    from log_tables.cluster.cluster import Cluster
    from log_tables.cluster.metadata_history import AccessHistory, AccessVersion, Difference

ToVersion = Annotated[int | None, typer.Option("--to", metavar="VERSION", help="A version of the history.")]
ToTime = Annotated[
    str | None, typer.Option("--to-time", metavar="TIME", help="As it was then: an ISO-8601 time.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan, and change nothing.")]


def time_of(version: int | None, text: str | None) -> int | None:
    """The time that `--to-time` names, in milliseconds since 1970. Raises InvalidArgument unless one of the
    two options is used.
    """
    if (version is None) == (text is None):
        raise InvalidArgument("--to and --to-time exclude each other; use one of them")
    try:
        return None if text is None else iso_ms(text)
    except ValueError:
        raise InvalidArgument(f"--to-time {text!r} is no ISO-8601 time; write it so") from None


def access_history(cluster: "Cluster") -> "AccessHistory":
    """The versions of the rules of access of a root."""
    from log_tables.cluster import metadata_history

    return metadata_history.access_history(cluster.metadata_log.partition)


def access_versions(cluster: "Cluster", history: "AccessHistory") -> dict[str, Any]:
    """They as a gateway shows them."""
    from log_tables.cluster.admin.changed_by import ACCESS_CHANGES, changed_by

    by = changed_by(cluster, [each.at_ms for each in history.versions], ACCESS_CHANGES)
    data = [_version(each, by.get(each.at_ms)) for each in reversed(history.versions)]
    return {"since_ms": history.since_ms, "data": data}


def _version(version: "AccessVersion", principal: str | None) -> dict[str, Any]:
    return {
        "version": version.version,
        "time_ms": version.at_ms,
        "event": "altered" if version.changes else "kept",
        "principal": principal if version.changes else None,
        "partitions": None,
        "changes": differences(version.changes),
    }


def differences(changes: "Sequence[Difference]") -> list[dict[str, Any]]:
    """They as a gateway shows them."""
    return [{"name": each.name, "old": each.old, "new": each.new} for each in changes]


def print_history(found: Mapping[str, Any], json: bool) -> None:
    """Print versions, the newest first, and how far back they reach."""
    if json:
        print_json(found)
        return
    rows = []
    for each in found["data"]:
        first, *rest = [_changed(change) for change in each["changes"]] or [""]
        at = iso_text(each["time_ms"]) if each["time_ms"] else ""
        rows.append((each["version"], at, each["principal"] or "", each["event"], first))
        rows += [("", "", "", "", text) for text in rest]
    print_table(("version", "time", "principal", "event", "change"), rows)
    if found["since_ms"]:
        console().print(f"\ncomplete since {iso_text(found['since_ms'])}")


def _changed(change: Mapping[str, Any]) -> str:
    return f"{change['name']}: {_value(change['old'])} to {_value(change['new'])}"


def _value(text: str | None) -> str:
    return "–" if text is None else text


def print_revert(found: Mapping[str, Any], dry_run: bool, json: bool) -> None:
    """Print what a revert changes, or would change."""
    if json:
        print_json({**found, "dry_run": dry_run})
        return
    rows = [(each["name"], _value(each["old"]), _value(each["new"])) for each in found["changes"]]
    print_table(("name", "old", "new"), rows)
    for right in found.get("lost", ()):
        console().print(f"you lose {right}")
    if not rows:
        console().print("nothing differs from that version")
