"""Compaction by key as a job: when it is due, and what it leaves, over groups, buckets and partitions."""

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

from jobs import key_compaction
from jobs.engine import Engine, Failure
from jobs.key_compaction import ShuffleLimits
from jobs.outcome import OVERTAKEN
from jobs.state import PartitionState, look
from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import alter_topic, create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.config import TopicConfig
from log_tables.layout import CLUSTER_METADATA
from log_tables.limits import METADATA_HISTORY_MS, REPLAY_SEGMENT_RECORDS
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import Record, input_batch
from log_tables.root.fsck import check
from log_tables.segments import rewrite
from log_tables.store.local import LocalStore
from log_tables.store.store import Store, open_store
from log_tables.testing import ClockedStore
from tests.kit.compaction_model import Model
from tests.kit.engines import InProcess, Item, Result, in_process
from tests.kit.partitions import records
from tests.kit.states import NOW_MS, a_segment, a_state, aged, bases
from tests.log_tables.segments.test_cleaner import Compaction


def planned(state: PartitionState) -> list[int] | None:
    """The base offsets of the segments that are to be compacted, or None when nothing is due."""
    steps = key_compaction.plan([state], NOW_MS)
    return bases(steps[0].inputs) if steps else None


FOUR = [0, 10, 20, 30]


@pytest.mark.parametrize(
    ("cleaned", "ratio", "expected"),
    [
        (0, "0.5", FOUR),
        (0, "0.99", FOUR),
        (0, "1", None),
        (10, "0.5", FOUR),
        (10, "0.75", None),
        (20, "0.5", None),
        (20, "0.49", FOUR),
        (30, "0.25", None),
        (30, "0.2", FOUR),
        (40, "0", None),
        # Inside a segment, which a merge has made: all of it counts as new.
        (35, "0.2", FOUR),
        (35, "0.25", None),
    ],
)
def test_a_log_is_compacted_when_enough_of_it_is_new(
    cleaned: int, ratio: str, expected: list[int] | None
) -> None:
    state = a_state(
        aged(*[50] * 4), cleaned=cleaned, min_cleanable_dirty_ratio=ratio, cleanup_policy="compact"
    )
    assert planned(state) == expected


def test_the_ratio_is_of_bytes() -> None:
    uneven = [a_segment(0, size=1_000), a_segment(10, size=10)]
    assert planned(a_state(uneven, cleaned=10, cleanup_policy="compact")) is None
    uneven = [a_segment(0, size=10), a_segment(10, size=11)]
    assert planned(a_state(uneven, cleaned=10, cleanup_policy="compact")) == [0, 10]


@pytest.mark.parametrize(
    ("policy", "compacted"),
    [("delete", False), ("compact", True), ("compact,delete", True), ("delete,compact", True)],
)
def test_the_policy_says_whether(policy: str, compacted: bool) -> None:
    assert (planned(a_state(aged(*[50] * 4), cleanup_policy=policy)) is not None) == compacted


def test_a_log_without_records_is_not_compacted() -> None:
    assert planned(a_state([], cleanup_policy="compact", min_cleanable_dirty_ratio=0)) is None


@pytest.mark.parametrize(
    ("lag_ms", "cleaned", "expected"),
    [
        (0, 0, [0, 10, 20, 30]),
        (10, 0, [0, 10, 20, 30]),
        (11, 0, [0, 10, 20]),
        (31, 0, [0]),
        (51, 0, None),
        (31, 10, None),  # what may be touched was compacted before
        (21, 10, [0, 10]),
    ],
)
def test_what_is_younger_than_the_lag_is_not_touched_and_does_not_count(
    lag_ms: int, cleaned: int, expected: list[int] | None
) -> None:
    log = a_state(
        aged(50, 30, 20, 10),
        cleaned=cleaned,
        cleanup_policy="compact",
        min_compaction_lag_ms=lag_ms,
        min_cleanable_dirty_ratio="0.4",
    )
    assert planned(log) == expected


@pytest.mark.parametrize(
    ("lag_ms", "cleaned", "expected"),
    [
        (31, 10, None),
        (29, 10, FOUR),  # of segment 10, which nothing has met yet
        (29, 20, None),  # that of 10 was met
        (5, 40, None),
        (2**63 - 1, 10, None),
    ],
)
def test_a_log_is_compacted_when_a_record_has_waited_for_too_long(
    lag_ms: int, cleaned: int, expected: list[int] | None
) -> None:
    log = a_state(
        aged(50, 30, 20, 10),
        cleaned=cleaned,
        cleanup_policy="compact",
        max_compaction_lag_ms=lag_ms,
        min_cleanable_dirty_ratio=1,
    )
    assert planned(log) == expected


