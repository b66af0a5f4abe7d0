"""A bucket in memory, and the client by which log_tables/store/bucket.py asks for it, above HTTP.

Its rules are those of S3: a put is there whole or not at all, and durable; its condition is decided with it;
reads and lists have all that was put before; a list comes in pages. A request may be slow, never arrive, be
refused, be done without an answer, or be done after whoever asked has given up or died. A client repeats
requests by itself: then a conditional put hears that its own object is there, and a plain one may land twice.
https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch
from urllib.parse import urlsplit

from obstore.exceptions import AlreadyExistsError, GenericError

from log_tables.store import bucket as store_bucket
from tests.simulation.chance import Chance
from tests.simulation.scheduler import EPOCH_US, Ended, Scheduler
from tests.simulation.threads import SimulatedEvent

Found = TypeVar("Found")

PAGES = (10, 1_000)
"""Objects in a page of a list, one of these: S3 has 1,000, and many pages are rare then."""

TRAVELS = 0.2
"""The share of writes that are under way for a while: who sends them may die meanwhile."""

TRAVELS_S = 0.05

GIVES_UP_S = 8.0
"""After this time at most a client gives up waiting for an answer."""

LATE_S = 5.0
"""So long after that at most a request lands that was under way."""

_LAST = "\U0010ffff"
"""The last character: what a group of keys has comes before it."""

_WRITES = frozenset({"create", "put", "delete"})


class _Object(NamedTuple):
    data: bytes
    modified_s: int


@dataclass
class BucketWeather:
    """How bad a bucket is: shares of its requests, and the seconds that a slow one takes at most."""

    slow_s: float = 0.0
    refused: float = 0.0
    lost_call: float = 0.0
    lost_answer: float = 0.0
    late: float = 0.0
    wrong: float = 0.0

    def clear(self) -> None:
        """Let it work as it should."""
        self.__init__()  # type: ignore[misc]


class Bucket:
    """The bucket of a world. Each request of a thread is a point."""

    def __init__(self, scheduler: Scheduler, page: int | None = None) -> None:
        """`page` is how many objects a page of a list has; None: one of PAGES, by the seed."""
        self._scheduler, self._random = scheduler, scheduler.random
        self.weather, self._answers = BucketWeather(), SimulatedEvent()
        self._page = page or Chance(f"bucket {scheduler.seed}").choice(PAGES)
        self._objects: dict[str, _Object] = {}
        self._keys: list[str] = []

    def calm(self) -> None:
        """Let it work as it should, and nobody wait for what does not come."""
        self.weather.clear()
        self._answers.set()

    # Requests.

    def _ask(
        self, call: str, key: str, act: Callable[[], Found], part: Callable[[], object] | None = None
    ) -> Found:
        """The outcome of a request, which does `act` at once when it arrives, or only a `part` of it."""
        scheduler, weather = self._scheduler, self.weather
        scheduler.point(f"{call} {key}")
        if scheduler.current is None:
            return act()
        if scheduler.chance(weather.refused):
            if part is not None:
                part()
            self._fail(call, key, "503 Slow Down")
        if scheduler.chance(weather.lost_call):
            self._give_up(call, key, "never arrives")
        if weather.slow_s and scheduler.chance(0.2):
            scheduler.pause(self._random.random() * weather.slow_s)
        return self._write(call, key, act) if call in _WRITES else act()

    def _write(self, call: str, key: str, act: Callable[[], Found]) -> Found:
        scheduler, weather = self._scheduler, self.weather
        if scheduler.chance(weather.late):
            self._land_later(call, key, act)
            if call == "create" or scheduler.chance(0.5):
                self._give_up(call, key, "is under way")
            return act()  # the client has repeated it
        if scheduler.chance(weather.lost_answer):
            with suppress(AlreadyExistsError):
                act()
            self._give_up(call, key, "is done")
        if call == "create" and scheduler.chance(weather.wrong):
            self._answer_wrongly(key, act)
        return self._travel(act) if scheduler.chance(TRAVELS) else act()

    def _answer_wrongly(self, key: str, act: Callable[[], object]) -> None:
        """Say that an object is there: it is this one, by an earlier try, or all who race for it lose."""
        said = "409 Conflict"
        if self._random.random() < 0.5:
            said = "412 Precondition Failed"
            act()
        self._scheduler.note("bucket", f"create {key} ends in {said}, wrongly")
        raise AlreadyExistsError(f"Object at location {key} already exists: {said}")

    def _fail(self, call: str, key: str, said: str) -> None:
        self._scheduler.note("bucket", f"{call} {key} ends in {said}")
        self._scheduler.pause(self._random.random())  # the client has tried it again
        raise GenericError(f"Generic S3 error: Server returned error response: {said}")

    def _give_up(self, call: str, key: str, what: str) -> None:
        """Wait for an answer that does not come: short waits are the most."""
        self._scheduler.note("bucket", f"{call} {key} {what}, and nobody says so")
        self._answers.wait(GIVES_UP_S * self._random.random() ** 3)
        raise GenericError("Generic S3 error: operation timed out")

    def _land_later(self, call: str, key: str, act: Callable[[], object]) -> None:
        def land() -> None:
            self._scheduler.note("bucket", f"{call} {key} lands late")
            with suppress(AlreadyExistsError):
                act()

        self._at(LATE_S * self._random.random() ** 2, land)

    def _travel(self, act: Callable[[], Found]) -> Found:
        """The outcome of a write that arrives after a while, whatever becomes of whoever sent it."""
        outcome: list[Found | AlreadyExistsError] = []
        answered = SimulatedEvent()

        def arrive() -> None:
            try:
                outcome.append(act())
            except AlreadyExistsError as error:
                outcome.append(error)
            answered.set()

        self._at(TRAVELS_S * self._random.random(), arrive)
        answered.wait()
        found = outcome[0]
        if isinstance(found, AlreadyExistsError):
            raise found
        return found

    def _at(self, seconds: float, then: Callable[[], object]) -> None:
        scheduler = self._scheduler
        if scheduler.over:
            raise Ended
        scheduler.at(scheduler.now_us + round(seconds * 1e6), None, then)

    # What they do.

    def put(self, key: str, data: bytes, absent: bool) -> None:
        """Put an object, if there is none where it has to be `absent`. Raises AlreadyExistsError."""
        self._ask("create" if absent else "put", key, partial(self._put, key, data, absent))

    def _put(self, key: str, data: bytes, absent: bool) -> None:
        if key not in self._objects:
            insort(self._keys, key)
        elif absent:
            raise AlreadyExistsError(f"Object at location {key} already exists: 412 Precondition Failed")
        self._objects[key] = _Object(data, (EPOCH_US + self._scheduler.now_us) // 1_000_000)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, of which some may be gone already. Not all may be when it fails."""

        def some() -> None:
            self._delete([key for key in keys if self._random.random() < 0.5])

        self._ask("delete", " ".join(keys), partial(self._delete, keys), some)

    def _delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            if self._objects.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]

    def get(self, call: str, key: str) -> _Object:
        """An object. Raises FileNotFoundError."""
        found = self._ask(call, key, partial(self._objects.get, key))
        if found is None:
            raise FileNotFoundError(f"Object at location {key} not found: 404 Not Found")
        return found

    def list(self, prefix: str, after: str, delimiter: str = "") -> Iterator[dict[str, _Object | None]]:
        """Pages of the objects whose keys begin with `prefix`, those after `after`; a group of them up to a
        `delimiter` is one without an object.
        """
        is_whole = False
        while not is_whole:
            page = partial(self._listed, prefix, after, delimiter)
            found, is_whole = self._ask("list", f"{prefix} {after}", page)
            yield found
            last = next(reversed(found), "")
            after = f"{last}{_LAST}" if delimiter else last

    def _listed(self, prefix: str, after: str, delimiter: str) -> tuple[dict[str, _Object | None], bool]:
        found: dict[str, _Object | None] = {}
        at = bisect_right(self._keys, after) if after >= prefix else bisect_left(self._keys, prefix)
        while at < len(self._keys) and (key := self._keys[at]).startswith(prefix):
            if len(found) == self._page:
                return found, False
            end = key.find(delimiter, len(prefix)) if delimiter else -1
            if end < 0:
                found[key] = self._objects[key]
                at += 1
            else:
                group = key[: end + 1]
                found[group] = None
                at = bisect_left(self._keys, f"{group}{_LAST}")
        return found, True


