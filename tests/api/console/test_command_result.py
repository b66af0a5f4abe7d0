"""The output of a command is parsed into values that the console shows."""

import msgspec

from api.console.command_results import fsck_report, maintenance_plan
from api.requests.child_process import CommandResult

STEP = {
    "job": "segment_compaction",
    "topic": "t",
    "partition": 1,
    "engine": "local",
    "what": "merge 2 segments",
}


def printed(value: object) -> CommandResult:
    return CommandResult(msgspec.json.encode(value), 1.5)


def test_a_plan_is_the_steps_that_a_dry_run_prints() -> None:
    plan = maintenance_plan(printed([{**STEP, "offsets": [0, 9]}, {**STEP, "offsets": None}]))
    assert [(step.job, step.partition, step.offsets) for step in plan.steps] == [
        ("segment_compaction", 1, (0, 9)),
        ("segment_compaction", 1, None),
    ]
    assert (plan.seconds, plan.failed) == (1.5, "")


def test_a_command_that_failed_has_no_result_but_a_reason() -> None:
    failed = CommandResult(b"", 60.0, "it took longer than 60 s")
    assert maintenance_plan(failed) == ((), 60.0, failed.failed)
    assert fsck_report(failed) == (None, failed.failed)


def test_what_is_no_result_is_said_to_be_none() -> None:
    for wrong in (printed({"a": 1}), printed([{"job": 1}]), CommandResult(b"\xff<", 0.0)):
        assert "cannot read" in maintenance_plan(wrong).failed
        assert "cannot read" in fsck_report(wrong)[1]
