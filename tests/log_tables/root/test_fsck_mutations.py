"""Small changes of a healthy root, generated: fsck names each, or it is on a short list that says why not."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from log_tables.clock import SystemClock
from log_tables.cluster.group_log import (
    ClassicKey,
    ClassicMemberValue,
    ClassicValue,
    GroupKey,
    GroupValue,
    Key,
    MemberConfig,
    MemberKey,
    MemberValue,
    OffsetKey,
    OffsetValue,
    Retry,
    RetryKey,
    TransactionsKey,
    TransactionsValue,
    Value,
    encode,
)
from log_tables.cluster.topic_admin import alter_topic, create_topic, delete_topic
from log_tables.cluster.topic_fold import fold
from log_tables.errors import CorruptLog
from log_tables.key_hash import MURMUR3, partition_for_key
from log_tables.layout import CONSUMER_OFFSETS, METADATA_DIRECTORY, checkpoint_version, commit_version
from log_tables.limits import KEPT_PRODUCER_ID_MIN
from log_tables.partition.partition import AppendRequest, Partition, ProducerStamp
from log_tables.record import Record, input_batch
from log_tables.root.fsck import check, check_partition, check_topic
from log_tables.root.group_history import GroupHistory
from log_tables.root.group_replay import records
from log_tables.root.topic_history import TopicHistory
from log_tables.segments import rewrite
from log_tables.store.store import Store
from tests.kit.mutations import Mutation, of_checkpoint, of_commit, of_value
from tests.kit.partitions import append
from tests.kit.tiers import move_topic, tiered_cluster

HERE = "topics/t/partition=0"
COMPACTED = "topics/c/partition=0"
GROUP = "readers"


class HealthyRoot:
    """A root in which everything has happened, at rest."""

    def __init__(self, directory: Path) -> None:
        self.clock = SystemClock()
        self.cluster = tiered_cluster(directory, self.clock)
        self.directory = directory
        configs = {"remote.storage.enable": "true", "value.columns": "n bigint"}
        self.topic = create_topic(self.cluster, "t", 1, configs)
        partition = self.cluster.claim(self.topic, 0)
        for number in range(6):
            append(partition, b'{"n":1}', b"b", producer=ProducerStamp(7, 0, 2 * number))
        transacted = ProducerStamp(KEPT_PRODUCER_ID_MIN, 1, 0, kept=True)
        append(partition, b"c", producer=transacted)
        fold(self.topic)
        store = self.cluster.store
        inputs = partition.snapshot.segments[2:4]
        assert rewrite.commit_merge(
            partition.table, inputs, rewrite.merge(store, HERE, inputs, "zstd", self.clock)
        )
        partition.checkpoint()
        alter_topic(self.cluster, "t", {"value.columns": "n bigint, m string"})
        declared = partition.refresh(wait=True).declared
        last = partition.snapshot.segments[-1]
        made = rewrite.retype(store, HERE, last, declared, "zstd", self.clock)
        assert rewrite.commit_retype(partition.table, [last], [made], declared)
        partition.truncate(3)
        append(partition, b"d")
        fold(self.topic)
        self.topic.table().checkpoint(0)
        move_topic(self.cluster, "t", [1])
        fold(self.topic)
        append(partition, b"e", producer=ProducerStamp(7, 0, 12))
        compacted = self.cluster.claim(create_topic(self.cluster, "c", 1, {"cleanup.policy": "compact"}), 0)
        append(compacted, b"x")
        append(compacted, b"y")
        assert rewrite.compact_by_key(compacted.table, "zstd")
        create_topic(self.cluster, "gone", 1)
        delete_topic(self.cluster, "gone")
        groups = create_topic(self.cluster, CONSUMER_OFFSETS, 2, internal=True)
        self.number = partition_for_key(GROUP.encode(), 2, MURMUR3)
        self.group_log = self.cluster.claim(groups, self.number)
        said = [encode(key, value) for key, value in self.records()]
        self.group_log.append([AppendRequest(input_batch(said, self.clock.now_us()))])

    @property
    def store(self) -> Store:
        return self.cluster.store

    def records(self) -> list[tuple[Key, Value]]:
        """One of each kind of record of a group."""
        topic_id = self.topic.topic_id
        producer = KEPT_PRODUCER_ID_MIN
        member = ClassicMemberValue(10_000, 20_000)
        return [
            (GroupKey(GROUP), GroupValue(3, 1_700_000_000_000)),
            (
                MemberKey(GROUP, "m"),
                MemberValue(MemberConfig(), ["t"], owned={"t": [0]}, epoch=3, topic_ids={"t": topic_id}),
            ),
            (OffsetKey(GROUP, "t", 0), OffsetValue(5, topic_id, "", 1_700_000_000_000, "m")),
            (TransactionsKey(GROUP), TransactionsValue(producer, 1)),
            (RetryKey(GROUP, "k"), Retry(1, "5d41", 1_700_000_000_000, ())),
            (ClassicKey(GROUP), ClassicValue(4, 0, "consumer", "range", "a", {"a": member})),
        ]


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
        # One partition is checked sooner than its topic, and a topic sooner than the root.
        found = check_partition(root.store, place, deep=True).problems if "partition=" in place else []
        return found or check_topic(root.store, place.split("/")[1]).problems or check(root.store).problems
    finally:
        path.write_bytes(whole)


def log_files(root: HealthyRoot) -> Iterator[tuple[str, str, Path]]:
    """(What table, its directory, file) of each commit and each checkpoint of some tables."""
    for what, where, place in (
        ("partition", "here", HERE),
        ("partition", "here", COMPACTED),
        ("remote partition", "away", HERE),
        ("fold", "here", "topics/t"),
        ("remote fold", "away", "topics/t"),
    ):
        for path in sorted((root.directory / where / place / "_delta_log").iterdir()):
            if commit_version(path.name) is not None or checkpoint_version(path.name) is not None:
                yield what, place, path


HARMLESS = {
    "commitInfo timestamp": "the writer's clock, which only people read",
    "commitInfo batchId": "another unique text",
    "commitInfo engineInfo": "another version of lakelog",
    "commitInfo leaderUrl": "for people: the id of the gateway counts",
    "commitInfo isBlindAppend": "for other writers, which must not write here",
    "commitInfo operationParameters.mode": "for people",
    "lastUpdated": "an age: it only says when an idle producer is forgotten",
    "txn lakelog.broker version": "whom to ask first; the leader is who wins the next put",
    "txn lakelog.broker": "whom to ask first; the leader is who wins the next put",
    "txn lakelog.start version": "within a segment nothing else says where the log starts",
    "metaData id": "nothing else names the id of a partition's table",
    "metaData createdTime": "for people",
    "metaData format.provider": "the default is the only one",
    "add modificationTime": "a time between those of its neighbours",
    "add tags.lakelog.bytes": "how much to read at once; it may be missing",
    "add tags.lakelog.digest": "it may be missing: older versions wrote none",
    "add dataChange": "a checkpoint's says nothing",
    "add stats.json.nullCount": "0 and none are the same",
    "add stats.json.minValues": "a bound of a declared column that is missing leaves nothing out",
    "add stats.json.maxValues": "a bound of a declared column that is missing leaves nothing out",
    "remove deletionTimestamp": "an age: when a file that was removed is forgotten",
    "remove extendedFileMetadata": "for other writers",
    "remove partitionValues": "there are none",
    "remove dataChange": "a checkpoint's says nothing",
}
"""Fields that may be another without a reader, a fold or a gateway being misled, and why."""


def is_harmless(mutation: Mutation) -> bool:
    if (mutation.field, mutation.how) == ("COMPACT add", "missing"):
        return True  # the log says that records were dropped, and not which
    return any(mutation.field.endswith(name) or f" {name}" in f" {mutation.field}" for name in HARMLESS)


def check_mutations(root: HealthyRoot, chosen: Iterable[tuple[str, str, Path, Mutation]]) -> None:
    """Each is named, or harmless; a readable root says so, and what cannot be read is named, too."""
    unnamed = []
    for what, place, path, mutation in chosen:
        if not named(root, place, path, mutation.data) and not is_harmless(mutation):
            unnamed.append(f"{what} {path.name}: {mutation.field} {mutation.how}")
    assert unnamed == [], "\n".join(unnamed)


def mutations(root: HealthyRoot) -> Iterator[tuple[str, str, Path, Mutation]]:
    for what, place, path in log_files(root):
        data = path.read_bytes()
        for mutation in (of_commit if path.suffix == ".json" else of_checkpoint)(data):
            if mutation.data != data:
                yield what, place, path, mutation


def test_each_field_of_each_action_that_is_changed_is_named(root: HealthyRoot) -> None:
    first = dict[tuple[bool, str], tuple[str, str, Path, Mutation]]()
    for item in mutations(root):
        what, _, _, mutation = item
        if mutation.how in ("forged", "added") or (mutation.how == "missing" and " " not in mutation.field):
            first.setdefault(("fold" in what, mutation.field), item)
    check_mutations(root, first.values())


@pytest.mark.torture
def test_every_change_of_every_action_is_named(root: HealthyRoot) -> None:
    check_mutations(root, mutations(root))


def topics(root: HealthyRoot) -> TopicHistory:
    history = TopicHistory()
    log = root.cluster.metadata_log.partition
    for record in records(root.store, METADATA_DIRECTORY, log.refresh(wait=True)):
        history.take(record)
    return history


def changed_records(value: object) -> Iterator[tuple[str, str, bytes]]:
    """(Field, how, value) of each change of a record's value."""
    for field, how, made in of_value(json.loads(msgspec.json.encode(value))):
        yield field, how, msgspec.json.encode(made)


