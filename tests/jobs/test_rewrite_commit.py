"""The outcome of a rewrite is reported as it is: committed, overtaken, or failed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.engine import Failure
from jobs.outcome import GONE, OVERTAKEN, JobOutcome
from jobs.rewrite_commit import commit_rewrite, still_there
from jobs.segment_compaction import MergeStep
from log_tables.clock import ManualClock
from log_tables.errors import UnknownTopic
from log_tables.segments.rewrite import commit_merge
from log_tables.store.store import open_store
from log_tables.table.snapshot import Segment
from tests.kit.partitions import another, append_each, new_partition
from tests.kit.rewrites import merged
from tests.kit.states import a_segment, aged

STEP = MergeStep(
    topic="t",
    partition=3,
    directory="topics/t/partition=3",
    remote=False,
    inputs=tuple(aged(0, 0, 0)),
    compression="zstd",
)
MADE = (a_segment(0, 30, size=250),)


def in_time(made: Sequence[Segment]) -> bool:
    return made == MADE


def too_late(_: Sequence[Segment]) -> bool:
    return False


def in_vain(_: Sequence[Segment]) -> bool:
    raise UnknownTopic("topic 't' was deleted")


@pytest.mark.parametrize(
    ("made", "commit", "expected"),
    [
        (
            MADE,
            in_time,
            JobOutcome(
                job="job",
                topic="t",
                partition=3,
                files_before=3,
                files_after=1,
                bytes_before=300,
                bytes_after=250,
                records=30,
                seconds=1.5,
            ),
        ),
        (MADE, too_late, JobOutcome(job="job", topic="t", partition=3, seconds=1.5, error=OVERTAKEN)),
        (MADE, in_vain, JobOutcome(job="job", topic="t", partition=3, seconds=1.5, error=GONE)),
        (
            Failure("the task failed"),
            in_time,
            JobOutcome(job="job", topic="t", partition=3, seconds=1.5, error="the task failed"),
        ),
    ],
)
def test_what_became_of_a_rewrite(
    made: Sequence[Segment] | Failure, commit: Callable[[Sequence[Segment]], bool], expected: JobOutcome
) -> None:
    assert commit_rewrite("job", STEP, made, commit, lambda: True, 1.5) == expected


@pytest.mark.parametrize(("begin", "error"), [(0, OVERTAKEN), (1, "the file is missing")])
def test_a_rewrite_whose_inputs_were_merged_and_deleted_was_overtaken(
    tmp_path: Path, begin: int, error: str
) -> None:
    partition = new_partition(open_store(tmp_path), ManualClock())
    append_each(partition, [b"a", b"b", b"c"])
    known = another(partition)
    step = replace(STEP, inputs=known.snapshot.segments[begin:])
    first = partition.snapshot.segments[:1]
    assert commit_merge(partition.table, first, merged(partition, first))
    found = commit_rewrite(
        "job",
        step,
        Failure("the file is missing"),
        in_time,
        lambda: still_there(known.table, step.inputs),
        1.5,
    )
    assert (found.error, found.failed) == (error, error != OVERTAKEN)
