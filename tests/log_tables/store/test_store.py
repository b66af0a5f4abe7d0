"""One conformance suite for every kind of store, then what only a local disk can break."""

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from log_tables.clock import ManualClock, SystemClock
from log_tables.cluster.home import remember
from log_tables.cluster.metadata_log import open_log
from log_tables.errors import (
    AlreadyExists,
    InvalidArgument,
    LakelogError,
    ObjectMissing,
    PutRefused,
    StoreUnavailable,
)
from log_tables.store import local as local_store
from log_tables.store.local import LocalStore
from log_tables.store.store import Store, open_store, overlap
from tests.kit.support import S3Server, wait_until

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


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path, SystemClock())


def paths(store: Store, prefix: str, start_after: str = "") -> list[str]:
    return [item.path for item in store.list(prefix, start_after)]


def put_all(store: Store, *names: str) -> None:
    for name in names:
        store.put(name, name.encode())


def has_objects(store: Store, number: int) -> bool:
    return len(paths(store, "")) >= number


def race(attempt: Callable[[int], bool]) -> list[bool]:
    """Which of RACERS threads that start together succeeded."""
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
        except (AlreadyExists, StoreUnavailable):
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


def test_making_durable_changes_nothing_that_can_be_seen(store: Store) -> None:
    """Of a bucket, where what can be seen is durable, it asks nothing: nobody pays for the question."""
    put_all(store, "a/b", "c")
    for directory in ("", "a", "a/", "a/b", "never/was"):
        store.make_durable(directory)
    assert paths(store, "") == ["a/b", "c"]
    store.delete("a/b")
    store.make_durable("a")  # that it is there no more
    assert paths(store, "") == ["c"]
    with pytest.raises(InvalidArgument):
        store.make_durable("../x")


def test_an_object_store_that_is_down_has_made_durable_what_it_showed(
    impostor: tuple[str, dict[int, int]],
) -> None:
    endpoint, statuses = impostor
    statuses.update(dict.fromkeys(range(100), 503))
    open_store("s3://bucket", impostor_options(endpoint), create=False).make_durable("topics/t/0")


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


def test_an_object_store_is_found_by_the_environment(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    url = s3.bucket("environment")
    for name, value in s3.options.items():
        monkeypatch.setenv(name.upper(), value)
    open_store(url).put("a", b"x")
    assert open_store(url, {"AWS_REGION": s3.region, "allow_http": "true", "timeout": "9s"}).get("a") == b"x"
    assert open_store(url).delta_location("t/0") == (f"{url}/t/0", {})


def test_a_bucket_that_is_gone_is_not_an_empty_one(s3: S3Server) -> None:
    store = open_store("s3://never-made", s3.options, create=False)
    for ask in (store.get, store.list_dirs, lambda path: store.put_if_absent(path, b"")):
        with pytest.raises(StoreUnavailable, match="NoSuchBucket"):
            ask("a")


def test_an_object_store_that_is_down_or_refuses_is_unavailable(s3: S3Server) -> None:
    url = s3.bucket("refused")
    store = open_store(url, {**s3.options, "aws_secret_access_key": "wrong"}, create=False)
    with pytest.raises(StoreUnavailable, match="403 Forbidden") as raised:
        store.get("a")
    assert "\n" not in raised.value.message
    with pytest.raises(StoreUnavailable):
        open_store(url, {**s3.options, "aws_secret_access_key": "wrong"})


@pytest.fixture
def impostor() -> Iterator[tuple[str, dict[int, int]]]:
    """An S3 server that answers every put as if it were the first; and the answers it shall give by turn."""
    statuses: dict[int, int] = {}
    turns = count()

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(statuses.get(next(turns), 200))
            self.send_header("ETag", '"0"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", statuses
    server.shutdown()
    thread.join()
    server.server_close()


def impostor_options(endpoint: str) -> dict[str, str]:
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_region": "us-east-1"}
    return {"aws_endpoint": endpoint, "allow_http": "true", **keys}


def test_a_store_that_ignores_the_condition_of_a_put_is_refused(
    impostor: tuple[str, dict[int, int]],
) -> None:
    with pytest.raises(InvalidArgument, match="If-None-Match"):
        open_store("s3://bucket", impostor_options(impostor[0]))


def test_a_conditional_put_that_conflicts_may_have_left_nothing(impostor: tuple[str, dict[int, int]]) -> None:
    endpoint, statuses = impostor
    statuses.update({0: 409, 1: 412, 2: 503})
    store = open_store("s3://bucket", impostor_options(endpoint), create=False)
    for _ in range(2):
        with pytest.raises(AlreadyExists, match="object a already"):
            store.put_if_absent("a", b"x")
    store.put_if_absent("a", b"repeated out of sight")


# Only a local disk


def test_puts_beside_deletes_that_empty_their_directory(tmp_path: Path) -> None:
    store = open_store(tmp_path)

    def put_and_delete(lane: int) -> None:
        for number in range(300):
            path = f"a/b/{lane}-{number}"
            (store.put_if_absent, store.put_new)[number % 2](path, b"x")
            store.delete(path)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put_and_delete, range(4)))
    assert list(store.list("a/")) == []


