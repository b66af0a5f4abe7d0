"""One conformance suite for every kind of store."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from log_tables.errors import AlreadyExists, InvalidArgument, ObjectMissing, OutcomeUnknown, StoreUnavailable
from log_tables.store.local import LocalStore
from log_tables.store.store import Store, open_store
from tests.kit.stores import paths, put_all
from tests.kit.support import S3Server

RACERS = 16
_buckets = count()


@pytest.fixture(params=["local", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store of each kind."""
    if request.param == "local":
        return open_store(tmp_path / "root")
    if request.param == "memory":
        return open_store("memory://")
    s3: S3Server = request.getfixturevalue("s3")
    return open_store(f"{s3.bucket(f'store-{next(_buckets)}')}/some/prefix/", s3.options)


def race(attempt: Callable[[int], bool]) -> list[bool]:
    """Start RACERS threads together; returns which of them succeeded."""
    start = threading.Barrier(RACERS)

    def run(racer: int) -> bool:
        start.wait()
        return attempt(racer)

    with ThreadPoolExecutor(RACERS) as pool:
        return list(pool.map(run, range(RACERS)))


@pytest.mark.parametrize("method", ["put", "put_if_absent", "put_new"])
@pytest.mark.parametrize("data", [b"", b"x", bytearray(b"xyz"), memoryview(b"a-b-c")[::1], bytes(20_000_000)])
def test_what_was_put_is_read_back(store: Store, method: str, data: bytes) -> None:
    getattr(store, method)("a/b/c", data)
    assert store.get("a/b/c") == data
    assert store.head("a/b/c").size == len(data)
    assert paths(store, "a/") == ["a/b/c"]


def test_a_put_replaces_and_a_put_if_absent_does_not(store: Store) -> None:
    store.put("a", b"one")
    store.put("a", b"two")
    with pytest.raises(AlreadyExists, match="object a already"):
        store.put_if_absent("a", b"three")
    assert store.get("a") == b"two"


def test_put_if_absent_has_exactly_one_winner_among_racers(store: Store) -> None:
    def attempt(racer: int) -> bool:
        try:
            store.put_if_absent(path, b"%d" % racer)
        except (AlreadyExists, OutcomeUnknown, StoreUnavailable):
            return False
        return True

    for path in ("log/0", "log/1", "log/2"):
        won = race(attempt)
        assert won.count(True) == 1
        assert store.get(path) == b"%d" % won.index(True)


def test_a_reader_never_sees_half_an_object(store: Store) -> None:
    contents = [bytes([letter]) * 300_000 for letter in b"abcd"]
    store.put("a", contents[0])
    done = threading.Event()
    seen: set[bytes] = set()

    def read() -> None:
        while not done.is_set():
            seen.add(store.get("a"))

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(40):
        store.put("a", contents[turn % 4])
        store.put_if_absent(f"b/{turn}", contents[turn % 4])
        assert {item.size for item in store.list("b")} == {300_000}
    done.set()
    reader.join()
    assert seen <= set(contents)


def test_a_range_gives_what_there_is_of_it(store: Store) -> None:
    store.put("a", b"0123456789")
    assert store.get_range("a", 0, 10) == b"0123456789"
    assert store.get_range("a", 3, 4) == b"3456"
    assert store.get_range("a", 8, 100) == b"89"
    assert store.get_range("a", 10, 1) == b""
    assert store.get_range("a", 11, 1) == b""


def test_a_missing_object_is_named(store: Store) -> None:
    store.put("there/is", b"x")
    for path in ("is/not", "there", "there/is/not"):
        for ask in (store.get, store.head, lambda path: store.get_range(path, 0, 1)):
            with pytest.raises(ObjectMissing, match=path):
                ask(path)


def test_deleting_what_is_absent_is_fine(store: Store) -> None:
    put_all(store, "a/b", "a/c")
    for path in ("a/b", "a/b", "never/was", "a", "a/c/d"):
        store.delete(path)
    assert paths(store, "") == ["a/c"]
    store.delete("a/c")
    assert paths(store, "") == []
    assert store.list_dirs("") == []


def test_many_objects_are_deleted_at_once_and_absent_ones_are_fine(store: Store) -> None:
    put_all(store, "a/b", "a/c", "d")
    store.delete_objects([])
    store.delete_objects(["a/b", "never/was", "d", "a/b"])
    assert paths(store, "") == ["a/c"]
    store.delete_objects(["a/c"])
    assert store.list_dirs("") == []
    with pytest.raises(InvalidArgument):
        store.delete_objects(["a/c", "../x"])


def test_making_durable_changes_nothing_that_can_be_seen(store: Store) -> None:
    """In a bucket every visible object is durable already, so the call sends no request."""
    put_all(store, "a/b", "c")
    for directory in ("", "a", "a/", "a/b", "never/was"):
        store.make_durable(directory)
    assert paths(store, "") == ["a/b", "c"]
    store.delete("a/b")
    store.make_durable("a")  # that it is there no more
    assert paths(store, "") == ["c"]
    with pytest.raises(InvalidArgument):
        store.make_durable("../x")


