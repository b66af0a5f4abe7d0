"""For tests of programs that use lakelog: a clock that is moved by hand, and stores that fail on purpose.

    store = FaultyStore(open_store(directory), [Fault(3, answer_lost)])

makes the third write happen and then look as if it had not. Nothing here is random: the same calls meet the
same faults. Any of it wraps any store, and one wraps another.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from log_tables.clock import Clock, ManualClock
from log_tables.errors import AlreadyExists, OutcomeUnknown, PutRefused, StoreUnavailable
from log_tables.store.store import ObjectInfo, Store
from log_tables.store.wrapper import StoreWrapper

__all__ = [
    "WRITES",
    "Call",
    "ClockedStore",
    "Crash",
    "Failure",
    "Fault",
    "FaultyStore",
    "HoldingStore",
    "ManualClock",
    "answer_lost",
    "crash_after",
    "crash_before",
    "nothing_landed",
    "refused",
    "repeated",
    "unavailable",
]

T = TypeVar("T")

WRITES = frozenset({"put", "put_if_absent", "put_new", "delete"})
"""The operations that write: a process may die at each of them."""


_KNOWN = WRITES - {"put_new"}
"""Those of a name that others know: without an answer their outcome is unknown."""


class Crash(BaseException):
    """The process died here: no handler of ordinary errors catches it."""


Failure = Callable[[Callable[[], object]], object]
"""A function that is called instead of an operation, which it may perform: `failure(perform)`."""


def unavailable(perform: Callable[[], object]) -> object:  # noqa: ARG001 (it is not performed)
    """The request never reached the store."""
    raise StoreUnavailable("the store did not answer, on purpose; repeat the request")


def refused(perform: Callable[[], object]) -> object:  # noqa: ARG001
    """The store certainly wrote nothing, as on a full disk."""
    raise PutRefused("the store refused, on purpose; free room")


def answer_lost(perform: Callable[[], object]) -> object:
    """The operation happened, and its answer was lost."""
    perform()
    raise OutcomeUnknown("the answer of the store was lost, on purpose; look whether it was done")


def repeated(perform: Callable[[], object]) -> object:
    """The operation happened, the client repeated it, and the second answer is that the object exists."""
    perform()
    raise AlreadyExists("the store repeated a put that had been done, on purpose; read it back")


def nothing_landed(perform: Callable[[], object]) -> object:  # noqa: ARG001
    """The store says that the object exists, and there is none: S3's 409 to racers that all failed."""
    raise AlreadyExists("the store says that the object exists, on purpose; read it back")


def crash_before(perform: Callable[[], object]) -> object:  # noqa: ARG001
    """The process dies before the operation."""
    raise Crash


def crash_after(perform: Callable[[], object]) -> object:
    """The process dies after the operation, before it hears of it."""
    perform()
    raise Crash


@dataclass(frozen=True, slots=True)
class Fault:
    """The `nth` call (from 1) of one of `operations` on a path that contains `path` ends in `failure`."""

    nth: int
    failure: Failure
    operations: Collection[str] = WRITES
    path: str = ""


class Call(NamedTuple):
    """One call of a store: the name of its method and its first argument."""

    operation: str
    path: str


class FaultyStore(StoreWrapper):
    """`inner` with `faults`, each met once; others may be added. After a Crash nothing is done any more, as
    in a dead process: the next life opens `inner`. `calls` holds every call so far, in order. Thread-safe.
    """

    def __init__(self, inner: Store, faults: Sequence[Fault] = ()) -> None:
        super().__init__(inner)
        self.calls: list[Call] = []
        self.dead = False
        self.faults = [*faults]
        self._lock = threading.Lock()

    def writes(self) -> int:
        """How many calls so far were of WRITES: the places at which to let it fail in the next run."""
        return sum(call.operation in WRITES for call in self.calls)

    def _call(self, operation: str, path: str, perform: Callable[[], T]) -> T:
        with self._lock:
            if self.dead:
                raise Crash
            self.calls.append(Call(operation, path))
            failure = self._due(operation, path)
            if failure in (crash_before, crash_after):
                self.dead = True  # at once: no call of another thread comes after it
        if failure is None:
            return perform()
        try:
            return failure(perform)  # type: ignore[return-value]
        except Crash:
            self.dead = True
            raise
        except OutcomeUnknown as error:
            if operation in _KNOWN or failure is not answer_lost:
                raise
            raise StoreUnavailable(error.message) from None  # nobody else could notice that it was done

    def _due(self, operation: str, path: str) -> Failure | None:
        """The failure of the first fault that is due now; those that count this call come one nearer."""
        due = None
        for index, fault in enumerate(self.faults):
            if operation in fault.operations and fault.path in path and fault.nth > 0:
                self.faults[index] = replace(fault, nth=fault.nth - 1)
                if fault.nth == 1 and due is None:
                    due = fault.failure
        return due


class HoldingStore(StoreWrapper):
    """`inner`, where calls of `operations` on a path that contains `path` wait from `hold` to `let_go`, as if
    a disk hung. `held` is how many wait now, `most` how many ever did at once. Thread-safe.
    """

    def __init__(self, inner: Store, path: str = "", operations: Collection[str] = WRITES) -> None:
        super().__init__(inner)
        self.held = self.most = 0
        self._path, self._operations = path, operations
        self._holding, self._changed = False, threading.Condition()

    def hold(self) -> None:
        """Let the calls that come from now on wait."""
        self._holding = True

    def let_go(self) -> None:
        """Let those that wait, and all others, go on."""
        with self._changed:
            self._holding = False
            self._changed.notify_all()

    def _call(self, operation: str, path: str, perform: Callable[[], T]) -> T:
        if operation in self._operations and self._path in path:
            with self._changed:
                self.held += self._holding
                self.most = max(self.most, self.held)
                self._changed.wait_for(lambda: not self._holding)
                self.held = 0
        return perform()


class ClockedStore(StoreWrapper):
    """`inner` on a clock of the test: what is written through it bears that clock's time."""

    def __init__(self, inner: Store, clock: Clock) -> None:
        super().__init__(inner)
        self._clock = clock
        self._stamps: dict[str, int] = {}

    def _call(self, operation: str, path: str, perform: Callable[[], T]) -> T:
        result = perform()
        if operation in WRITES:
            self._stamps[path] = self._clock.now_ms()
        return result

    def head(self, path: str) -> ObjectInfo:
        return self._stamped(self.inner.head(path))

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        return map(self._stamped, self.inner.list(prefix, start_after))

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def _stamped(self, found: ObjectInfo) -> ObjectInfo:
        return replace(found, modified_ms=self._stamps.get(found.path, found.modified_ms))