def test_processes_that_race_for_a_name_have_one_winner(local: LocalStore, tmp_path: Path) -> None:
    racer = (
        "import sys; from log_tables.store.store import open_store\n"
        "from log_tables.errors import AlreadyExists\n"
        "store = open_store(sys.argv[1]); print('ready', flush=True); sys.stdin.readline(); won = []\n"
        "for turn in range(50):\n"
        "    try: store.put_if_absent(f'log/{turn}', sys.argv[2].encode()); won.append(turn)\n"
        "    except AlreadyExists: pass\n"
        "print(*won)"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", racer, str(tmp_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "abcd"
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    won = {name: process.communicate()[0].split() for name, process in zip("abcd", processes, strict=True)}
    assert sorted(int(turn) for turns in won.values() for turn in turns) == list(range(50))
    for name, turns in won.items():
        assert {local.get(f"log/{turn}") for turn in turns} <= {name.encode()}


def test_a_put_that_is_killed_leaves_all_or_nothing(local: LocalStore, tmp_path: Path) -> None:
    writer = (
        "import sys; from itertools import count; from log_tables.store.store import open_store\n"
        "store = open_store(sys.argv[1]); data = b'x' * 2_000_000; print('ready', flush=True)\n"
        "for turn in count():\n"
        "    store.put_if_absent(f'a/{sys.argv[2]}-{turn}', data); store.put('a/same', data)"
    )
    for life in range(5):
        process = subprocess.Popen(
            [sys.executable, "-c", writer, str(tmp_path), str(life)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        many = len(paths(local, "a")) + 3
        wait_until(partial(has_objects, local, many), "a few objects are there")
        process.send_signal(signal.SIGKILL)
        process.communicate()
        for item in local.list("a"):
            assert item.size == 2_000_000
            assert local.get(item.path) == b"x" * 2_000_000


def test_temporary_files_never_show_and_are_removed_when_old(local: LocalStore, tmp_path: Path) -> None:
    put_all(local, "a/b/c")
    left = [tmp_path / ".tmp-0", tmp_path / "a" / ".tmp-1", tmp_path / "gone" / ".tmp-2"]
    (tmp_path / "gone").mkdir()
    for file in left:
        file.touch()
    assert paths(local, "") == ["a/b/c"]
    assert local.list_dirs("") == ["a"]
    assert local.remove_temporaries(60_000) == 0
    os.utime(left[0], (0, 0))
    assert local.remove_temporaries(60_000) == 1
    for file in left[1:]:
        os.utime(file, (0, 0))
    assert local.remove_temporaries(60_000) == 2
    assert sorted(os.listdir(tmp_path)) == ["a"]


def test_no_temporary_file_outlives_its_put(local: LocalStore, tmp_path: Path) -> None:
    local.put("a", b"x")
    local.put_if_absent("b", b"x")
    with pytest.raises(AlreadyExists):
        local.put_if_absent("b", b"y")
    with pytest.raises(AlreadyExists):
        local.put_new("b", b"y")
    local.now_ms()
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_what_a_link_that_points_elsewhere_holds_is_not_listed(local: LocalStore, tmp_path: Path) -> None:
    local.put("a/b", b"x")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    assert paths(local, "") == ["a/b"]


def test_a_name_below_an_object_is_refused(local: LocalStore) -> None:
    local.put("a", b"x")
    for put in (local.put, local.put_if_absent, local.put_new):
        with pytest.raises(PutRefused, match="a/b/c was not written"):
            put("a/b/c", b"y")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """Let a call of the operating system fail with an error number, as a bad disk does."""

    def breaks(function: str, number: int) -> None:
        def fail(*_: object, **__: object) -> None:
            raise OSError(number, os.strerror(number), "/machine/path")

        monkeypatch.setattr(os, function, fail)

    return breaks


@pytest.mark.parametrize(
    ("function", "number", "said"),
    [
        ("write", errno.ENOSPC, "the disk is full: free room"),
        ("write", errno.EDQUOT, "quota"),
        ("fsync", errno.EIO, "check the disk"),
        ("open", errno.EACCES, "give this user the permission"),
        ("open", errno.EMFILE, "limit of open files"),
        ("link", errno.EOPNOTSUPP, "hard links"),
    ],
)
def test_a_disk_that_refuses_leaves_nothing_and_says_what_to_do(
    local: LocalStore, broken: Callable[[str, int], None], function: str, number: int, said: str
) -> None:
    local.put("a/there", b"x")
    broken(function, number)
    with pytest.raises(PutRefused, match=said) as raised:
        local.put_if_absent("a/b", b"y")
    assert "a/b" in raised.value.message
    assert "/machine" not in raised.value.message


def test_a_disk_that_fails_after_the_name_is_there_leaves_the_outcome_open(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.put("a/there", b"x")
    synced = iter([None, OSError(errno.EIO, "Input/output error")])

    def fsync(_: int) -> None:
        if (error := next(synced)) is not None:
            raise error

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StoreUnavailable, match="may not be durable") as raised:
        local.put_if_absent("a/b", b"y")
    assert not isinstance(raised.value, PutRefused)
    assert local.get("a/b") == b"y"


@pytest.mark.parametrize("number", [errno.EEXIST, errno.EIO])
def test_a_link_whose_answer_is_lost_is_recognised(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    link = os.link

    def lost(source: str, target: str) -> None:
        link(source, target)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", lost)
    local.put_if_absent("a", b"x")
    assert local.get("a") == b"x"


def test_unreadable_objects_and_directories_are_typed(
    local: LocalStore, broken: Callable[[str, int], None]
) -> None:
    local.put("a/b", b"x")
    broken("open", errno.EIO)
    broken("scandir", errno.EACCES)
    asks: list[Callable[[], object]] = [
        lambda: local.get("a/b"),
        lambda: local.get_range("a/b", 0, 1),
        lambda: [*local.list("a")],
        lambda: local.list_dirs(""),
    ]
    for ask in asks:
        with pytest.raises(StoreUnavailable, match="cannot be read") as raised:
            ask()
        assert "/machine" not in raised.value.message


def test_errors_name_no_path_of_the_machine(local: LocalStore, tmp_path: Path) -> None:
    local.put("a", b"x")

    def errors() -> Iterator[LakelogError]:
        for ask in (
            lambda: local.get("b"),
            lambda: local.get("../b"),
            lambda: local.put_if_absent("a", b""),
            lambda: local.put("a/b", b""),
            lambda: local.put("n" * 300, b""),
        ):
            with pytest.raises(LakelogError) as raised:
                ask()
            yield raised.value

    for error in errors():
        assert str(tmp_path) not in str(error)
        assert error.__context__ is None or error.__suppress_context__


def test_directories_pruned_by_another_are_made_again(tmp_path: Path) -> None:
    first, second = LocalStore(tmp_path, SystemClock()), LocalStore(tmp_path, ManualClock())
    for _ in range(3):
        first.put_if_absent("t/a/0/x", b"x")
        second.delete("t/a/0/x")
        assert os.listdir(tmp_path) == []


def test_a_directory_made_again_under_the_same_number_is_made_durable_again(tmp_path: Path) -> None:
    synced: list[int] = []
    store = LocalStore(tmp_path, SystemClock(), sync=lambda file: synced.append(os.fstat(file).st_ino))
    for _ in range(5):
        synced.clear()
        store.put("a/x", b"x")
        store.delete("a/x")  # which frees the number of the directory, and file systems give it out again
        assert tmp_path.stat().st_ino in synced


def test_a_root_that_was_replaced_is_not_begun_anew(tmp_path: Path) -> None:
    root = tmp_path / "root"
    store = open_store(root)
    store.put_if_absent("table/_delta_log/0", b"first")
    root.rename(tmp_path / "lost")
    root.mkdir()
    with pytest.raises(PutRefused, match="mount it again"):
        store.put_if_absent("table/_delta_log/1", b"second")
    assert list(root.iterdir()) == []


@pytest.fixture
def mounted_again(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What it takes for all files to be of another device from now on, as when a mount came back."""
    stat_of = os.stat

    def elsewhere(*args: Any, **named: Any) -> os.stat_result:
        found = stat_of(*args, **named)
        return os.stat_result(
            (*found[:2], found.st_dev + 1, *found[3:]),
            {"st_mtime_ns": found.st_mtime_ns, "st_ctime_ns": found.st_ctime_ns},
        )

    return lambda: monkeypatch.setattr(os, "stat", elsewhere)


def test_a_root_that_was_mounted_again_is_gone_on_with(
    tmp_path: Path, mounted_again: Callable[[], None]
) -> None:
    store = open_store(tmp_path / "root")
    open_log(store, ManualClock())
    remember(store)
    store.put_if_absent("a/1", b"")
    mounted_again()
    store.put_if_absent("a/2", b"")
    store.put("a/3", b"")
    assert paths(store, "a/") == ["a/1", "a/2", "a/3"]


@pytest.mark.parametrize("anchored", [True, False])
def test_another_root_that_was_mounted_in_its_place_is_not_written_to(
    anchored: bool, tmp_path: Path, mounted_again: Callable[[], None]
) -> None:
    """Though its top has the same inode, as that of every file system of a kind has."""
    store = open_store(tmp_path / "root")
    if anchored:
        open_log(store, ManualClock())
        remember(store)
    store.put_if_absent("a/1", b"")
    if anchored:
        store.delete("home/anchor")
        (tmp_path / "other").touch()  # it takes the inode of the anchor
        open_store(tmp_path / "root").put("home/anchor", b"")
    mounted_again()
    with pytest.raises(PutRefused, match="not the directory that was opened"):
        store.put_if_absent("a/2", b"")


def test_the_name_of_a_root_that_is_there_is_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who made it may have died before its fsync; who only reads makes nothing durable."""
    synced: list[int] = []
    monkeypatch.setattr(local_store, "sync", lambda opened: synced.append(os.fstat(opened).st_ino))
    (tmp_path / "root").mkdir()
    open_store(tmp_path / "root", create=False)
    assert synced == []
    open_store(tmp_path / "root")
    assert synced == [tmp_path.stat().st_ino]


def test_a_root_that_is_made_is_its_owners_alone(tmp_path: Path) -> None:
    open_store(tmp_path / "above" / "root").put("a", b"")
    assert stat.S_IMODE((tmp_path / "above" / "root").stat().st_mode) == 0o700
    (tmp_path / "made").mkdir(mode=0o755)
    open_store(tmp_path / "made").put("a", b"")
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o755  # somebody wants it so


def test_a_copy_of_an_object_has_another_identity(store: Store) -> None:
    store.put_if_absent("a", b"x")
    store.put_if_absent("b", b"x")
    assert store.identity("a") == store.identity("a")
    with pytest.raises(ObjectMissing):
        store.identity("c")
    if isinstance(store, LocalStore):
        assert store.identity("a") != store.identity("b")


def test_an_object_keeps_its_identity_when_owner_and_permissions_are_set(store_root: Path) -> None:
    store = open_store(store_root)
    store.put("home/anchor", b"")
    before = store.identity("home/anchor")
    for path in (store_root / "home" / "anchor", store_root / "home", store_root):
        path.chmod(0o750)
        os.chown(path, os.getuid(), os.getgid())
    assert store.identity("home/anchor") == before


def test_a_bucket_has_one_identity_by_each_scheme_for_it(s3: S3Server) -> None:
    url = f"{s3.bucket('one-spelling')}/log"
    store, again = open_store(url, s3.options), open_store(url.replace("s3://", "s3a://"), s3.options)
    store.put("home/anchor", b"")
    assert again.identity("home/anchor") == store.identity("home/anchor")
    assert overlap(again.url, f"{store.url}/in-it")


def test_a_copy_with_all_times_has_another_identity(tmp_path: Path) -> None:
    store = open_store(tmp_path / "root")
    store.put("home/anchor", b"")
    shutil.copytree(tmp_path / "root", tmp_path / "copy")  # copy2: with its times
    copy = open_store(tmp_path / "copy")
    assert copy.head("home/anchor") == store.head("home/anchor")
    assert copy.identity("home/anchor") != store.identity("home/anchor")


def test_nothing_is_put_into_a_root_that_was_put_in_the_place_of_the_one_opened(tmp_path: Path) -> None:
    opened = open_store(tmp_path / "root")
    opened.put("a/1", b"")
    shutil.copytree(tmp_path / "root", tmp_path / "restored")
    (tmp_path / "root").rename(tmp_path / "old")
    (tmp_path / "restored").rename(tmp_path / "root")
    for put in (opened.put, opened.put_if_absent, opened.put_new):
        with pytest.raises(PutRefused, match="not the directory that was opened"):
            put("a/2", b"")
    assert paths(open_store(tmp_path / "root"), "") == ["a/1"]
