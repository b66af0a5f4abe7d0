"""The reserve of a disk: given up for what makes room, by several processes at once, and made again."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from log_tables.clock import ManualClock
from log_tables.errors import StoreFull
from log_tables.layout import (
    CONSUMER_OFFSETS,
    METADATA_DIRECTORY,
    audit_spill_path,
    commit_path,
    topic_directory,
)
from log_tables.store.local import LocalStore
from log_tables.store.reserve import RESERVE
from log_tables.store.store import Store, open_store
from tests.kit.small_disk import fill, small_disk

DISK_BYTES, RESERVE_BYTES = 12 << 20, 1 << 20
OFFSETS = topic_directory(CONSUMER_OFFSETS)
SEGMENT = f"{topic_directory('t')}/partition=0/{1:020}-00000000.parquet"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", DISK_BYTES) as path:
        yield path


def full(disk: Path) -> LocalStore:
    """A store with a reserve on a disk without room."""
    store = opened(disk)
    assert store.reserve(RESERVE_BYTES, 0)
    fill(disk / "filling")
    return store


def opened(disk: Path) -> LocalStore:
    store = open_store(disk / "root")
    assert isinstance(store, LocalStore)
    return store


def puts(store: Store, directory: str) -> int:
    """How many objects of 4 KiB find room."""
    for number in range(1_000):
        try:
            store.put_if_absent(commit_path(directory, number), bytes(4_096))
        except StoreFull:
            return number
    raise AssertionError("the disk is not full")


def test_a_reserve_is_no_object(disk: Path) -> None:
    store = full(disk)
    assert list(store.list("")) == []
    assert list(store.list_dirs("")) == []
    store.remove_temporaries(-(1 << 40))
    assert store.reserve(RESERVE_BYTES, 1 << 40), "nothing of it is missing"


def test_records_take_none_of_it_and_neither_do_their_commit_and_what_is_spilled_of_the_audit(
    disk: Path,
) -> None:
    store = full(disk)
    with pytest.raises(StoreFull, match="the disk is full"):
        store.put_new(SEGMENT, bytes(4_096))
    with pytest.raises(StoreFull, match="the disk is full"):
        store.put(audit_spill_path(1, "0" * 32), bytes(4_096))
    with suppress(StoreFull), store.put_new_before(SEGMENT, bytes(4_096)) as put:
        put(commit_path(topic_directory("t"), 1), bytes(4_096))
    assert store.reserve(RESERVE_BYTES, 1 << 40)


def test_what_groups_commit_takes_half_of_it_and_leaves_the_rest_to_settings(disk: Path) -> None:
    store, other = full(disk), opened(disk)
    of_groups = puts(store, OFFSETS)
    assert of_groups * 4_096 <= RESERVE_BYTES // 2
    assert of_groups > 20
    assert puts(other, METADATA_DIRECTORY) > of_groups // 2


def test_it_is_made_again_only_where_there_is_room_beside_it(disk: Path) -> None:
    store = full(disk)
    store.put(commit_path(METADATA_DIRECTORY, 0), bytes(4_096))
    assert not store.reserve(RESERVE_BYTES, 1 << 20)
    with pytest.raises(StoreFull):
        store.check_room(bytes(1 << 20))
    (disk / "filling").unlink()
    store.check_room(bytes(1 << 20))
    assert store.reserve(RESERVE_BYTES, 1 << 20)
    fill(disk / "filling")
    store.put(commit_path(METADATA_DIRECTORY, 1), bytes(4_096))


class Exchanging(ManualClock):
    """A clock that exchanges the directory `root` for an empty one while its reserve is made."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root, self.old = root, root.with_name("old")

    def random_hex(self, digits: int) -> str:
        if not self.old.exists():
            self._root.rename(self.old)
            self._root.mkdir()
        return super().random_hex(digits)


def test_it_is_made_in_the_directory_that_was_opened(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    clock = Exchanging(root)
    assert LocalStore(root, clock).reserve(RESERVE_BYTES, 0)
    assert not [*root.iterdir()]
    assert sum(file.stat().st_size for file in (clock.old / RESERVE).iterdir()) == RESERVE_BYTES


def test_a_smaller_one_gives_the_rest_back(disk: Path) -> None:
    store = opened(disk)

    def held() -> int:
        return sum(file.stat().st_size for file in (disk / "root").rglob(".tmp-reserve/*"))

    for size in (RESERVE_BYTES, RESERVE_BYTES // 2, 0):
        assert store.reserve(size, 0)
        assert held() == size


PUTS = """
import sys
from log_tables.errors import StoreFull
from log_tables.layout import METADATA_DIRECTORY, commit_path
from log_tables.store.store import open_store

store, first = open_store(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
done = 0
try:
    while True:
        store.put_if_absent(commit_path(METADATA_DIRECTORY, first + done), bytes(4_096))
        done += 1
except StoreFull:
    print(done)
"""
"""A process that commits until there is no room."""


def test_processes_that_race_for_it_share_all_of_it(disk: Path) -> None:
    store = full(disk)
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", PUTS, disk / "root", str(number * 10_000)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("\n")
        racer.stdin.flush()
    done = [int(racer.communicate()[0]) for racer in racers]
    assert all(racer.returncode == 0 for racer in racers)
    found = [item for item in store.list("") if item.size == 4_096]
    assert len(found) == sum(done)  # each is whole, and each was told
    assert sum(done) * 4_096 > RESERVE_BYTES * 0.9
    assert all(done)
    assert not [*(disk / "root").rglob(".tmp-[!r]*")]
    (disk / "filling").unlink()
    assert store.reserve(RESERVE_BYTES, 0)
