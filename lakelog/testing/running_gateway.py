"""A gateway for a test: a process of its own, on free ports, that the test may let fail."""

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Any, TextIO

from lakelog.testing.faults import Fault, FaultKind
from log_tables.errors import InvalidArgument, LakelogError, Retriable, Unreachable

if TYPE_CHECKING:
    from lakelog.testing.forked import ForkedProcess

_MODULE = "lakelog.testing.server"
_FAULTS = "lakelog.testing.faults"
_END_S = 30.0
_MEMORY = Path("/dev/shm")  # noqa: S108 (a directory of its own is made there)
_FAST = {"linger_ms": 0, "leader_timeout_ms": 500}
"""Tests send few records, and do not wait for more; a gateway that was killed is soon followed."""


class RunningGateway:
    """A running gateway: `url` for HTTP, `kafka` (host:port) for Kafka's clients, its tables in `data`.

    Faults hold for the next requests over HTTP whose path contains `path`, by `method` if one is named:
    `times` of them, or all with None. `kill`, `pause` and their like hold for Kafka's clients, too.
    """

    def __init__(self, data: str | Path, **settings: Any) -> None:
        """Starts it. `settings` are those of docs/operating.md. Raises InvalidArgument, Unreachable."""
        self.data = str(data)
        self.kafka = f"127.0.0.1:{_free_port()}"
        self._settings = {**_FAST, "port": 0, **settings, "data": self.data, "kafka_listener": self.kafka}
        self._settings.setdefault("log_level", "error")
        self.url = ""
        self._files = ExitStack()
        self.start()

    def start(self) -> None:
        """Start it again, at its addresses and on its tables, after `kill` or `stop`. Its faults are over."""
        self._files.close()
        self._process, self._control = _started(json.dumps(self._settings))
        assert self._process.stdout is not None
        self._files.callback(self._hang_up)
        self._files.enter_context(self._process.stdout)
        ready = self._line()
        if "ready at" not in ready:
            code = self._process.wait(_END_S)
            self._files.close()
            raise Unreachable(f"the gateway ended with exit code {code}; its error is on standard error")
        self.url = ready.split("ready at ")[1].split()[0]
        self._settings["port"] = int(self.url.rpartition(":")[2])

    def refuse(
        self,
        path: str = "",
        *,
        method: str = "",
        times: int | None = 1,
        error: type[LakelogError] = Retriable,
    ) -> None:
        """Do nothing of a request, and answer it with `error`."""
        self._fail(FaultKind.REFUSE, path, method, times, error=error.code)

    def delay(self, seconds: float, path: str = "", *, method: str = "", times: int | None = 1) -> None:
        """Let a request wait before it is looked at."""
        self._fail(FaultKind.DELAY, path, method, times, seconds=seconds)

    def lose_answer(self, path: str = "", *, method: str = "", times: int | None = 1) -> None:
        """Do what a request asks for, and close its connection without an answer."""
        self._fail(FaultKind.LOSE_ANSWER, path, method, times)

    def heal(self) -> None:
        """Forget all faults. A gateway that is paused goes on, and one that was killed is started."""
        if self._process.poll() is not None:
            self.start()
            return
        self.resume()
        self._tell(None)

    def kill(self) -> None:
        """End it at once, as a crash does. What it acknowledged stays."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it in order; returns its exit code, 0 if all is well."""
        self.resume()
        return self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Let it stand still: connections are accepted by the system, and nothing is answered."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self._process.send_signal(signal.SIGCONT)

    def _fail(self, kind: FaultKind, path: str, method: str, times: int | None, **facts: Any) -> None:
        if times is not None and times < 1:
            raise InvalidArgument(f"times is {times}; name a number from 1, or None for every request")
        self._tell(Fault(kind, path, method.upper(), times, **facts))

    def _tell(self, fault: Fault | None) -> None:
        """Have one more fault, with None no more. Raises Unreachable when it is not there to hear of it."""
        gone = f"the gateway at {self.url} has ended; start it first"
        if self._process.poll() is not None:
            raise Unreachable(gone)
        try:
            self._control.write(json.dumps(fault and fault.plain()) + "\n")
            self._control.flush()
        except OSError:
            raise Unreachable(gone) from None
        if not self._line():
            raise Unreachable(gone)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def _end(self, number: signal.Signals) -> int:
        self._process.send_signal(number)
        try:
            code = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            code = self._process.wait(_END_S)
        self._files.close()
        return code

    def _hang_up(self) -> None:
        with suppress(OSError):  # what was not written before it ended
            self._control.close()


@contextmanager
def gateway(data: str | Path | None = None, **settings: Any) -> Iterator[RunningGateway]:
    """A gateway that runs until the block ends, on the directory `data`, or in memory, which is forgotten.

    `settings` are those of docs/operating.md, such as `linger_ms=5`.
    """
    own = None if data is not None else tempfile.mkdtemp(prefix="lakelog-", dir=_memory())
    try:
        running = RunningGateway(own or Path(data or "").resolve(), **settings)
        try:
            yield running
        finally:
            running.stop()
    finally:
        if own is not None:
            shutil.rmtree(own, ignore_errors=True)


def _memory() -> Path | None:
    """The directory of temporary files in memory; None where the system has none."""
    return _MEMORY if os.access(_MEMORY, os.W_OK) else None


def _free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _started(settings: str) -> "tuple[ForkedProcess | subprocess.Popen[str], TextIO]":
    """The process, and what writes to its standard input."""
    heard, telling = os.pipe()
    try:
        process = _process(settings, heard)
    except BaseException:
        os.close(telling)
        raise
    finally:
        os.close(heard)
    return process, os.fdopen(telling, "w")


def _process(settings: str, heard: int) -> "ForkedProcess | subprocess.Popen[str]":
    from lakelog.testing.forked import ROOT, ForkedProcess

    environment = _environment(os.environ)
    if platform.system() == "Linux":  # elsewhere a fork of a process with libraries is no safe one
        return ForkedProcess(_MODULE, [settings], environment, (heard, 2), [_FAULTS])
    command = [sys.executable, "-m", _MODULE, settings]
    paths = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH", "")]))
    return subprocess.Popen(
        command, stdin=heard, stdout=subprocess.PIPE, text=True, env={**environment, "PYTHONPATH": paths}
    )


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables without those of lakelog: a test's gateway has the settings that the test names."""
    return {name: value for name, value in variables.items() if not name.startswith("LAKELOG_")}
