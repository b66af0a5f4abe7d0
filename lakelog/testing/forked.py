"""A process that is forked from one that has imported what it needs: imports are most of a start."""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from io import TextIOWrapper
from pathlib import Path
from select import select
from threading import Lock

from lakelog.testing.fork_server import NUMBER_BYTES

ROOT = Path(__file__).resolve().parents[2]
"""The folder of the packages."""

_starting = Lock()


class ForkedProcess:
    """`python -m MODULE` with these words, used as a `subprocess.Popen` is; `stdout` is text."""

    def __init__(
        self,
        module: str,
        words: Sequence[str],
        environment: Mapping[str, str] | None = None,
        files: tuple[int, int] = (0, 2),
        imported: Sequence[str] = (),
    ) -> None:
        """`files` are those for its stdin and its stderr. `imported` are modules that its server imports."""
        self.args = [module, *words]
        asked = {
            "module": module,
            "words": [*words],
            "environment": dict(os.environ if environment is None else environment),
            "directory": os.getcwd(),
        }
        said, saying = os.pipe()
        told, telling = os.pipe()
        try:
            message = json.dumps(asked).encode()
            with _starting:  # two threads would start two, and the first to be forgotten ends
                server = _server(os.getpid(), tuple(imported))
            socket.send_fds(server, [message], [files[0], saying, files[1], telling])
        finally:
            os.close(saying)
            os.close(telling)
        self.stdout = TextIOWrapper(os.fdopen(said, "rb"))
        self._told = os.fdopen(told, "rb", buffering=0)
        self.pid = int.from_bytes(self._told.read(NUMBER_BYTES))
        assert self.pid, "the server of forked processes has ended"
        self.returncode: int | None = None
        self._reading = Lock()

    def __del__(self) -> None:
        # Not earlier: another thread may wait for it. `stdout` is its reader's to close, as that of a Popen.
        if hasattr(self, "_told"):
            self._told.close()

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, −N for signal N. Raises subprocess.TimeoutExpired."""
        if self.returncode is None and not select([self._told], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        with self._reading:
            if self.returncode is None:
                status = self._told.read(NUMBER_BYTES)
                assert status, "the server of forked processes has ended"
                self.returncode = os.waitstatus_to_exitcode(int.from_bytes(status))
            return self.returncode

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def _server(owner: int, imported: tuple[str, ...]) -> socket.socket:
    """The socket to the server of this process, which ends when nobody has the socket any longer."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "lakelog.testing.fork_server", str(its.fileno()), *imported]
    # As `lakelog serve` sets it before it loads Arrow.
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
    process = subprocess.Popen(
        command, cwd=ROOT, pass_fds=[its.fileno()], env=environment, stdin=subprocess.DEVNULL
    )
    its.close()
    atexit.register(_end, owner, process, ours)
    return ours


def _end(owner: int, process: "subprocess.Popen[bytes]", control: socket.socket) -> None:
    """End the server with its process, and not with one that was forked from that. Its children go on."""
    control.close()
    if os.getpid() == owner:
        process.kill()
        process.wait()
