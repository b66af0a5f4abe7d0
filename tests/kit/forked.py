"""`lakelog` as a process that is forked from one that has imported it: imports are most of a start."""

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
from select import select
from tempfile import TemporaryFile
from threading import Lock

from tests.kit.fork_server import NUMBER_BYTES
from tests.kit.support import ROOT, WAIT_S

_starting = Lock()


class ForkedLakelog:
    """`python -m lakelog` with these words, used as a `subprocess.Popen` is; `stdout` is text."""

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str] | None = None, errors: int = 2
    ) -> None:
        """`errors` is a file for what it says to stderr."""
        self.args = ["lakelog", *words]
        asked = {
            "words": [*words],
            "environment": dict(os.environ if environment is None else environment),
            "directory": os.getcwd(),
        }
        said, saying = os.pipe()
        told, telling = os.pipe()
        try:
            message = json.dumps(asked).encode()
            with _starting:  # two threads would start two, and the first to be forgotten ends
                server = _server(os.getpid())
            socket.send_fds(server, [message], [saying, errors, telling])
        finally:
            os.close(saying)
            os.close(telling)
        self.stdout = TextIOWrapper(os.fdopen(said, "rb"))
        self._told = os.fdopen(told, "rb", buffering=0)
        self.pid = int.from_bytes(self._told.read(NUMBER_BYTES))
        assert self.pid, "the server of forked processes has ended"
        self.returncode: int | None = None
        self._reading = Lock()

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


def run_lakelog(
    *words: str, environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run `lakelog` with these words; the result is as that of `subprocess.run`."""
    with TemporaryFile() as errors:
        process = ForkedLakelog(words, environment, errors.fileno())
        said, code = process.stdout.read(), process.wait(WAIT_S)
        errors.seek(0)
        return subprocess.CompletedProcess(process.args, code, said, errors.read().decode())


@cache
def _server(_owner: int) -> socket.socket:
    """The socket to the server of this process, which ends when nobody has the socket any longer."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "tests.kit.fork_server", str(its.fileno())]
    # As `lakelog serve` sets it before it loads Arrow.
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}
    subprocess.Popen(command, cwd=ROOT, pass_fds=[its.fileno()], env=environment, stdin=subprocess.DEVNULL)
    its.close()
    return ours
