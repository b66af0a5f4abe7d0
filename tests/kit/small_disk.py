"""A small disk of a test's own, and how it becomes full."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def small_disk(path: Path, size_bytes: int, files: int = 0) -> Iterator[Path]:
    """A disk of `size_bytes` at the directory `path`, of so many `files` at most if that is not 0; skips the
    test where this account may mount none.
    """
    path.mkdir()
    options = f"size={size_bytes}" + (f",nr_inodes={files}" if files else "")
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("this account may not mount a disk")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)  # a process may not have closed all of it


def fill_inodes(directory: Path) -> None:
    """Make empty files below a new `directory` until its disk has no inode left."""
    directory.mkdir()
    with suppress(OSError):
        for number in range(1 << 20):
            (directory / str(number)).touch()


def fill(path: Path) -> None:
    """Let a file take all the room that is left on its disk."""
    for size in (1 << 20, 4_096):
        with suppress(OSError), path.open("ab", buffering=0) as file:
            while file.write(bytes(size)):
                pass


@contextmanager
def quota_disk(path: Path, quota_bytes: int) -> Iterator[Path]:
    """A directory of a disk of its own beside `path`, with a quota that statvfs does not show: the system
    says EDQUOT to whoever goes beyond, root too. Skips the test where there is no btrfs, or none may be
    mounted.
    """
    if None in map(shutil.which, ("mkfs.btrfs", "btrfs")):
        pytest.skip("there is no btrfs, whose quotas hold for all")
    image, disk = path.with_suffix(".image"), path.with_suffix(".disk")
    with image.open("wb") as file:
        file.truncate(4 * quota_bytes)
    disk.mkdir()
    subprocess.run(["mkfs.btrfs", "-q", "--mixed", str(image)], check=True, capture_output=True)
    mount = ["mount", "-o", "loop", str(image), str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("this account may not mount a disk")
    try:
        part = disk / "part"
        for words in (
            ("quota", "enable", str(disk)),
            ("subvolume", "create", str(part)),
            ("qgroup", "limit", str(quota_bytes), str(part)),
        ):
            subprocess.run(["btrfs", *words], check=True, capture_output=True)
        yield part
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
