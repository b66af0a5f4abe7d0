"""The requirements of a log on a store: each way of not meeting it is found."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from log_tables.clock import SystemClock
from log_tables.errors import AlreadyExists, PutRefused, StoreUnavailable
from log_tables.store.objects import Data, ObjectInfo
from log_tables.store.requirements import check_store
from log_tables.store.store import Store, open_store

READ, REFUSED, RACE, LISTED, RANGES, DELETED, BOTH = (
    "what was put is read",
    "a put of a name that exists is refused",
    "of many puts of one name at once one succeeds",
    "what was put is listed, in order",
    "ranges are read",
    "what was deleted is gone",
    "a segment and its commit are durable",
)


class Broken:
    """A real directory that does one thing as it should not."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class Cached(Broken):
    """A cache before it has what it first read."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._read: dict[str, bytes] = {}

    def get(self, path: str) -> bytes:
        return self._read.setdefault(path, self.store.get(path))


class Overwriting(Broken):
    """A store that refuses a conditional put of an existing name, and overwrites the object."""

    def put_if_absent(self, path: str, data: Data) -> None:
        try:
            self.store.put_if_absent(path, data)
        except AlreadyExists:
            self.store.put(path, data)
            raise


class Unconditional(Broken):
    """A store that ignores the condition of a put."""

    def put_if_absent(self, path: str, data: Data) -> None:
        self.store.put(path, data)


class Refusing(Broken):
    """A file system without hard links."""

    def put_if_absent(self, path: str, _: Data) -> None:
        raise PutRefused(f"the store refused {path}: Operation not permitted")


class Lying(Broken):
    """Each racer is told that another one has won."""

    def put_if_absent(self, path: str, data: Data) -> None:
        if "/race/" in path:
            raise AlreadyExists(f"there is an object {path} already")
        self.store.put_if_absent(path, data)


class Forgetful(Broken):
    """The object of the winner of a race is replaced later."""

    def put_if_absent(self, path: str, data: Data) -> None:
        try:
            self.store.put_if_absent(path, data)
        except AlreadyExists:
            if "/race/" in path:
                self.store.put(path, data)
            raise


class Late(Broken):
    """A store whose lists lack the last object."""

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        return iter([*self.store.list(prefix, start_after)][:-1])


class Unordered(Broken):
    """A store that lists in reverse order."""

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        return iter([*self.store.list(prefix, start_after)][::-1])


class FromTheStart(Broken):
    """A store that ignores where a list is to start."""

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        return self.store.list(prefix, start_after[:0])


class Whole(Broken):
    """A store that ignores ranges."""

    def get_range(self, path: str, *_: int) -> bytes:
        return self.store.get(path)


class Keeping(Broken):
    """A deletion is acknowledged, and not done until the last one."""

    def delete(self, path: str) -> None:
        """Nothing."""

    def delete_objects(self, paths: Sequence[str]) -> None:
        if len(paths) > 10:
            self.store.delete_objects(paths)


class Torn(Broken):
    """A store that loses the content of the first of two objects that are put together."""

    def put_new_before(self, path: str, _: Data) -> Any:
        return self.store.put_new_before(path, b"")


@pytest.mark.parametrize(
    ("broken", "failed"),
    [
        (Cached, {READ}),
        (Overwriting, {REFUSED, RACE}),
        (Unconditional, {REFUSED, RACE}),
        (Refusing, {REFUSED, RACE, LISTED, DELETED}),
        (Lying, {RACE}),
        (Forgetful, {RACE}),
        (Late, {LISTED}),
        (Unordered, {LISTED}),
        (FromTheStart, {LISTED}),
        (Whole, {RANGES}),
        (Keeping, {DELETED}),
        (Torn, {BOTH}),
    ],
)
def test_what_a_store_does_not_do_is_found(
    tmp_path: Path, broken: Callable[[Store], Store], failed: set[str]
) -> None:
    results = [*check_store(lambda: broken(open_store(tmp_path)), SystemClock())]
    assert {each.requirement for each in results if each.problem} == failed
    assert all(bool(each.problem) == bool(each.advice) for each in results)
    assert [*tmp_path.rglob("*")] == []


def test_a_check_that_is_over_deletes_what_it_made(tmp_path: Path) -> None:
    results = iter([False, False, True])
    found = [*check_store(lambda: open_store(tmp_path), SystemClock(), lambda: next(results))]
    assert [each.requirement for each in found] == [READ, REFUSED]
    assert [*tmp_path.rglob("*")] == []


def test_a_store_that_takes_objects_and_gives_none_back_is_told_of_what_is_left(tmp_path: Path) -> None:
    class Closed(Broken):
        def get(self, path: str) -> bytes:
            raise StoreUnavailable(f"no right to get {path}")

        def delete_objects(self, paths: Sequence[str]) -> None:
            raise StoreUnavailable(f"no right to delete {len(paths)} objects")

    with pytest.raises(StoreUnavailable, match=r"objects below store-check-.* may be left"):
        [*check_store(lambda: Closed(open_store(tmp_path)), SystemClock())]
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["reached"]


def test_an_answer_that_was_lost_is_no_second_winner(tmp_path: Path) -> None:
    """Each put of a race is done once more, as by a client that has not heard of it."""

    class Repeated(Broken):
        def put_if_absent(self, path: str, data: Data) -> None:
            if "/race/1" in path:
                with suppress(AlreadyExists):
                    self.store.put_if_absent(path, data)
            self.store.put_if_absent(path, data)

    results = [*check_store(lambda: Repeated(open_store(tmp_path)), SystemClock())]
    assert [each for each in results if each.problem] == []
