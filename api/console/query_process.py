"""One process that answers queries (log_tables/sql/server.py), as its gateway sees it."""

import asyncio
import logging
import os
import signal
import sys
from typing import NamedTuple

import msgspec

from log_tables.errors import InvalidArgument, LakelogError, Retriable, StoreUnavailable, error_named
from log_tables.sql.query_request import (
    HEAD,
    FrameKind,
    QueryFailure,
    QueryRequest,
    QueryResult,
    RootRequest,
)
from log_tables.sql.server import OUT_OF_MEMORY

_CRASHES = (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS)


_log = logging.getLogger(__name__)


class Frame(NamedTuple):
    """A frame of an answer."""

    kind: FrameKind
    content: bytes


class QueryCrash(Exception):
    """A mistake of ours in the process of a query; the text is its traceback."""


class QueryProcess:
    """A process that answers one query at a time. Used on the event loop."""

    def __init__(self, process: asyncio.subprocess.Process, root: RootRequest) -> None:
        self._process, self._root = process, root
        self._why: LakelogError | None = None
        self._answering = True  # it opens the root
        self.memory_bytes = 0  # after its last query

    @classmethod
    async def start(cls, root: RootRequest) -> "QueryProcess":
        """A process that has opened the root, which takes about a second. Raises what opening it raises;
        StoreUnavailable where there is none any more.
        """
        # With the paths of this process and without its working directory: that may have a `log_tables`.
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "log_tables.sql.server"),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the gateway
        )
        made = cls(process, root)
        try:
            await made._send(root)
            await made.read()
        except InvalidArgument as error:
            made.end()
            _log.error("a process for queries cannot open the root: %s", error)  # with its path
            raise StoreUnavailable("the root cannot be opened for queries; repeat the query") from None
        except BaseException:
            made.end()
            raise
        return made

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    @property
    def is_ready(self) -> bool:
        """Whether it may be asked: it runs, and the last query is answered."""
        return not (self._answering or self.has_ended)

    async def ask(self, request: QueryRequest) -> None:
        """Begin a query; `read` gives its answer."""
        self._answering = True
        await self._send(request)

    async def read(self) -> Frame:
        """The next frame. Raises the error of the query, or why the process has ended."""
        out = self._process.stdout
        assert out is not None
        try:
            kind, length = HEAD.unpack(await out.readexactly(HEAD.size))
            frame = Frame(FrameKind(kind), await out.readexactly(length))
        except (asyncio.IncompleteReadError, OSError):
            raise self._why or self._ended(await self._process.wait()) from None
        self._answering = frame.kind not in (FrameKind.READY, FrameKind.DONE, FrameKind.ERROR)
        if frame.kind is FrameKind.DONE:
            self.memory_bytes = msgspec.json.decode(frame.content, type=QueryResult).memory_bytes
        if frame.kind is FrameKind.ERROR:
            failure = msgspec.json.decode(frame.content, type=QueryFailure)
            self.memory_bytes = failure.memory_bytes
            raise error_of(failure)
        return frame

    def end(self, why: LakelogError | None = None) -> None:
        """End it at once, whatever it does; `why` is what its reader is told."""
        self._why = self._why or why
        if not self.has_ended:
            self._process.kill()

    async def wait(self) -> None:
        """Wait until it has ended."""
        await self._process.wait()

    async def _send(self, message: msgspec.Struct) -> None:
        into = self._process.stdin
        assert into is not None
        try:
            into.write(msgspec.json.encode(message) + b"\n")
            await into.drain()
        except OSError:
            pass  # it has ended, and `read` says why

    def _ended(self, code: int) -> LakelogError:
        if code == OUT_OF_MEMORY:
            return InvalidArgument(
                f"the query took more than {self._root.memory_bytes >> 20} MiB of memory (sql_memory); ask "
                "for fewer rows or columns, or group by less"
            )
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        if code in _CRASHES:
            return InvalidArgument(f"the query was too much for its process ({how}); make it simpler")
        return Retriable(f"the process of the query was ended from outside ({how}); repeat the query")


def error_of(failure: QueryFailure) -> Exception:
    """The error that a process tells."""
    if not failure.code:
        return QueryCrash(failure.message)
    return error_named(failure.code, failure.message)
