"""The results of commands that pages show: what maintenance would do, what fsck finds."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from api.requests.child_process import CommandResult


class PlannedStep(msgspec.Struct, frozen=True):
    """A step of the next run of maintenance. `offsets` are the first and the last of what it changes."""

    job: str
    topic: str
    partition: int
    engine: str
    what: str
    offsets: tuple[int, int] | None = None


class TableReport(msgspec.Struct, frozen=True):
    """The facts that fsck has read of one table, and its problems."""

    directory: str
    version: int
    segments: int
    records: int
    log_start: int
    high_watermark: int
    leader_epoch: int
    unreferenced: int
    problems: Sequence[str]


class FsckReport(msgspec.Struct, frozen=True):
    """The result of fsck; `problems` are those of all tables, each with the name of its table."""

    sound: bool
    problems: Sequence[str]
    partitions: Sequence[TableReport]


class MaintenancePlan(NamedTuple):
    """The steps of the next run, or why they are not known."""

    steps: Sequence[PlannedStep]
    seconds: float
    failed: str = ""


_UNREADABLE = "the command printed what this gateway cannot read; are both of one version?"
_steps_decoder = msgspec.json.Decoder(list[PlannedStep])
_report_decoder = msgspec.json.Decoder(FsckReport)


def maintenance_plan(result: CommandResult) -> MaintenancePlan:
    """The plan that `lakelog maintain --dry-run --json` has printed."""
    if result.failed:
        return MaintenancePlan((), result.seconds, result.failed)
    try:
        return MaintenancePlan(_steps_decoder.decode(result.output), result.seconds)
    except msgspec.MsgspecError:
        return MaintenancePlan((), result.seconds, _UNREADABLE)


def fsck_report(result: CommandResult) -> tuple[FsckReport | None, str]:
    """The report that `lakelog fsck --json` has printed; None with the reason where there is none."""
    if result.failed:
        return None, result.failed
    try:
        return _report_decoder.decode(result.output), ""
    except msgspec.MsgspecError:
        return None, _UNREADABLE
