"""The requirements of a log on a store, tried out: above all that one of many puts of one name succeeds.

Every requirement is tried with objects of its own below one directory, which is gone in the end.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from log_tables.clock import Clock
from log_tables.errors import AlreadyExists, LakelogError, ObjectMissing, OutcomeUnknown, StoreUnavailable
from log_tables.store.store import Store

RACERS = 16
"""Puts of one name at once, each through a connection of its own."""

RACES = 20
"""Names that they race for: a store that decides too late shows it in most of them."""

RACED_BYTES = 16 * 1024
"""Of each of these puts: about a small commit."""

LISTED = 12
"""Objects that are put and listed, one after the other."""

_READ_AT_ONCE = (
    "a gateway reads what it has just written: use a store whose reads are consistent, and no cache before it"
)
_CONDITIONAL = (
    "every append relies on this: two gateways would overwrite each other's commits, and acknowledged "
    "records would be lost. Use a store that has conditional puts (If-None-Match: *), and let no proxy "
    "before it drop that header; for a directory, a file system that has hard links"
)
_LISTED = "a log is found by its list: use a store whose lists are consistent, without a cache before it"
_RANGES = "segments are read in parts: use a store, and a proxy before it, that answers requests with a Range"
_DELETED = "retention deletes, and a deleted object must not come back: let this credential delete objects"
_BOTH = "a commit names a segment that must be durable: use a file system that has fsync, also of directories"


_FAILED = (StoreUnavailable, OutcomeUnknown)


class RequirementResult(NamedTuple):
    """How one requirement came out: `problem` is empty if the store meets it."""

    requirement: str
    problem: str = ""
    advice: str = ""


class _Requirement(NamedTuple):
    """`attempt` returns what is wrong, if anything."""

    text: str
    attempt: Callable[["_Objects"], str]
    advice: str


@dataclass(slots=True)
class _Objects:
    """The objects of one check: those that may be there are known, whatever a list says."""

    store: Store
    connect: Callable[[], Store]
    directory: str
    made: list[str] = field(default_factory=list)

    def name(self, *parts: str) -> str:
        """The path of another object."""
        path = "/".join((self.directory, *parts))
        self.made.append(path)
        return path

    def delete_all(self) -> None:
        with suppress(StoreUnavailable):  # a list finds nothing else than what is known
            self.made += [found.path for found in self.store.list(self.directory)]
        self.store.delete_objects(sorted({*self.made}))


def check_store(
    connect: Callable[[], Store], clock: Clock, is_over: Callable[[], bool] = lambda: False
) -> Iterator[RequirementResult]:
    """Try each requirement at the store that `connect` opens, which is called for each connection.

    It ends early when `is_over` says so. Raises StoreUnavailable for a store that cannot be used at all, or
    in which something is left.
    """
    store = connect()
    objects = _Objects(store, connect, f"store-check-{clock.random_hex(12)}")
    path = _put(objects)
    try:
        with suppress(ObjectMissing):  # which is a finding, below
            store.get(path)
        for requirement in _REQUIREMENTS:
            if is_over():
                return
            yield _tried(requirement, objects)
    finally:
        try:
            objects.delete_all()
        except _FAILED as error:
            raise StoreUnavailable(
                f"objects below {objects.directory} may be left, delete them: {error.message}"
            ) from None


def _put(objects: _Objects) -> str:
    """One put; the path of the object. Raises StoreUnavailable."""
    path = objects.name("reached")
    try:
        objects.store.put_new(path, b"reached")
    except StoreUnavailable:
        with suppress(*_FAILED):
            objects.delete_all()
        raise
    return path


def _tried(requirement: _Requirement, objects: _Objects) -> RequirementResult:
    try:
        problem = requirement.attempt(objects)
    except LakelogError as error:
        problem = error.message
    return RequirementResult(requirement.text, problem, requirement.advice if problem else "")


def _reads_what_was_put(objects: _Objects) -> str:
    store, path = objects.store, objects.name("read")
    for number in range(3):
        data = b"%d" % number * (number + 1) * 1_000
        store.put(path, data)
        if store.get(path) != data:
            return f"put {number + 1} of a name was acknowledged, and a get had something else"
        if (size := store.head(path).size) != len(data):
            return f"an object of {len(data)} bytes has {size} by its head"
    return ""


def _refuses_a_second_put(objects: _Objects) -> str:
    store = objects.store
    by_condition, by_put = objects.name("second", "conditional"), objects.name("second", "plain")
    store.put_if_absent(by_condition, b"first")
    store.put(by_put, b"first")
    for path in (by_condition, by_put):
        try:
            store.put_if_absent(path, b"second")
        except AlreadyExists:
            if store.get(path) != b"first":
                return "a conditional put of a name that exists was refused, and replaced the object"
            continue
        return "a conditional put of a name that exists was acknowledged: the store ignores If-None-Match"
    return ""


def _lets_one_win(objects: _Objects) -> str:
    stores = [objects.connect() for _ in range(RACERS)]
    won: list[tuple[str, int]] = []
    last = ""
    for race in range(RACES):
        path = objects.name("race", f"{race}")
        outcomes = _race(stores, path)
        winners = [number for number, outcome in enumerate(outcomes) if outcome is None]
        if len(winners) > 1:
            return f"{len(winners)} of {RACERS} conditional puts of one name at once were acknowledged"
        won += [(path, number) for number in winners]
        last = next((str(each) for each in outcomes if isinstance(each, _FAILED)), last)
    for path, winner in won:
        if objects.store.get(path) != _raced(winner):
            return (
                "one of many conditional puts of one name at once was acknowledged, and another one is read"
            )
    if not won:
        return (
            f"none of {RACERS} conditional puts of one name at once was acknowledged, {RACES} times: {last}"
        )
    return ""


def _race(stores: Sequence[Store], path: str) -> list[LakelogError | None]:
    """The outcome of a put by each of `stores`, at once. A store may refuse all of them, as S3 does (409)."""
    barrier = threading.Barrier(len(stores))
    outcomes: list[LakelogError | None] = [None] * len(stores)

    def put(number: int) -> None:
        barrier.wait()
        try:
            stores[number].put_if_absent(path, _raced(number))
        except (AlreadyExists, *_FAILED) as error:
            outcomes[number] = error

    racers = [threading.Thread(target=put, args=(each,), daemon=True) for each in range(len(stores))]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    return outcomes


def _raced(number: int) -> bytes:
    return b"%04d" % number * (RACED_BYTES // 4)


def _lists_what_was_put(objects: _Objects) -> str:
    store, base = objects.store, f"{objects.directory}/list"
    for number in range(LISTED):
        store.put_if_absent(objects.name("list", f"{number % 2}", f"{number:03d}"), b"listed")
        want = sorted(f"{base}/{each % 2}/{each:03d}" for each in range(number + 1))
        found = [each.path for each in store.list(base)]
        if found != want:
            return f"{len(want)} objects were put, and a list has {len(found)} of them, or in another order"
    if [each.path for each in store.list(base, start_after=want[3])] != want[4:]:
        return "a list that begins after a name has others than those after it"
    if store.list_dirs(base) != [f"{base}/0", f"{base}/1"]:
        return "a list of directories has others than those of the objects that were put"
    return ""


def _reads_ranges(objects: _Objects) -> str:
    store, path = objects.store, objects.name("range")
    data = bytes(range(256)) * 16
    store.put(path, data)
    for start, length in ((0, 1), (1_000, 300), (len(data) - 8, 8), (len(data) - 8, 800)):
        if store.get_range(path, start, length) != data[start : start + length]:
            return f"a get of {length} bytes from byte {start} of {len(data)} had something else"
    return ""


def _forgets_what_is_deleted(objects: _Objects) -> str:
    store = objects.store
    paths = [objects.name("delete", f"{number}") for number in range(3)]
    for path in paths:
        store.put_if_absent(path, b"first")
    store.delete(paths[0])
    store.delete_objects(paths[1:])
    for path in paths:
        try:
            store.get(path)
        except ObjectMissing:
            continue
        return "a deleted object is still read"
    if any(True for _ in store.list(f"{objects.directory}/delete")):
        return "a deleted object is still in a list"
    store.put_if_absent(paths[0], b"second")
    return "" if store.get(paths[0]) == b"second" else "after a delete and a put a get had something else"


def _keeps_two_together(objects: _Objects) -> str:
    store = objects.store
    segment, commit = objects.name("both", "data", "segment"), objects.name("both", "log", "commit")
    with store.put_new_before(segment, b"segment") as put_if_absent:
        put_if_absent(commit, b"commit")
    for path in (segment, commit):
        store.make_durable(path.rpartition("/")[0])
    read = (store.get(segment), store.get(commit))
    return "" if read == (b"segment", b"commit") else "an object and the one that names it had something else"


_REQUIREMENTS = (
    _Requirement("what was put is read", _reads_what_was_put, _READ_AT_ONCE),
    _Requirement("a put of a name that exists is refused", _refuses_a_second_put, _CONDITIONAL),
    _Requirement("of many puts of one name at once one succeeds", _lets_one_win, _CONDITIONAL),
    _Requirement("what was put is listed, in order", _lists_what_was_put, _LISTED),
    _Requirement("ranges are read", _reads_ranges, _RANGES),
    _Requirement("what was deleted is gone", _forgets_what_is_deleted, _DELETED),
    _Requirement("a segment and its commit are durable", _keeps_two_together, _BOTH),
)
