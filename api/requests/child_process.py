"""A command of `lakelog` in a process of its own: what takes long, or is no part of a gateway.

It may take so much time and print so much, few run at once, and at a low priority. It is killed when the
time is over, when nobody waits for it any more, and when the gateway stops. Settings, of which those of the
store hold secrets, are in its environment: other users of the machine see its arguments.

Pages show what one has printed, as do routes whose work needs more than a gateway has: the brokers of a
mirror's source.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import IO, Any, NamedTuple

import msgspec
from starlette.requests import Request

from api.requests.heads import foreign_site
from ingest.settings import Settings
from log_tables.clock import Clock
from log_tables.errors import LakelogError, Retriable, error_named


class CommandResult(NamedTuple):
    """The output of a command, and how long it took. `failed` says why there is none, and `error` is the code
    of the error that the command has named, if it has.
    """

    output: bytes
    seconds: float
    failed: str = ""
    error: str = ""

    def checked(self) -> bytes:
        """The output. Raises the error that has ended the command; Retriable where it was not let end."""
        if self.failed:
            raise error_named(self.error or Retriable.code, self.failed)
        return self.output


AT_ONCE = 2
OUTPUT_MAX_BYTES = 8 * 1024 * 1024
ERRORS_READ_BYTES = 64 * 1024
SHOWN_CHARS = 600
PRIORITY = 10
"""How far a command stands back behind the gateway, as for `nice`."""

_OF_SETTINGS = "LAKELOG_"
_BROKEN = 1
"""The exit code of a command that has printed its result, which is bad."""


class _Outcome(NamedTuple):
    """The output of a command that has ended; or why there is none, and the code of that error."""

    output: bytes
    failed: str = ""
    error: str = ""


class _NamedError(msgspec.Struct):
    """An error as a command with --json prints it."""

    error: str
    message: str


class CommandRunner:
    """The commands that requests to one gateway have asked for. Used on the event loop."""

    def __init__(self, settings: Settings, clock: Clock, stopping: asyncio.Event) -> None:
        """`stopping` is set when the gateway begins to stop."""
        self._settings, self._clock, self._stopping = settings, clock, stopping
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="lakelog-command")
        self._running = 0

    async def run(self, request: Request, words: Sequence[str], limit_s: float) -> CommandResult:
        """The output of `lakelog` with the arguments `words`, until the client of `request` goes away.

        A page of another origin starts nothing: its reader has not asked for it.
        """
        if foreign_site(request.scope):
            return CommandResult(b"", 0.0, "a page of another origin has asked; load this page again")
        if self._running >= AT_ONCE:
            return CommandResult(
                b"",
                0.0,
                f"{AT_ONCE} commands run for other requests; wait until one has ended, and try again",
            )
        self._running += 1
        begun = self._clock.monotonic()
        try:
            output, failed, error = await self._run(request, words, limit_s)
        finally:
            self._running -= 1
        return CommandResult(output, self._clock.monotonic() - begun, failed, error)

    async def _run(self, request: Request, words: Sequence[str], limit_s: float) -> _Outcome:
        command = _Command(words, environment(self._settings, os.environ))
        work = asyncio.get_running_loop().run_in_executor(self._threads, command.run)
        unwanted = [asyncio.create_task(_left(request)), asyncio.create_task(self._stopped())]
        try:
            waited: list[asyncio.Future[Any]] = [work, *unwanted]
            done, _ = await asyncio.wait(waited, timeout=limit_s, return_when="FIRST_COMPLETED")
            if work in done:
                return work.result()
            if done:
                return _Outcome(b"", "it was stopped, as nobody waits for it; ask again")
            shown = " ".join(("lakelog", *words))
            return _Outcome(
                b"", f"it took longer than {limit_s:g} s and was stopped; run `{shown}` in a shell"
            )
        finally:
            command.end()
            for task in unwanted:
                task.cancel()
            await asyncio.gather(work, *unwanted, return_exceptions=True)

    async def _stopped(self) -> None:
        await self._stopping.wait()


class _Command:
    """One process. A thread runs it, and any other may end it, before it has begun as well.

    asyncio's own processes hang when a request is cancelled while they start.
    """

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self._words, self._environment = words, environment
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False

    def run(self) -> _Outcome:
        """Run it to its end. Blocking."""
        with tempfile.TemporaryFile() as errors:
            with self._lock:
                if self._ended:
                    return _Outcome(b"", "it was stopped")
                self._process = process = subprocess.Popen(
                    [sys.executable, "-m", "lakelog", *self._words],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env=self._environment,
                    start_new_session=True,
                )
            with suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, process.pid, PRIORITY)
            assert process.stdout is not None
            with process.stdout:
                output = process.stdout.read(OUTPUT_MAX_BYTES + 1)
            if len(output) > OUTPUT_MAX_BYTES:
                self.end()
            code = process.wait()
            return _outcome(output, code, _last_line(errors))

    def end(self) -> None:
        """Kill it, if it runs or is about to."""
        with self._lock:
            self._ended = True
            if self._process is not None and self._process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)


def environment(settings: Settings, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command: the root of this gateway, whatever its settings file or its flags are.

    Other settings of the gateway, and the secrets among them, are left out.
    """
    kept = {name: value for name, value in inherited.items() if not name.startswith(_OF_SETTINGS)}
    own = {
        "CONFIG": os.devnull,
        "DATA": settings.data,
        "STORE_OPTIONS": json.dumps(settings.store_options),
        "MAINTAIN_ENGINE": settings.maintain_engine,
        "MAINTAIN_LOCAL_MAX_BYTES": str(int(settings.maintain_local_max_bytes)),
        "LOG_LEVEL": "error",
        "CONTEXT": "",  # that of whoever started the gateway says nothing to it
    }
    return kept | {_OF_SETTINGS + name: value for name, value in own.items()}


async def _left(request: Request) -> None:
    """Return when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _outcome(output: bytes, code: int, said: str) -> _Outcome:
    if len(output) > OUTPUT_MAX_BYTES:
        return _Outcome(
            b"", f"it printed more than {OUTPUT_MAX_BYTES >> 20} MiB; run it in a shell, for one topic"
        )
    if code == 0 or (code == _BROKEN and output):
        return _Outcome(output)
    try:
        named = msgspec.json.decode(said, type=_NamedError)
    except msgspec.MsgspecError:
        return _Outcome(b"", (said or f"it ended with exit code {code}")[:SHOWN_CHARS], LakelogError.code)
    return _Outcome(b"", named.message[:SHOWN_CHARS], named.error)


def _last_line(errors: IO[bytes]) -> str:
    """The last line that a command has printed on its standard error."""
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - ERRORS_READ_BYTES))
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def commands(request: Request) -> CommandRunner:
    """The commands of the gateway that serves `request`: `app.state.commands`."""
    found: CommandRunner = request.app.state.commands
    return found
