"""Which segments get the columns that their topics declare, and that nothing else of them changes."""

import dataclasses
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from jobs import key_compaction, retype, segment_compaction, tiering
from jobs.maintenance import jobs_named
from jobs.outcome import OVERTAKEN
from jobs.state import PartitionState
from log_tables.clock import ManualClock
from log_tables.cluster.admin.remote_admin import set_remote_root
from log_tables.cluster.admin.topic_admin import alter_topic, create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.columns.declaration import parse
from log_tables.root.fsck import check
from log_tables.segments.digest import Digest
from log_tables.sql.query import query
from log_tables.store.store import open_store
from log_tables.table.commit import read_commit
from log_tables.testing import Crash, Failure, crash_after, crash_before
from tests.kit import states
from tests.kit.killed import killed
from tests.kit.maintenance import errors, interrupted, run
from tests.kit.partitions import append
from tests.kit.rewrites import put

RETYPE = jobs_named([retype.NAME])
TIERED = {"remote_storage_enable": "true", "local_retention_ms": "1"}
N, NS = "n bigint", "n bigint, s string"


def planned(state: PartitionState, files_max: int = 100) -> list[tuple[bool, list[int], list[str]]]:
    """(Whether in the remote table, where the inputs begin, the columns) of each step."""
    steps = retype.plan([state], states.NOW_MS, files_max)
    return [(step.remote, states.bases(step.inputs), step.columns.names) for step in steps]


def typed(state: PartitionState, *ids: str) -> PartitionState:
    """`state`, whose segments have these ids of declarations."""
    pairs = zip(state.snapshot.segments, ids, strict=True)
    segments = tuple(replace(segment, columns=columns) for segment, columns in pairs)
    return dataclasses.replace(state, snapshot=dataclasses.replace(state.snapshot, segments=segments))


def test_segments_of_other_columns_are_retyped() -> None:
    newest = parse(N).id
    state = typed(states.a_state(states.aged(*[90] * 4), value_columns=N), newest, "", "older", newest)
    assert planned(state) == [(False, [10, 20], ["n"])]


def test_a_topic_that_declares_nothing_keeps_what_it_has() -> None:
    assert planned(typed(states.a_state(states.aged(*[90] * 2)), "older", "")) == []


def test_a_step_has_so_many_files_and_bytes() -> None:
    state = states.a_state(states.aged(*[90] * 5), value_columns=N)
    assert [bases for _, bases, _ in planned(state, 2)] == [[0, 10], [20, 30], [40]]
    large = [states.a_segment(10 * at, size=size) for at, size in enumerate([400, 400, 400, 5_000, 10])]
    state = states.a_state(large, value_columns=N, segment_bytes=1_024)
    assert [bases for _, bases, _ in planned(state)] == [[0, 10], [20], [30], [40]]


@pytest.mark.parametrize(("folded", "expected"), [(0, []), (19, [[0]]), (20, [[0, 10]])])
def test_only_what_the_table_over_the_topic_has_is_retyped(folded: int, expected: list[list[int]]) -> None:
    state = dataclasses.replace(states.a_state(states.aged(*[90] * 3), value_columns=N), folded=folded)
    assert [bases for _, bases, _ in planned(state)] == expected


def test_remote_segments_are_retyped_where_they_are() -> None:
    here, there = states.aged(80, base=50), states.aged(*[90] * 5)
    state = states.a_state(here, there, tiered=50, log_start=20, value_columns=N)
    assert planned(state) == [(False, [50], ["n"]), (True, [20, 30, 40], ["n"])]
    half = dataclasses.replace(state, remote_folded=35)
    assert planned(half)[1:] == [(True, [20], ["n"])]


# On real tables.