@dataclass(frozen=True)
class _Root:
    """A prefix of the bucket, to which a client connects."""

    bucket: Bucket
    prefix: str

    def key(self, path: str) -> str:
        return f"{self.prefix}/{path}"

    def below(self, directory: str | None) -> str:
        return f"{self.prefix}/{directory}/" if directory else f"{self.prefix}/"

    def item(self, key: str, found: _Object) -> dict[str, Any]:
        moment = datetime.fromtimestamp(found.modified_s, UTC)
        return {"path": self.path(key), "size": len(found.data), "last_modified": moment}

    def path(self, key: str) -> str:
        return key.removeprefix(f"{self.prefix}/").removesuffix("/")


class _Client(ModuleType):
    """obstore for the store: its functions that are used, as they are called."""

    def __init__(self) -> None:
        super().__init__("obstore")

    @staticmethod
    def get(root: _Root, path: str) -> SimpleNamespace:
        found = root.bucket.get("get", root.key(path))
        return SimpleNamespace(bytes=lambda: found.data)

    @staticmethod
    def get_range(root: _Root, path: str, *, start: int, length: int) -> bytes:
        data = root.bucket.get("get range", root.key(path)).data
        if start >= len(data) or length <= 0:
            raise GenericError("Generic S3 error: 416 Range Not Satisfiable")
        return data[start : start + length]

    @staticmethod
    def head(root: _Root, path: str) -> dict[str, Any]:
        key = root.key(path)
        return root.item(key, root.bucket.get("head", key))

    @staticmethod
    def list(root: _Root, prefix: str | None, *, offset: str | None) -> Iterator[Sequence[Mapping[str, Any]]]:
        for page in root.bucket.list(root.below(prefix), root.key(offset) if offset else ""):
            yield [root.item(key, found) for key, found in page.items() if found is not None]

    @staticmethod
    def list_with_delimiter(root: _Root, prefix: str | None) -> dict[str, Sequence[str]]:
        pages = root.bucket.list(root.below(prefix), "", "/")
        return {"common_prefixes": [root.path(key) for page in pages for key in page if key.endswith("/")]}

    @staticmethod
    def put(
        root: _Root,
        path: str,
        data: memoryview,
        *,
        mode: str = "overwrite",
        use_multipart: bool | None = None,
    ) -> None:
        is_conditional = mode == "create"
        assert is_conditional == (use_multipart is False), "a conditional put is one request"
        root.bucket.put(root.key(path), bytes(data), is_conditional)

    @staticmethod
    def delete(root: _Root, paths: str | Sequence[str]) -> None:
        root.bucket.delete([root.key(path) for path in ([paths] if isinstance(paths, str) else paths)])


@contextmanager
def served(bucket: Bucket) -> Iterator[None]:
    """Let the stores of buckets be prefixes of `bucket`."""

    def connect(url: str, **_: object) -> _Root:
        return _Root(bucket, urlsplit(url).path.strip("/"))

    with patch.object(store_bucket, "obstore", _Client()), patch.object(store_bucket, "from_url", connect):
        yield
