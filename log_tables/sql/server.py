"""The process that answers the queries of a gateway: `python -m log_tables.sql.server`.

It is a process of its own, so no query holds up the gateway, and each can be ended at once. It answers one
query at a time (log_tables/sql/query_request.py), and writes no file. It ends with its standard input, in the
middle of a query too: so it never outlives its gateway.
"""

import os
import resource
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO

import msgspec

from log_tables.clock import SystemClock
from log_tables.sql.query_request import FrameKind, QueryRequest, RootRequest, frame
from log_tables.without_pandas import WithoutPandas

OUT_OF_MEMORY = 77
"""The exit status of a process whose query took more memory than it may."""

_NICE = 10
"""Requests to the gateway go first."""

_OUT_OF_MEMORY_FIRST = b"900"
"""Of -1000 to 1000: when memory runs out, Linux ends a query before anything else of ours."""

_LOOK_S = 0.05
_COUNTED_SHARE = 2
"""DataFusion counts this part of the memory that a query takes, at least: one in so many."""


def main() -> None:
    """Answer queries until standard input ends."""
    _settle()
    # After that: what a query needs takes half a second of a processor.
    from log_tables.sql.query_answer import answer, failure, opened

    out = _standard_output()
    asked: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()

    def send(kind: FrameKind, content: bytes = b"") -> None:
        out.write(frame(kind, content))
        out.flush()

    try:
        root = msgspec.json.decode(asked.get(), type=RootRequest)
        cluster = opened(root)
    except Exception as error:  # noqa: BLE001 (the gateway tells what it is)
        send(FrameKind.ERROR, failure(error, 0))
        os._exit(0)  # the thread that reads would be in the way of an orderly end
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    busy = threading.Event()
    threading.Thread(target=_watch_memory, args=(busy, root.memory_bytes), daemon=True).start()
    send(FrameKind.READY)
    while True:
        request = msgspec.json.decode(asked.get(), type=QueryRequest)
        busy.set()
        try:
            result = answer(cluster, request, root.memory_bytes // _COUNTED_SHARE, send)
            result.memory_bytes = _resident_bytes()
            send(FrameKind.DONE, msgspec.json.encode(result))
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except Exception as error:  # noqa: BLE001 (as above)
            send(FrameKind.ERROR, failure(error, _resident_bytes()))
        busy.clear()


def _settle() -> None:
    """Let the process stand behind all others, and leave what ends it to its gateway."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICE)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_bytes(_OUT_OF_MEMORY_FIRST)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # its memory holds records
    sys.meta_path.insert(0, WithoutPandas())


def _standard_output() -> BinaryIO:
    """It, for frames alone: whatever prints does so to standard error from now on."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return out


def _listen(asked: "SimpleQueue[bytes]") -> None:
    with suppress(OSError):
        for line in sys.stdin.buffer:
            asked.put(line)
    os._exit(0)


def _watch_memory(busy: threading.Event, most: int) -> None:
    """End the process when a query takes more than `most` bytes.

    A bound of the system would not do: allocators reserve gigabytes that they never touch.
    """
    clock = SystemClock()
    while busy.wait():
        if _resident_bytes() > most:
            os._exit(OUT_OF_MEMORY)
        clock.pause(_LOOK_S)


def _resident_bytes() -> int:
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize()
    except OSError:  # macOS has no /proc, and tells the peak
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