class Scene:
    """A topic of one partition, whose first records were appended before its columns were declared."""

    def __init__(self, directory: Path, **configs: str) -> None:
        self.clock = ManualClock()
        self.cluster = Cluster.open(open_store(directory / "here"), self.clock)
        set_remote_root(self.cluster, directory / "away")
        named = {name.replace("_", "."): value for name, value in configs.items()}
        topic = create_topic(self.cluster, "t", configs={"merge.min.age.ms": "0", **named})
        self.partition = topic.partition(0)
        self.partition.claim("")

    def append(self, *texts: str | None) -> None:
        """A commit for each."""
        for text in texts:
            append(self.partition, None if text is None else text.encode(), at_us=self.clock.now_us())
            self.clock.advance(10)

    def declare(self, columns: str) -> None:
        alter_topic(self.cluster, "t", {"value.columns": columns})

    def opened(self) -> Cluster:
        return Cluster.open(self.cluster.store, self.clock, create=False)

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        return [tuple(row.values()) for row in query(self.opened(), sql).to_pylist()]

    def digest(self) -> bytes:
        found = Digest()
        partition = self.opened().topic("t").partition(0)
        for batch in partition.read(partition.plan_read(0, 1 << 30)):
            found.update(batch)
        return found.value()

    def ids(self) -> list[str]:
        return [item.columns for item in self.opened().topic("t").partition(0).snapshot.segments]

    def check(self) -> None:
        assert check(self.cluster.store, deep=True).problems == []


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_what_was_appended_before_gets_the_columns(scene: Scene) -> None:
    scene.append('{"n":1}', None, '{"n":"x"}', "no JSON")
    scene.declare(N)
    scene.append('{"n":5}')
    before = scene.partition.snapshot.segments
    digest = scene.digest()
    assert scene.rows("select count(n), count(value_error) from t") == [(1, 0)]
    scene.clock.advance(5_000)
    outcomes = run(scene.opened(), jobs=RETYPE)
    assert [(o.job, o.files_before, o.files_after, o.records, o.error) for o in outcomes] == [
        ("retype", 4, 4, 4, None)
    ]
    assert scene.rows('select "offset", n, value_error is null from t order by "offset"') == [
        (0, 1, True),
        (1, None, True),
        (2, None, False),
        (3, None, False),
        (4, 5, True),
    ]
    assert scene.digest() == digest
    after = scene.opened().topic("t").partition(0).snapshot.segments
    kept = ("base_offset", "last_offset", "records", "modification_time", "nulls", "raw_bytes", "horizons")
    for name in (*kept, "min_timestamp", "max_timestamp"):
        assert [getattr(item, name) for item in after] == [getattr(item, name) for item in before]
    assert run(scene.opened(), jobs=RETYPE) == []
    scene.check()


def test_rows_that_did_not_fit_are_mended_once_the_declaration_is(scene: Scene) -> None:
    scene.declare("wrong boolean FROM '/n', s string")
    scene.append('{"n":1,"s":"a"}', '{"n":2,"s":"b"}')
    assert scene.rows("select count(s), count(value_error) from t") == [(0, 2)]
    scene.declare("n bigint, s string")
    run(scene.opened(), jobs=RETYPE)
    assert scene.rows("select n, s, wrong, value_error from t order by n") == [
        (1, "a", None, None),
        (2, "b", None, None),
    ]
    scene.check()


def test_a_dropped_column_is_no_longer_filled_in_what_is_retyped(scene: Scene) -> None:
    scene.declare(NS)
    scene.append('{"n":1,"s":"a"}')
    scene.declare("s string")
    assert scene.rows("select n, s from t") == [(1, "a")]
    run(scene.opened(), jobs=RETYPE)
    assert scene.rows("select n, s from t") == [(None, "a")]
    scene.check()


def test_a_run_retypes_only_when_it_is_asked_to(scene: Scene) -> None:
    scene.append('{"n":1}')
    scene.declare(N)
    assert run(scene.opened(), jobs=jobs_named([])) == []
    assert scene.ids() == [""]


def test_the_commit_says_that_rows_have_changed_in_both_tables(scene: Scene) -> None:
    """A Delta stream that passes over changes passes over it, and others stop: neither has a record twice."""
    scene.append('{"n":1}', '{"n":2}')
    scene.declare(N)
    run(scene.opened(), jobs=RETYPE)  # which folds its commit, as the leader has nothing to do
    opened = scene.opened()
    topic = opened.topic("t")
    for table in (topic.partition(0).table, topic.table()):
        newest = read_commit(opened.store, table.directory, table.snapshot.version)
        assert newest is not None
        assert all(add.dataChange for add in newest.adds)
        assert all(remove.dataChange for remove in newest.removes)
        assert (len(newest.adds), len(newest.removes)) == (2, 2)


