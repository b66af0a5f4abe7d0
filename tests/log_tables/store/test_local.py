"""Local disks alone: puts that race, are killed, or leave temporary files."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from log_tables.clock import ManualClock, SystemClock
from log_tables.errors import AlreadyExists, PutRefused
from log_tables.store.local import LocalStore
from log_tables.store.store import Store, open_store
from tests.kit.stores import paths, put_all
from tests.kit.support import wait_until


def has_objects(store: Store, number: int) -> bool:
    return len(paths(store, "")) >= number


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


def test_directories_pruned_by_another_are_recreated(tmp_path: Path) -> None:
    first, second = LocalStore(tmp_path, SystemClock()), LocalStore(tmp_path, ManualClock())
    for _ in range(3):
        first.put_if_absent("t/a/0/x", b"x")
        second.delete("t/a/0/x")
        assert os.listdir(tmp_path) == []


def test_a_directory_recreated_under_the_same_number_is_made_durable_again(tmp_path: Path) -> None:
    synced: list[int] = []
    store = LocalStore(tmp_path, SystemClock(), sync=lambda file: synced.append(os.fstat(file).st_ino))
    for _ in range(5):
        synced.clear()
        store.put("a/x", b"x")
        store.delete("a/x")  # which frees the number of the directory, and file systems give it out again
        assert tmp_path.stat().st_ino in synced
