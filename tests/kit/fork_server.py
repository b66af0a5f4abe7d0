"""A process that has imported what `lakelog` imports, and forks it: the server of `tests.kit.forked`.

Each message on the socket whose number is its argument asks for a child, by its words, environment and
directory. With it come three files: for stdout, for stderr, and a pipe for its id and then its status.
"""

import faulthandler
import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module

MESSAGE_MAX = 1 << 18
NUMBER_BYTES = 8
IMPORTED = (
    "api.process.server",
    "api.process.workers",
    "jobs.maintenance",
    "lakelog.cli.maintainer",
    "lakelog.cli.commands.serve",
    "uvicorn.lifespan.on",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.http.httptools_impl",
)


def main() -> None:
    """Serve until nobody can ask any longer; in a child, be `lakelog`."""
    for name in IMPORTED:
        import_module(name)
    import_module("api.process.app").routes()
    gc.collect()
    gc.freeze()  # no child looks at what it shares
    control = socket.socket(fileno=int(sys.argv[1]))
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    statuses: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([control.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _reap(statuses)
        if control.fileno() in ready:
            message, files, _, _ = socket.recv_fds(control, MESSAGE_MAX, 3)
            if not message:
                return
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                control.close()
                for each in (woken, wake, *statuses.values()):
                    os.close(each)
                _become(message, files)
                return
            for each in files[:2]:
                os.close(each)
            statuses[pid] = files[2]
            os.write(statuses[pid], pid.to_bytes(NUMBER_BYTES))


def _reap(statuses: dict[int, int]) -> None:
    """Tell how children ended that have."""
    while statuses:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with suppress(BrokenPipeError):  # nobody asks any longer
            os.write(statuses[pid], status.to_bytes(NUMBER_BYTES))
        os.close(statuses.pop(pid))


def _become(message: bytes, files: list[int]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    asked = json.loads(message)
    for number, each in enumerate(files[:2], 1):
        os.dup2(each, number)
    for each in files:
        os.close(each)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["directory"])
    if asked["environment"].get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    sys.argv = ["lakelog", *asked["words"]]
    runpy.run_module("lakelog", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
