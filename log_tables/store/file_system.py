"""The file system of a directory, and whether it keeps the order of names and files."""

import os
import re
from pathlib import Path

_ORDERED = frozenset({"ext4", "xfs", "btrfs"})
"""Where the fsync of a new file makes its name durable too, which POSIX does not promise."""

_MOUNT_ID = re.compile(r"^mnt_id:\s*(\d+)$", re.MULTILINE)


def keeps_order(directory: Path) -> bool:
    """Whether a new file in `directory` has its name durable once the file is fsynced. Only Linux tells."""
    return file_system(directory) in _ORDERED


def file_system(directory: Path) -> str:
    """The type of the file system of `directory` in Linux' words, such as ext4; empty if it is not known."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            opened = Path(f"/proc/self/fdinfo/{descriptor}").read_text()
        finally:
            os.close(descriptor)
        mounts = Path("/proc/self/mountinfo").read_text(errors="replace")
    except OSError:
        return ""
    # Not by its device: that of a btrfs subvolume is in no list of mounts, and ext2 has ext4's magic number.
    mount = _MOUNT_ID.search(opened)
    types = {line.split(" ", 1)[0]: _type(line) for line in mounts.splitlines()}
    return types.get(mount[1], "") if mount else ""


def _type(line: str) -> str:
    """The type of a mount in its line of mountinfo, proc_pid_mountinfo(5)."""
    _, _, described = line.partition(" - ")
    return described.split(" ", 1)[0]
