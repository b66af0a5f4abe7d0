"""A standby is whole whenever it says so, though its root goes on between any two looks at it."""

import pytest

from log_tables.layout import STANDBY
from log_tables.root.fsck import check
from log_tables.store.store import Store, open_store
from log_tables.testing import Fault, FaultyStore, answer_lost, refused, unavailable
from tests.kit.standby import Watched, follow, has, logs, newest_versions
from tests.kit.standby_workload import Workload
from tests.kit.unfolding import QuickClock, UnfoldingStore, Written

STEPS = 15


@pytest.fixture(scope="module")
def workload(request: pytest.FixtureRequest) -> Workload:
    made = Workload(keeps=request.param)
    made.work(STEPS)
    assert check(made.store).problems == []
    return made


def replayed(written: list[Written], url: str = "memory://original") -> Store:
    store = open_store(url)
    for each in written:
        each.repeat(store)
    return store


def unfold(source: UnfoldingStore, target: Store) -> None:
    """Follow until all has happened, and has come over."""

    def is_there() -> bool:
        source.go_on()
        return source.is_at_end and has(target, newest_versions(source.inner))

    follow(source, target, is_there, QuickClock())


def check_copy(source: Store, target: Store) -> None:
    assert check(target).problems == []
    original, copied = logs(source), logs(target)
    assert {path: original[path] for path in copied if path in original} == {
        path: data for path, data in copied.items() if path in original
    }
    assert newest_versions(target) == newest_versions(source)


@pytest.mark.parametrize(("workload", "least"), [(False, 20), (True, 40)], indirect=["workload"])
@pytest.mark.parametrize("pace", [0.5, 0.9])
def test_a_level_standby_stays_whole_while_the_original_goes_on(
    workload: Workload, least: int, seed: int, pace: float
) -> None:
    """While staged files of which it has no copy are gone it is not level, and is so once more in the end."""
    original, target = replayed(workload.written[: workload.first]), open_store("memory://standby")
    follow(original, target, clock=QuickClock())
    source = UnfoldingStore(original, workload.written[workload.first :], seed, pace)
    watched = Watched(target)
    unfold(source, watched)
    assert watched.problems == []
    assert watched.checked > least
    check_copy(original, target)


@pytest.mark.parametrize("workload", [False], indirect=True)
def test_nothing_is_torn_while_the_mark_cannot_be_put(workload: Workload, seed: int) -> None:
    original, target = replayed(workload.written[: workload.first]), open_store("memory://standby")
    follow(original, target, clock=QuickClock())
    source = UnfoldingStore(original, workload.written[workload.first :], seed, 0.9)
    failures = (unavailable, answer_lost, refused)
    faults = [Fault(number, failures[number % 3], {"put"}, STANDBY) for number in (1, 2, 4, 5, 7)]
    watched = Watched(FaultyStore(target, faults))
    unfold(source, watched)
    assert watched.problems == []
    check_copy(original, target)


@pytest.mark.parametrize("workload", [False], indirect=True)
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_a_standby_begins_while_the_original_goes_on(workload: Workload, seed: int, share: float) -> None:
    done = int(share * len(workload.written))
    source = UnfoldingStore(replayed(workload.written[:done]), workload.written[done:], seed, 0.6)
    watched = Watched(open_store("memory://standby"))
    unfold(source, watched)
    assert watched.problems == []
    check_copy(source.inner, watched.inner)