def merged(scene: Scene) -> None:
    assert errors(run(scene.opened(), jobs=jobs_named([segment_compaction.NAME]))) == {}


def altered(scene: Scene) -> None:
    scene.declare(NS)


def appended(scene: Scene) -> None:
    scene.append('{"n":9,"s":"z"}')


@pytest.mark.parametrize("meanwhile", [merged, altered, appended])
def test_who_comes_between_the_plan_and_the_commit_loses_nothing(
    scene: Scene, meanwhile: Callable[[Scene], None]
) -> None:
    scene.append(*(f'{{"n":{n},"s":"a"}}' for n in range(8)))
    scene.declare(N)
    outcomes = run(scene.opened(), jobs=[interrupted(RETYPE[0], lambda: meanwhile(scene))])
    assert [o.error for o in outcomes] == ([OVERTAKEN] if meanwhile is merged else [None])
    scene.check()
    run(scene.opened(), jobs=RETYPE)
    assert {*scene.ids()} == {parse(NS if meanwhile is altered else N).id}
    total = 8 if meanwhile is not appended else 9
    counts = 'count(n), count(distinct "offset"), count(value_error)'
    assert scene.rows(f"select {counts} from t") == [(total, total, 0)]
    scene.check()


def test_a_merge_after_it_joins_what_had_other_columns(scene: Scene) -> None:
    scene.append(*['{"n":1}'] * 4)
    scene.declare(N)
    scene.append(*['{"n":2}'] * 4)
    run(scene.opened(), jobs=jobs_named([retype.NAME, segment_compaction.NAME]))
    assert scene.ids() == [parse(N).id]
    assert scene.rows("select sum(n) from t") == [(12,)]
    scene.check()


def test_a_partition_that_was_not_widened_is_widened_first(scene: Scene) -> None:
    """An alteration that was killed after its record in the metadata log, before it came to the table."""
    scene.append('{"n":1}')
    known = scene.cluster.metadata_log.topic("t")
    assert known is not None
    scene.cluster.metadata_log.change_topic(
        "t", lambda _: replace(known, configs={"value.columns": N}, columns=N)
    )
    assert scene.partition.snapshot.declared.columns == ()
    run(scene.opened(), jobs=RETYPE)
    assert scene.rows("select n from t") == [(1,)]
    scene.check()


def test_a_compacted_log_keeps_its_tombstones_and_their_horizons(tmp_path: Path) -> None:
    scene = Scene(tmp_path, cleanup_policy="compact", min_cleanable_dirty_ratio="0")
    put(scene.partition, (b"a", b'{"n":1}'), (b"b", b'{"n":2}'))
    put(scene.partition, (b"a", None), (b"c", b'{"n":3}'))
    assert errors(run(scene.opened(), jobs=jobs_named([key_compaction.NAME]))) == {}
    scene.declare(N)
    before = scene.opened().topic("t").partition(0).snapshot
    assert errors(run(scene.opened(), jobs=RETYPE)) == {}
    after = scene.opened().topic("t").partition(0).snapshot
    assert [item.horizons for item in after.segments] == [item.horizons for item in before.segments] != [()]
    assert after.cleaned == before.cleaned > 0
    assert scene.rows('select "offset", n from t order by 1') == [(1, 2), (2, None), (3, 3)]
    scene.check()


def test_records_in_the_remote_root_get_their_columns_there(tmp_path: Path) -> None:
    scene = Scene(tmp_path, **TIERED)
    scene.append('{"n":1}', '{"n":2}', '{"n":3}')
    scene.clock.advance(1_000)
    moving = jobs_named([tiering.NAME])
    assert errors(run(scene.opened(), jobs=moving)) == {}
    assert len(scene.ids()) == 1
    scene.declare(N)
    assert errors(run(scene.opened(), jobs=RETYPE)) == {}
    assert scene.rows("select sum(n), count(*) from t") == [(6, 3)]
    assert run(scene.opened(), jobs=RETYPE) == []
    scene.check()


