"""A worker of the local engine: `python -m jobs.local_worker DIRECTORY NICENESS`.

It takes (function, item) from standard input, one at a time, and answers what `attempt` gives. It ends when
standard input does, in the middle of its work, too: so it never outlives the process that started it, which
decides alone what a signal means. DIRECTORY is the scratch directory of that process; it goes with it.
NICENESS is added to that of its parent.
"""

import os
import pickle
import shutil
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO

from log_tables.task import attempt

_OUT_OF_MEMORY_FIRST = b"500"
"""Of -1000 to 1000: when memory runs out, Linux ends a worker before its parent, or a gateway."""


def main(directory: str, niceness: int) -> None:
    """Work until standard input ends."""
    os.nice(niceness)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_bytes(_OUT_OF_MEMORY_FIRST)
    answers = _standard_output()
    asked: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(asked, directory), daemon=True).start()
    while True:
        answers.write(_answer(asked.get()))
        answers.flush()


def _standard_output() -> BinaryIO:
    """It, for answers alone: whatever prints does so to standard error from now on."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def _listen(asked: "SimpleQueue[bytes]", directory: str) -> None:
    with suppress(EOFError, OSError, pickle.UnpicklingError):
        while True:
            asked.put(pickle.load(sys.stdin.buffer))  # noqa: S301 -- from the parent
    shutil.rmtree(directory, ignore_errors=True)
    os._exit(0)


def _answer(asked: bytes) -> bytes:
    try:
        function, item = pickle.loads(asked)  # noqa: S301 -- likewise
        return pickle.dumps(attempt(function, item))
    except Exception as error:  # noqa: BLE001 -- it is the item's failure
        return pickle.dumps(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
