"""Processes, as /proc shows them: whose child is whose, which ones live; and signals to them."""

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path


def send(number: signal.Signals, processes: Iterable[int]) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def children(parent: int) -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int(status(int(entry.name))[1]) == parent:
                yield int(entry.name)


def descendants(parent: int) -> Iterator[int]:
    for child in children(parent):
        yield child
        yield from descendants(child)


def status(pid: int) -> list[str]:
    """State, parent, … of a process."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def state(pid: int) -> str:
    with suppress(OSError):
        return status(pid)[0]
    return ""


def alive(pid: int) -> bool:
    return state(pid) not in ("", "Z")


def command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""