def test_the_keys_of_a_step_fall_into_buckets_and_its_segments_into_groups() -> None:
    limits = ShuffleLimits(bucket_records=15, segment_bytes=200)
    states = [a_state(aged(*[50] * count), cleanup_policy="compact") for count in (4, 1, 3)]
    steps = key_compaction.plan(states, NOW_MS)
    found = key_compaction.key_groups(open_store("memory://"), steps, limits)
    assert [[group.number for group in groups] for groups in found] == [[0, 1], [2], [3, 4]]
    assert [[bases(group.inputs) for group in groups] for groups in found] == [
        [[0, 10], [20, 30]],
        [[0]],
        [[0, 10], [20]],
    ]
    assert [(groups[0].first_bucket, groups[0].buckets) for groups in found] == [(0, 3), (3, 1), (4, 2)]
    assert [groups[0].borders.begins for groups in found] == [(0, 20), (0,), (0, 20)]


# What is left, against a model.


class Spread(Compaction):
    """A Compaction whose steps are those of the job, in groups and buckets of segments.

    Its tasks open the root by themselves, so the root is a directory.
    """

    def opened(self, _: Store) -> Partition:
        self.directory = TemporaryDirectory()
        # Nobody cuts the power here: fsyncs would take most of the time.
        local = LocalStore(Path(self.directory.name), self.clock, sync=lambda _: None)
        self.cluster = Cluster.open(ClockedStore(local, self.clock), self.clock)
        return self.cluster.claim(create_topic(self.cluster, "t"), 0)

    def perform(self, lag_ms: int, retention_ms: int, segment_bytes: int, end: int | None) -> bool:
        limits = ShuffleLimits(bucket_records=(1, 3, 1_000)[retention_ms % 3], segment_bytes=segment_bytes)
        config = TopicConfig.parse(
            {
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "0",
                "min.compaction.lag.ms": f"{lag_ms}",
                "delete.retention.ms": f"{retention_ms}",
            }
        )
        (found,) = (state for state in look(self.cluster)[0] if state.topic == "t")
        state = PartitionState(
            topic="t", partition=0, directory=found.directory, config=config, snapshot=found.snapshot
        )
        steps = key_compaction.plan([state], self.clock.now_ms())
        assert len(steps) == int(end is not None and end > self.model.cleaned)
        outcomes = list(key_compaction.run(in_process, self.cluster, steps, limits))
        assert [outcome.error for outcome in outcomes] == [None] * len(steps)
        self.partition.refresh(wait=True)
        return len(outcomes) == 1

    def teardown(self) -> None:
        super().teardown()
        self.directory.cleanup()


TestSpread = Spread.TestCase
TestSpread.settings = settings(max_examples=60, stateful_step_count=30)


SMALL = ShuffleLimits(bucket_records=50, segment_bytes=3_000)


class Keyed:
    """A root with a topic `t`, and a model of each of its partitions."""

    def __init__(self, root: Path, clock: ManualClock, partitions: int) -> None:
        self.clock = clock
        self.cluster = Cluster.open(open_store(root), clock)
        configs = {"cleanup.policy": "compact", "delete.retention.ms": "1000"}
        topic = create_topic(self.cluster, "t", partitions, configs)
        self.partitions = [self.cluster.claim(topic, index) for index in range(partitions)]
        self.models = [Model() for _ in range(partitions)]

    def put(self, index: int, *rows: tuple[bytes | None, bytes | None]) -> None:
        """One commit of these keys and values."""
        made = [Record(value, key, (), self.clock.now_us()) for key, value in rows]
        self.partitions[index].append([AppendRequest(input_batch(made, 0))])
        self.models[index].append(made)

    def write(self, commits: int, rows: int) -> None:
        """Updates of few keys, deletions, records without a key, in every partition."""
        for index in [*range(len(self.partitions))] * commits:
            keys = [None if self._drawn(9) == 0 else b"%d" % self._drawn(40) for _ in range(rows)]
            self.put(
                index, *[(key, None if self._drawn(4) == 0 else b"%d" % self._drawn(99)) for key in keys]
            )

    def _drawn(self, below: int) -> int:
        return int(self.clock.random() * below)

    def plan(self) -> Sequence[key_compaction.CompactStep]:
        """The steps that are due for the topic `t`."""
        states = [state for state in look(self.cluster)[0] if state.topic == "t"]
        return key_compaction.plan(states, self.clock.now_ms())

    def compact(self, engine: Engine, steps: Sequence[key_compaction.CompactStep]) -> list[str | None]:
        """Do `steps`, and the same with the models of those that succeed; returns the errors."""
        outcomes = list(key_compaction.run(engine, self.cluster, steps, SMALL))
        for step, outcome in zip(steps, outcomes, strict=True):
            assert (outcome.job, outcome.topic, outcome.partition) == ("key_compaction", "t", step.partition)
            if outcome.error is None:
                self.models[step.partition].clean(step.inputs[-1].last_offset + 1, self.clock.now_ms(), 1_000)
        return [outcome.error for outcome in outcomes]

    def check(self) -> None:
        """Assert that another process reads exactly the records of the models."""
        topic = Cluster.open(self.cluster.store, self.clock).topic("t")
        for partition, model in zip(topic.partitions(), self.models, strict=True):
            assert records(partition) == model.readable()
            assert partition.snapshot.cleaned == model.cleaned
        assert check(self.cluster.store).problems == []


