"""The checker of lives against a history that is right, and the same with each fault that it knows."""

import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace

from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.partition.sequencer import AppendRequest
from log_tables.record import Record, input_batch
from log_tables.store.store import open_store
from tests.kit.history import (
    Absent,
    Answer,
    Asked,
    At,
    Changed,
    Create,
    Delete,
    Fetch,
    Operation,
    Outcome,
    Part,
    Placed,
    Poll,
    Row,
    Rows,
    Write,
)
from tests.kit.lives import Kind, Life, check, lives

TOPIC = "phoenix"
AT = At(TOPIC, 0)


def ok(asked: Asked, begin: float, answer: Answer | None = None) -> Operation:
    return Operation(asked, begin, begin + 1, Outcome.OK, answer)


def write(begin: float, offset: int, *values: str) -> Operation:
    offsets = tuple(range(offset, offset + len(values)))
    return ok(Write("somebody", (Part(AT, values),)), begin, Placed(offsets))


def fetch(begin: float, offset: int, *values: str) -> Operation:
    rows = tuple(Row(AT, offset + index, value) for index, value in enumerate(values))
    return ok(Fetch(AT, offset), begin, Rows(rows, offset + len(values)))


FIRST = Life({AT: {0: "a", 1: "b"}}, begin=0, born=1, end=20, over=21)
SECOND = Life({AT: {0: "c"}}, begin=30, born=31)
LIVES = [FIRST, SECOND]
RIGHT = [
    write(2, 0, "a", "b"),
    fetch(4, 0, "a", "b"),
    Operation(Write("slow", (Part(AT, ("never there",)),)), 5),
    Operation(Fetch(AT, 2), 22, 23, Outcome.FAILED, Absent()),
    write(32, 0, "c"),
    fetch(34, 0, "c"),
    ok(Poll("group", "member"), 36, Rows((Row(AT, 0, "c"),))),
]


def test_nothing_is_found_in_a_right_history() -> None:
    assert check(RIGHT, LIVES, TOPIC) == []


def test_an_operation_that_overlaps_a_change_may_meet_either_life() -> None:
    both = [
        replace(fetch(20.5, 0, "a", "b"), end=31.5),
        replace(fetch(20.5, 0, "c"), end=31.5),
        Operation(Fetch(AT, 0), 20.5, 31.5, Outcome.FAILED, Absent()),
    ]
    assert check(RIGHT + both, LIVES, TOPIC) == []


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        (write(6, 2, "lost"), Kind.LOST),
        (Operation(write(6, 0, "a").asked, 6, 7, Outcome.FAILED), Kind.FAILED_YET_THERE),
        (write(3, 1, "a"), Kind.MISPLACED),
        (write(23, 0, "c"), Kind.OUT_OF_TIME),
        (write(40, 1, "b"), Kind.OUT_OF_TIME),
        (fetch(6, 0, "x"), Kind.MISREAD),
        (replace(fetch(20.5, 0, "c", "b"), end=31.5), Kind.MIXED),
        (fetch(22, 0, "a"), Kind.DEAD),
        (fetch(40, 1, "b"), Kind.DEAD),
        (ok(Poll("group", "member"), 40, Rows((Row(AT, 0, "a"),))), Kind.DEAD),
        (ok(Fetch(AT, 0), 6, Rows((Row(AT, 1, "b"), Row(AT, 0, "a")), 2)), Kind.SKIPPED),
        (Operation(Fetch(AT, 0), 6, 7, Outcome.FAILED, Absent()), Kind.ABSENT),
        (Operation(write(6, 0, "x").asked, 40, 41, Outcome.FAILED, Absent()), Kind.ABSENT),
        (fetch(6, 1), Kind.STALE),
        (fetch(40, 0), Kind.STALE),
    ],
)
def test_a_fault_is_found(operation: Operation, kind: Kind) -> None:
    assert {finding.kind for finding in check([*RIGHT, operation], LIVES, TOPIC)} == {kind}


def test_a_value_that_is_in_two_lives_is_found() -> None:
    twice = [FIRST, dataclasses.replace(SECOND, records={AT: {0: "c", 1: "a"}})]
    assert Kind.DOUBLED in {finding.kind for finding in check(RIGHT, twice, TOPIC)}


def test_lives_are_what_the_metadata_log_and_the_tables_of_deleted_topics_tell(tmp_path: Path) -> None:
    store = open_store(tmp_path / "root")
    cluster = Cluster.open(store, ManualClock())
    changes = []
    for number, value in enumerate((b'"a"', b'"b"')):
        create_topic(cluster, TOPIC, 2)
        leader = cluster.claim(cluster.topic(TOPIC), 1)
        leader.append([AppendRequest(input_batch([Record(value)], 0))])
        changes.append(ok(Create(TOPIC), 10 * number, Changed(sure=True)))
        if number == 0:
            delete_topic(cluster, TOPIC)
            changes.append(ok(Delete(TOPIC), 5, Changed(sure=True)))
    first, second = lives(changes, store, TOPIC)
    assert first.records == {At(TOPIC, 0): {}, At(TOPIC, 1): {0: "a"}}
    assert second.records == {At(TOPIC, 0): {}, At(TOPIC, 1): {0: "b"}}
    assert (first.begin, first.born, first.end, first.over) == (0, 1, 5, 6)
    assert (second.begin, second.born) == (10, 11)


def test_a_deletion_that_only_a_repeat_told_is_promised_by_the_creation_after_it(tmp_path: Path) -> None:
    store = open_store(tmp_path / "root")
    cluster = Cluster.open(store, ManualClock())
    create_topic(cluster, TOPIC)
    delete_topic(cluster, TOPIC)
    create_topic(cluster, TOPIC)
    told = [ok(Create(TOPIC), 0), ok(Delete(TOPIC), 5, Changed(sure=False)), ok(Create(TOPIC), 10)]
    first, _ = lives(told, store, TOPIC)
    assert first.over == 11