GROUP_TEXTS = (
    "config",
    "topics",
    "metadata",
    "member",
    "host",
    "client_id",
    "principal",
    "protocol",
    "digest",
    "assigned",
    "pattern",
    "key",
    "path",
)
"""Texts that a client chose, or that people read: any value is one that it may have."""
GROUP_NUMBERS = (
    "generation",
    "begun",
    "idle_ms",
    "committed_ms",
    "epoch",
    "offset",
    "owned",
    "number",
    "timeout_ms",
    "placed",
    "positions",
)
"""Numbers that may be greater: only one below 0, or one that goes back, is named."""


def test_each_field_of_the_records_of_groups_that_is_changed_is_named(root: HealthyRoot) -> None:
    known, directory = topics(root), f"topics/{CONSUMER_OFFSETS}/partition={root.number}"
    unnamed = []
    for key, value in root.records():
        for field, how, data in changed_records(value):
            history = GroupHistory(directory, root.number, 2, True, known, {})
            for other, said in root.records():
                history.take(encode(other, said))
            assert history.problems == []
            try:
                history.take(Record(data, encode(key, value).key, offset=9))
            except CorruptLog:
                continue
            last = field.rsplit(".", 1)[-1]
            free = how == "missing" or any(name in field for name in GROUP_TEXTS)
            free = free or (how == "forged" and any(name in field for name in GROUP_NUMBERS))
            if not history.problems and not free:
                unnamed.append(f"{type(value).__name__}.{field} {last} {how}")
    assert unnamed == []


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