@pytest.fixture
def keyed(store_root: Path, clock: ManualClock) -> Keyed:
    made = Keyed(store_root, clock, 3)
    made.write(6, 30)
    return made


def test_partitions_fail_alone(keyed: Keyed) -> None:
    steps = keyed.plan()
    lost = steps[1].inputs[2]
    path = f"{steps[1].directory}/{lost.path}"
    data = keyed.cluster.store.get(path)
    keyed.cluster.store.delete(path)
    errors = keyed.compact(in_process, steps)
    assert [error is None for error in errors] == [True, False, True]
    assert lost.path in str(errors[1])
    keyed.cluster.store.put(path, data)
    keyed.check()
    (step,) = keyed.plan()
    assert keyed.compact(in_process, [step]) == [None]
    keyed.check()


class Repeating(InProcess):
    """Each item is done twice, as when a worker has died after its work."""

    def spread(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result | Failure]:
        super().spread(function, items)
        return super().spread(function, items)


def test_a_task_that_is_done_again_changes_nothing(keyed: Keyed) -> None:
    assert keyed.compact(Repeating(), keyed.plan()) == [None] * 3
    keyed.check()


def test_a_step_that_was_overtaken_changes_nothing(keyed: Keyed) -> None:
    steps = keyed.plan()
    partition = Cluster.open(keyed.cluster.store, keyed.clock).topic("t").partition(1)
    inputs = partition.snapshot.segments[2:4]
    made = rewrite.merge(partition.table.store, partition.directory, inputs, "zstd", keyed.clock)
    assert rewrite.commit_merge(partition.table, inputs, made)
    assert keyed.compact(in_process, steps) == [None, OVERTAKEN, None]
    keyed.check()
    assert keyed.compact(in_process, keyed.plan()) == [None]
    keyed.check()


def test_records_that_are_appended_during_a_compaction_stay(keyed: Keyed) -> None:
    steps = keyed.plan()
    keyed.put(0, (b"1", b"later"), (b"2", None))
    assert keyed.compact(in_process, steps) == [None] * 3
    keyed.check()


def test_internal_topics_are_compacted_when_they_cost_time_to_read(keyed: Keyed) -> None:
    for number in range(20):
        alter_topic(keyed.cluster, "t", {"retention.ms": f"{number}"})
    create_topic(keyed.cluster, "u")
    states = [state for state in look(keyed.cluster)[0] if state.topic == CLUSTER_METADATA]
    worth = 22 * REPLAY_SEGMENT_RECORDS
    assert key_compaction.plan(states, keyed.clock.now_ms(), worth) == (), "its history stays for a while"
    later_ms = keyed.clock.now_ms() + METADATA_HISTORY_MS
    assert key_compaction.plan(states, later_ms) == ()
    steps = key_compaction.plan(states, later_ms, worth)
    (outcome,) = key_compaction.run(in_process, keyed.cluster, steps)
    assert (outcome.records, outcome.error) == (22, None)
    assert [record.key for record in records(keyed.cluster.metadata_log.partition)] == [b"t", b"u"]
    opened = Cluster.open(keyed.cluster.store, keyed.clock)
    assert opened.topic("t").config["retention.ms"] == "19"
    assert opened.topic("u").partition_count == 1


def test_an_engine_leaves_what_the_model_leaves(keyed: Keyed, engine: Engine) -> None:
    """Three partitions at once, each of several groups and buckets, twice, while time passes."""
    for turn in range(2):
        steps = keyed.plan()
        groups = key_compaction.key_groups(keyed.cluster.store, steps, SMALL)
        assert len(steps) == 3
        assert min(min(len(found), found[0].buckets) for found in groups) > (1 - turn)
        assert keyed.compact(engine, steps) == [None] * 3
        keyed.check()
        keyed.clock.advance(1_200)
        keyed.write(7, 30)
