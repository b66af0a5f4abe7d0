"""A process that has imported what gateways import, and forks them: the server of lakelog/testing/forked.py.

Each message on the socket whose number is its first argument asks for a child, by its module, words,
environment and directory. With it come four files: for stdin, stdout and stderr, and a pipe for its id and
then its status. Its other arguments are more modules to import.
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
FILES = 4
IMPORTED = (
    "api.process.server",
    "api.kafka.listener",
    "uvicorn.lifespan.on",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.http.httptools_impl",
)


def main() -> None:
    """Serve until nobody can ask any longer; in a child, be what was asked for."""
    gc.disable()
    for name in (*IMPORTED, *sys.argv[2:]):
        import_module(name)
    import_module("api.process.app").routes()
    gc.freeze()  # no child looks at what it shares; what is garbage by now costs less than to look for it
    gc.enable()
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
            message, files, _, _ = socket.recv_fds(control, MESSAGE_MAX, FILES)
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
            for each in files[:-1]:
                os.close(each)
            statuses[pid] = files[-1]
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
    for number, each in enumerate(files[:-1]):
        os.dup2(each, number)
    for each in files:
        os.close(each)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["directory"])
    if asked["environment"].get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    sys.argv = [asked["module"], *asked["words"]]
    runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
