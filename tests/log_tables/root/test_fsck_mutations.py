"""Small changes of a healthy root, generated: fsck names each, or it is on a short list that says why not."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from log_tables.cluster.access_record import acl_record, super_user_record
from log_tables.cluster.credential_log import revocations, use_record
from log_tables.cluster.group_log import GroupKey, Key, OffsetKey, OffsetValue, TransactionsKey, encode
from log_tables.cluster.metadata_log import BrokerLeft
from log_tables.cluster.metadata_log import encode as encode_metadata
from log_tables.errors import CorruptLog
from log_tables.key_hash import MURMUR3, partition_for_key
from log_tables.layout import (
    AUDIT,
    CONSUMER_OFFSETS,
    CREDENTIALS_DIRECTORY,
    METADATA_DIRECTORY,
    checkpoint_version,
    commit_version,
)
from log_tables.limits import KEPT_PRODUCER_ID_MIN
from log_tables.partition.partition import AppendRequest, Partition, ProducerStamp
from log_tables.record import Record, input_batch
from log_tables.root.fold_replay import check_fold
from log_tables.root.fsck import check
from log_tables.root.table_check import check_partition
from tests.kit.harmless import TABLES
from tests.kit.healthy_root import ACL, COMPACTED, GROUP, HERE, HealthyRoot
from tests.kit.mutations import Mutation, Name, of_another_type, of_checkpoint, of_commit
from tests.kit.partitions import append


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> HealthyRoot:
    return HealthyRoot(tmp_path_factory.mktemp("healthy"))


def test_the_root_is_healthy(root: HealthyRoot) -> None:
    report = check(root.store, deep=True)
    assert (report.problems, report.doubts) == ([], [])


def named(root: HealthyRoot, place: str, path: Path, data: bytes) -> list[str]:
    """The problems while the file at `path`, of the table at `place`, holds `data`."""
    whole = path.read_bytes()
    path.write_bytes(data)
    try:
        # One table is checked sooner than the root.
        is_partition = "partition=" in place
        found = check_partition(root.store, place, deep=True).problems if is_partition else []
        return found or [*check_fold(root.store, "topics/t", 1)] or check(root.store).problems
    finally:
        path.write_bytes(whole)


def log_files(root: HealthyRoot) -> Iterator[tuple[str, str, Path]]:
    """(Which table, its directory, file) of each commit and each checkpoint of some tables."""
    for table, where, place in (
        ("partition", "here", HERE),
        ("compacted", "here", COMPACTED),
        ("remote partition", "away", HERE),
        ("fold", "here", "topics/t"),
        ("remote fold", "away", "topics/t"),
    ):
        for path in sorted((root.directory / where / place / "_delta_log").iterdir()):
            if commit_version(path.name) is not None or checkpoint_version(path.name) is not None:
                yield table, place, path


class Change(NamedTuple):
    """A mutation of the file at `path`, of a `table` at `place`."""

    table: str
    place: str
    path: Path
    mutation: Mutation

    @property
    def name(self) -> Name:
        return Name(self.table, self.mutation.action, self.mutation.field, self.mutation.how)

    def is_named(self, root: HealthyRoot) -> bool:
        return bool(named(root, self.place, self.path, self.mutation.data()))


def changes(root: HealthyRoot) -> Iterator[Change]:
    for table, place, path in log_files(root):
        for mutation in (of_commit if path.suffix == ".json" else of_checkpoint)(path.read_bytes()):
            yield Change(table, place, path, mutation)


def test_each_field_of_each_action_that_is_changed_is_named(root: HealthyRoot) -> None:
    """Once in a partition and in a table over a topic, in any of the ways, by any operation."""
    first = dict[tuple[bool, str, str], Change]()
    for change in changes(root):
        _, action, field, _ = change.name
        if change.name not in TABLES:
            first.setdefault(("fold" in change.table, re.sub("^[A-Z ]+ ", "", action), field), change)
    assert [change.name for change in first.values() if not change.is_named(root)] == []


def test_a_field_of_another_type_is_named(root: HealthyRoot) -> None:
    """Once for each field of each action, in a partition and in a table over a topic."""
    tried, unnamed = set[tuple[str, str, str, str]](), list[Name]()
    for table, place, path in log_files(root):
        if table in ("partition", "fold") and path.suffix == ".json":
            whole = path.read_bytes()
            for mutation in of_another_type(whole):
                name = Name(table, *mutation[:3])
                if name not in tried:
                    tried.add(name)
                    path.write_bytes(mutation.data())
                    in_fold = table == "fold"
                    found = [*check_fold(root.store, place, 1)] if in_fold else problems_of(root, place)
                    if not found:
                        unnamed.append(name)
            path.write_bytes(whole)
    assert unnamed == []


def problems_of(root: HealthyRoot, place: str) -> list[str]:
    return check_partition(root.store, place).problems


@pytest.mark.torture
def test_every_change_of_every_action_is_named_or_harmless(root: HealthyRoot) -> None:
    unnamed = {change.name for change in changes(root) if not change.is_named(root)}
    assert unnamed == TABLES.keys()


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (OffsetKey(GROUP, "t", 0), {"offset": -5}, "commits offset -5 of t-0"),
        (OffsetKey(GROUP, "t", 7), {"offset": 1}, "commits partition 7 of t, which has 1"),
        (OffsetKey(GROUP, "t", 0), {"offset": 1, "topic_id": "f" * 32}, "which it never had"),
        (OffsetKey("other", "t", 0), {"offset": 1}, "belongs to partition"),
        (TransactionsKey(GROUP), {"producer_id": KEPT_PRODUCER_ID_MIN, "number": 50}, "and 2 is the next"),
        (TransactionsKey(GROUP), {"producer_id": KEPT_PRODUCER_ID_MIN + 1, "number": 2}, "names producer"),
        (GroupKey(GROUP), {"generation": 2}, "has generation 2 of group 'readers', after 3"),
    ],
)
def test_what_no_group_can_say_is_named_by_the_check_of_a_root(
    root: HealthyRoot, key: Key, value: dict[str, object], said: str
) -> None:
    if isinstance(key, OffsetKey):
        value = {"topic_id": root.topic.topic_id, **value}
    number = root.number
    if isinstance(key, OffsetKey) and key.group == "other":
        number = 1 - partition_for_key(b"other", 2, MURMUR3)
    record = Record(msgspec.json.encode(value), encode(key, None).key)
    with appended(root, f"topics/{CONSUMER_OFFSETS}/partition={number}", record):
        assert any(said in problem for problem in check(root.store).problems)


def test_an_offset_beyond_the_end_of_a_log_is_a_doubt(root: HealthyRoot) -> None:
    beyond = encode(OffsetKey(GROUP, "t", 0), OffsetValue(999_999, root.topic.topic_id))
    with appended(root, f"topics/{CONSUMER_OFFSETS}/partition={root.number}", beyond):
        report = check(root.store)
    assert report.problems == []
    (doubt,) = report.doubts
    assert "group 'readers' has committed offset 999999 of t-0, which ends at " in doubt


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"configs": {"retention.ms": "banana"}}, "retention.ms='banana' is not allowed"),
        ({"configs": {"no.such": "1"}}, "there is no topic setting 'no.such'"),
        ({"topic_id": "e" * 32}, "and it had"),
        ({"topic_id": "short"}, "not 32 hexadecimal digits"),
        ({"partitions": 0}, "gives topic t 0 partitions"),
        ({"live": False}, "says that topic t is deleted, and not when"),
        ({"live": False, "deleted": {"1": 5}}, "and topics/t/partition=0 has not ended"),
        ({"deleted": {"1": 5}}, "says that topic t lives, and that it was deleted"),
        ({"incarnation": 2}, "begins incarnation 2 of topic t, whose 1 lives"),
        ({"incarnation": 0}, "has an incarnation below 1"),
        ({"columns": "x nonsense"}, "gives topic t settings that it cannot have"),
    ],
)
def test_what_the_metadata_log_cannot_say_of_a_topic_is_named(
    root: HealthyRoot, changes: dict[str, object], said: str
) -> None:
    known = json.loads(msgspec.json.encode(root.cluster.metadata_log.topic("t")))
    with appended(root, METADATA_DIRECTORY, Record(msgspec.json.encode({**known, **changes}), b"t")):
        assert any(said in problem for problem in check(root.store).problems)


@pytest.mark.parametrize(
    ("directory", "record", "said"),
    [
        (METADATA_DIRECTORY, acl_record(ACL, removed=True), "which is not there: another one may still hold"),
        (METADATA_DIRECTORY, super_user_record("User:root", removed=True), "without a super user"),
        (METADATA_DIRECTORY, encode_metadata(BrokerLeft(9)), "gateway 9 left, which is not on the list"),
        (CREDENTIALS_DIRECTORY, revocations("a")[0], "removes 'key/a', which is not there"),
        (CREDENTIALS_DIRECTORY, use_record("a", 1), "there is no such key"),
        (f"topics/{AUDIT}/partition=0", Record(b"{}"), "cannot be read"),
    ],
)
def test_what_no_log_of_access_can_say_is_named_by_the_check_of_a_root(
    root: HealthyRoot, directory: str, record: Record, said: str
) -> None:
    with appended(root, directory, record):
        assert any(said in problem for problem in check(root.store).problems)


@contextmanager
def appended(root: HealthyRoot, directory: str, record: Record) -> Iterator[None]:
    """Have `record` in the log of a partition, as a program that is wrong would."""
    place = root.directory / "here" / directory
    before = {path for path in place.rglob("*") if path.is_file()}
    log = Partition(root.store, directory, root.clock)
    log.claim("http://wrong")
    log.append([AppendRequest(input_batch([record], root.clock.now_us()))])
    try:
        yield
    finally:
        for path in {path for path in place.rglob("*") if path.is_file()} - before:
            path.unlink()


def test_the_fold_says_what_helps_when_its_end_was_moved(root: HealthyRoot) -> None:
    *_, path = (
        path
        for path in sorted((root.directory / "here/topics/t/_delta_log").glob("*.json"))
        if ".end" in path.read_text()
    )
    whole = path.read_bytes()
    lines = [json.loads(line) for line in whole.splitlines()]
    for line in lines:
        if line.get("txn", {}).get("appId") == "lakelog.fold.0.end":
            line["txn"]["version"] += 50
    path.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    try:
        problems = check(root.store).problems
        assert any("is folded up to offset" in problem for problem in problems)
        assert all("lakelog root refold" in problem for problem in problems)
        root.topic.forget_table()
        partition = root.topic.partition(0)
        append(partition, b"more", producer=ProducerStamp(7, 0, 13))
        with pytest.raises(
            CorruptLog, match=r"end moved back; make the table again with `lakelog root refold`"
        ):
            root.topic.table().fold({0: partition.snapshot})
    finally:
        path.write_bytes(whole)
        root.topic.forget_table()
