"""The simulated bucket answers as obstore does, and has what S3 adds: pages, and requests that go astray."""

from collections.abc import Callable, Iterator

import pytest

from log_tables.errors import AlreadyExists, LakelogError, OutcomeUnknown
from log_tables.store.bucket import ObjectStore
from log_tables.store.objects import ObjectInfo
from tests.simulation.bucket import Bucket, served
from tests.simulation.chance import Chance
from tests.simulation.scheduler import Deadlock, Scheduler
from tests.simulation.threads import installed

NAMES = ("a", "a/b", "a/b/c", "ab/c", "b/a", "b/a-", "b/a/1", "b/a/2", "b.c/d")
PUTS = 30

DIRECTORIES = ("", "a", "a/b", "b/", "b/a", "none")


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    made = Scheduler(0)
    with installed(made):
        yield made
        made.close()


@pytest.fixture
def bucket(scheduler: Scheduler) -> Iterator[Bucket]:
    made = Bucket(scheduler, page=2)
    with served(made):
        yield made


def opened() -> ObjectStore:
    return ObjectStore("s3://simulated/root", {})


def test_any_calls_have_the_outcomes_that_they_have_in_obstore(scheduler: Scheduler) -> None:
    chance = Chance(0)
    calls = [_drawn(chance, number) for number in range(2_000)]
    with served(Bucket(scheduler, page=2)):
        store = opened()
        simulated = [_outcome(call, store) for call in calls]
    store = ObjectStore("memory://", {})
    assert simulated == [_outcome(call, store) for call in calls]


def _drawn(chance: Chance, number: int) -> Callable[[ObjectStore], object]:
    name, other, directory = chance.choice(NAMES), chance.choice(NAMES), chance.choice(DIRECTORIES)
    start, length, data = chance.randrange(9), chance.randrange(1, 9), b"%d" % number
    return chance.choice(
        (
            lambda store: store.put(name, data),
            lambda store: store.put_if_absent(name, data),
            lambda store: store.get(name),
            lambda store: store.get_range(name, start, length),
            lambda store: store.head(name).size,
            lambda store: store.delete(name),
            lambda store: store.delete_objects([name, other]),
            lambda store: [(item.path, item.size) for item in store.list(directory)],
            lambda store: [item.path for item in store.list(directory, start_after=name)],
            lambda store: store.list_dirs(directory),
        )
    )


def _outcome(call: Callable[[ObjectStore], object], store: ObjectStore) -> object:
    try:
        return call(store)
    except LakelogError as error:
        return type(error)


def test_a_write_lands_after_whoever_sent_it_has_given_up_or_died(
    scheduler: Scheduler, bucket: Bucket
) -> None:
    bucket.weather.late = 1.0
    process = scheduler.process("gateway")
    there: list[ObjectInfo] = []

    def put() -> None:
        for number in range(PUTS):
            with pytest.raises(OutcomeUnknown):
                opened().put_if_absent(f"{number}", b"")
        there.extend(opened().list(""))
        process.kill()

    process.start_thread("main", put)
    scheduler.run(lambda: process.dead)
    assert len(there) < PUTS
    with pytest.raises(Deadlock):
        scheduler.run(lambda: False)
    assert len([*opened().list("")]) == PUTS


def test_a_conditional_put_may_hear_that_it_is_there_itself_or_nothing(
    scheduler: Scheduler, bucket: Bucket
) -> None:
    bucket.weather.wrong = 1.0
    process = scheduler.process("gateway")
    there: list[ObjectInfo] = []

    def put() -> None:
        for number in range(PUTS):
            with pytest.raises(AlreadyExists):
                opened().put_if_absent(f"{number}", b"")
        there.extend(opened().list(""))
        process.kill()

    process.start_thread("main", put)
    scheduler.run(lambda: process.dead)
    assert 0 < len(there) < PUTS
