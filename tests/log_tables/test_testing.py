"""The stores that fail on purpose do so when told to, and as told."""

import pytest

from log_tables.errors import AlreadyExists, ObjectMissing, OutcomeUnknown, PutRefused, StoreUnavailable
from log_tables.store.store import Store, open_store
from log_tables.testing import (
    Call,
    ClockedStore,
    Crash,
    Failure,
    Fault,
    FaultyStore,
    ManualClock,
    answer_lost,
    crash_after,
    crash_before,
    nothing_landed,
    refused,
    repeated,
    unavailable,
)


@pytest.fixture
def inner() -> Store:
    return open_store("memory://")


@pytest.mark.parametrize(
    ("failure", "raised", "done"),
    [
        (unavailable, StoreUnavailable, False),
        (refused, PutRefused, False),
        (answer_lost, OutcomeUnknown, True),
        (repeated, AlreadyExists, True),
        (nothing_landed, AlreadyExists, False),
        (crash_before, Crash, False),
        (crash_after, Crash, True),
    ],
)
@pytest.mark.parametrize("operation", ["put", "put_if_absent", "put_new"])
def test_each_failure_says_what_it_says_and_does_what_it_does(
    inner: Store, operation: str, failure: Failure, raised: type[BaseException], done: bool
) -> None:
    store = FaultyStore(inner, [Fault(1, failure)])
    if operation == "put_new" and raised is OutcomeUnknown:
        raised = StoreUnavailable  # nobody else knows the name
    with pytest.raises(raised):
        getattr(store, operation)("a", b"x")
    assert [item.path for item in inner.list("")] == (["a"] if done else [])


def test_only_the_nth_of_the_chosen_calls_fails(inner: Store) -> None:
    store = FaultyStore(inner, [Fault(2, unavailable, {"put"}, path="_log/")])
    store.put("t/_log/0", b"x")
    store.put("t/data", b"x")
    store.put_if_absent("t/_log/1", b"x")
    with pytest.raises(StoreUnavailable):
        store.put("t/_log/2", b"x")
    store.put("t/_log/2", b"x")
    assert store.writes() == 5
    assert store.calls[-1] == Call("put", "t/_log/2")


def test_several_faults_count_the_same_calls(inner: Store) -> None:
    store = FaultyStore(inner, [Fault(1, unavailable), Fault(2, refused), Fault(1, unavailable, {"get"})])
    with pytest.raises(StoreUnavailable):
        store.put("a", b"x")
    with pytest.raises(PutRefused):
        store.put("a", b"x")
    with pytest.raises(StoreUnavailable):
        store.get("a")
    with pytest.raises(ObjectMissing):
        store.get("a")


def test_after_a_crash_nothing_is_done_any_more(inner: Store) -> None:
    store = FaultyStore(inner, [Fault(1, crash_after, {"delete"})])
    store.put("a", b"x")
    with pytest.raises(Crash):
        store.delete("b")
    for ask in (lambda: store.put("c", b""), lambda: store.get("a"), store.now_ms):
        with pytest.raises(Crash):
            ask()
    assert [item.path for item in inner.list("")] == ["a"]


def test_a_failure_of_the_tests_own_may_do_something_in_between(inner: Store) -> None:
    def another_is_first(perform: object) -> object:
        assert callable(perform)
        inner.put("a", b"another")
        return perform()

    store = FaultyStore(inner, [Fault(1, another_is_first)])
    with pytest.raises(AlreadyExists):
        store.put_if_absent("a", b"mine")
    assert store.get("a") == b"another"


def test_a_clocked_store_is_on_the_clock_of_the_test(inner: Store) -> None:
    clock = ManualClock(now_ms=1_000)
    store = ClockedStore(inner, clock)
    store.put("a", b"x")
    clock.advance(50)
    store.put_if_absent("b", b"x")
    assert [item.modified_ms for item in store.list("")] == [1_000, 1_050]
    assert store.head("b").modified_ms == store.now_ms() == 1_050


def test_the_stores_for_tests_pass_everything_else_on(inner: Store) -> None:
    store: Store = FaultyStore(ClockedStore(inner, ManualClock()))
    store.put("t/0/a", b"0123")
    assert store.url == "memory://"
    assert store.get_range("t/0/a", 1, 2) == b"12"
    assert store.list_dirs("t") == ["t/0"]
    assert store.head("t/0/a").size == 4
    assert store.remove_temporaries(0) == 0
    assert [item.path for item in store.list("t", start_after="t/0/a")] == []