def tiered(directory: Path) -> Scene:
    """Records in the remote root, one of which does not fit, and local ones; the columns are declared after
    both.
    """
    scene = Scene(directory, **TIERED)
    scene.append('{"n":1}', '{"n":"x"}', '{"n":3}')
    scene.clock.advance(1_000)
    assert errors(run(scene.opened(), jobs=jobs_named([tiering.NAME]))) == {}
    scene.append('{"n":4}', '{"n":5}')
    scene.declare(N)
    return scene


ALL_ROWS = [(0, 1, False), (1, None, True), (2, 3, False), (3, 4, False), (4, 5, False)]


def retyped(scene: Scene) -> None:
    """All rows have their columns, here and in the remote root, and nothing is left to do."""
    assert scene.rows('select "offset", n, value_error is not null from t order by 1') == ALL_ROWS
    assert run(scene.opened(), jobs=RETYPE) == []
    scene.check()


@pytest.mark.parametrize("side", ["away", pytest.param("here", marks=pytest.mark.torture)])
@pytest.mark.parametrize(
    "failure", [crash_before, pytest.param(crash_after, marks=pytest.mark.torture)], ids=["before", "after"]
)
def test_a_retype_of_both_roots_that_is_killed_at_any_write_is_completed_by_the_next(
    tmp_path: Path, side: str, failure: Failure
) -> None:
    for number in range(1, 1_000):
        scene = tiered(tmp_path / f"{number}")
        digest = scene.digest()
        with killed(tmp_path / f"{number}" / side, number, failure) as kill, suppress(Crash):
            run(scene.opened(), jobs=RETYPE)
        assert scene.digest() == digest
        scene.check()
        assert errors(run(scene.opened(), jobs=RETYPE)) == {}
        retyped(scene)
        assert scene.digest() == digest
        if not kill.dead:
            break
    assert number > 2


def test_two_that_retype_both_roots_at_once_double_nothing(tmp_path: Path) -> None:
    scene = tiered(tmp_path)
    digest, together = scene.digest(), threading.Barrier(2)

    def schedule(_: int) -> set[str]:
        opened = scene.opened()
        together.wait()
        return {*errors(run(opened, jobs=RETYPE)).values()}

    with ThreadPoolExecutor(2) as pool:
        said = [*pool.map(schedule, range(2))]
    assert set().union(*said) <= {OVERTAKEN}
    assert errors(run(scene.opened(), jobs=RETYPE)) == {}
    retyped(scene)
    assert scene.digest() == digest


INVALID_EVERY, BATCH = 100, 5_000


@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.torture)])
def test_of_many_records_with_some_that_do_not_fit_all_are_there_in_order(tmp_path: Path, count: int) -> None:
    """One record in a hundred does not fit the first declaration; all fit the second."""
    scene = Scene(tmp_path, value_columns="n bigint, late boolean")
    for begin in range(0, count, BATCH):
        texts = (
            b'{"n":%d,"late":%s}' % (number, b"1" if number % INVALID_EVERY == 7 else b"true")
            for number in range(begin, begin + BATCH)
        )
        append(scene.partition, *texts, at_us=scene.clock.now_us())
    counts = "count(*), count(n), count(value_error)"
    digest, wrong = scene.digest(), count // INVALID_EVERY
    assert scene.rows(f"select {counts} from t") == [(count, count - wrong, wrong)]
    assert scene.rows('select count(*) from t where n <> "offset"') == [(0,)]
    scene.declare("n bigint")
    outcomes = run(scene.opened(), jobs=RETYPE)
    assert (errors(outcomes), sum(outcome.records for outcome in outcomes)) == ({}, count)
    assert scene.rows(f"select {counts} from t") == [(count, count, 0)]
    assert scene.rows('select count(*) from t where n <> "offset"') == [(0,)]
    assert scene.digest() == digest
    scene.check()