def test_a_listing_is_recursive_and_ordered_by_path(store: Store) -> None:
    names = ["t/a-b/0", "t/a/0", "t/a/00", "t/a/1/2/3", "t/a.b", "t/B", "ta", "t2/x"]
    put_all(store, *names)
    assert paths(store, "t/") == sorted(name for name in names if name.startswith("t/"))
    assert paths(store, "t") == paths(store, "t/")
    assert paths(store, "") == sorted(names)
    assert paths(store, "t/a") == ["t/a/0", "t/a/00", "t/a/1/2/3"]
    assert paths(store, "t", start_after="t/a/0") == ["t/a/00", "t/a/1/2/3"]
    assert paths(store, "t", start_after="t/a/zzz") == []
    assert paths(store, "nowhere/") == []
    assert {item.size for item in store.list("t2")} == {4}


def test_directories_are_those_that_hold_objects(store: Store) -> None:
    put_all(store, "t/a/0/x", "t/a/1/x", "t/b/x", "t/c", "u")
    assert store.list_dirs("t/") == ["t/a", "t/b"]
    assert store.list_dirs("t/a") == ["t/a/0", "t/a/1"]
    assert store.list_dirs("") == ["t"]
    assert store.list_dirs("nowhere") == []
    store.delete("t/a/0/x")
    assert store.list_dirs("t/a") == ["t/a/1"]


@pytest.mark.parametrize(
    "name", ["orders~2", "day=2024-01-01", "größe 日本 🛫", "100%", "a%20b", "q?#&+*[x]'\"", "-", "..."]
)
def test_names_are_kept_as_they_are(store: Store, name: str) -> None:
    path = f"topics/{name}/{name}"
    store.put_if_absent(path, b"x")
    store.put(path, b"xy")
    assert store.get(path) == b"xy"
    assert [*store.list("topics")] == [store.head(path)]
    assert store.list_dirs("topics") == [f"topics/{name}"]
    store.delete(path)
    assert paths(store, "") == []


@pytest.mark.parametrize(
    "path",
    ["../x", "a/../../x", "a/..", "/x", "/", "", "a//b", "a/", "./a", "a/.", "a\0b", ".tmp-1", "a/.tmp-1"],
)
def test_a_path_out_of_the_root_is_refused(store: Store, path: str) -> None:
    puts = (store.put, store.put_if_absent, store.put_new)
    for ask in (store.get, store.head, store.delete, store.delta_location):
        with pytest.raises(InvalidArgument):
            ask(path)
    for put in puts:
        with pytest.raises(InvalidArgument):
            put(path, b"x")
    assert paths(store, "") == []


@pytest.mark.parametrize("prefix", ["..", "../", "a/../..", "/etc", "//"])
def test_a_listing_out_of_the_root_is_refused(store: Store, prefix: str) -> None:
    for ask in (store.list_dirs, lambda prefix: [*store.list(prefix)]):
        with pytest.raises(InvalidArgument):
            ask(prefix)


def test_the_clock_of_the_store_is_the_one_that_stamps_objects(store: Store) -> None:
    before = store.now_ms()
    store.put("a", b"x")
    assert before <= store.head("a").modified_ms <= store.now_ms()
    assert [*store.list("")] == [store.head("a")], "asking for the time leaves nothing to see"
    assert store.remove_temporaries(0) == 0


def test_open_store_says_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for url, said in [
        ("ftp://host/x", "'ftp'"),
        ("file://host/x", "'file'"),
        ("", "empty"),
        (str(file), "file"),
        (str(file / "below"), "file/below"),
        ("s3://", "s3://"),
    ]:
        with pytest.raises(InvalidArgument, match=said):
            open_store(url)
    with pytest.raises(InvalidArgument, match="'frobnicate'"):
        open_store("s3://bucket", {"frobnicate": "1"}, create=False)
    with pytest.raises(InvalidArgument, match="no directory"):
        open_store(tmp_path / "absent", create=False)
    assert not (tmp_path / "absent").exists()


def test_a_store_opens_by_its_own_url(tmp_path: Path) -> None:
    store = open_store(tmp_path / "deep" / "größe 100% #1")
    store.put("a", b"x")
    assert open_store(store.url, create=False).get("a") == b"x"
    assert open_store("memory://").url == "memory://"


def test_memory_has_no_delta_location(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="this process only"):
        open_store("memory://").delta_location("a")
    assert open_store(tmp_path).delta_location("a/0") == (str(tmp_path / "a/0"), {})


def test_a_copy_of_an_object_has_another_identity(store: Store) -> None:
    store.put_if_absent("a", b"x")
    store.put_if_absent("b", b"x")
    assert store.identity("a") == store.identity("a")
    with pytest.raises(ObjectMissing):
        store.identity("c")
    if isinstance(store, LocalStore):
        assert store.identity("a") != store.identity("b")
