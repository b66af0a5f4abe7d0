"""Several gateway processes behind one port of a machine, to use its cores.

The kernel shares the connections out (SO_REUSEPORT). Each process is a gateway like any other, with a port of
its own at which the others reach it.
"""

import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

from api.process.cluster_secret import with_peer_secret
from api.process.server import SHUT_STATUS, kafka_address, listen, run, say, scheme_of, url_of
from coordinator.access.host import host_and_port
from ingest.opening import cluster_of, pinned
from ingest.settings import Settings
from log_tables.clock import SystemClock
from log_tables.errors import InvalidConfig, InvalidRequest, LakelogError

RESTART_S = 1.0
"""How long after its death a worker is started again."""

SOCKET_DIRECTORY_MAX_BYTES = 80
"""The path of a Unix socket has 103 bytes at most, on macOS."""

_Ports = tuple[int, int | None]
"""Of one worker: for the other gateways, and for Kafka's clients, if it listens for them."""

_log = logging.getLogger(__name__)
_spawn = multiprocessing.get_context("spawn")


def run_workers(settings: Settings, count: int) -> None:
    """Serve by `count` processes until SIGTERM or SIGINT; one that dies is started again.

    Prints one line when all of them answer. Raises InvalidConfig, OSError; SystemExit(1) when one could not
    be started, or did not end in order, and SystemExit(2) when one must not serve with these settings.
    """
    if settings.peer_url:
        raise InvalidConfig(
            f"peer_url={settings.peer_url!r} cannot be that of {count} workers: each listens on a free "
            "port of its own; leave it out, or start several gateways"
        )
    listen(settings.host, settings.port).close()  # so that others do not share it by mistake
    with ExitStack() as stack:
        # Bound, and never listened on: that keeps these ports theirs, also while one is started again.
        held, *own = (
            stack.enter_context(listen(settings.host, port, shared=True))
            for port in (settings.port, *[0] * count)
        )
        port, url = (
            held.getsockname()[1],
            url_of(settings.host, held, scheme_of(settings)),
        )
        told = {"port": port, "advertised_url": settings.advertised_url or url}
        settings = settings.model_copy(update=told)
        clock = SystemClock()
        cluster = cluster_of(settings, clock, create=True)
        settings = pinned(settings, cluster)  # also for a worker that is started again
        settings = with_peer_secret(settings, cluster.store, clock)  # in a bucket, too, all have the same
        ports = [each.getsockname()[1] for each in own]
        kafka_ports: list[int | None] = [None] * count
        if settings.kafka_listener:
            host, kafka_port = host_and_port(settings.kafka_listener)
            bound, *led_to = (
                stack.enter_context(listen(host, each, shared=True)) for each in (kafka_port, *[0] * count)
            )
            told = {"kafka_listener": kafka_address(host, bound)}
            settings = settings.model_copy(update=told)
            kafka_ports = [each.getsockname()[1] for each in led_to]
        sockets = stack.enter_context(socket_directory())
        _Workers(settings, [*zip(ports, kafka_ports, strict=True)], sockets).run()


@contextmanager
def socket_directory(parent: Path | None = None) -> Iterator[Path | None]:
    """A directory for the sockets at which the workers ask one another, which only this user may enter: in
    `parent`, or where the system has its temporary files. None where there can be none, which is logged.
    """
    with ExitStack() as stack:
        made, why = None, ""
        try:
            directory = TemporaryDirectory(prefix="lakelog-", dir=parent, ignore_cleanup_errors=True)
            made = Path(stack.enter_context(directory))
        except OSError as error:
            why = str(error)
        if made is not None and len(bytes(made)) > SOCKET_DIRECTORY_MAX_BYTES:
            made, why = None, f"the path {made} is too long"
        if made is None:
            _log.warning(
                "workers ask one another by HTTP, which is slower, as there is no directory for sockets: %s; "
                "set TMPDIR to one with a short path, in which lakelog may write",
                why,
            )
        yield made


class _Workers:
    def __init__(self, settings: Settings, ports: list[_Ports], sockets: Path | None) -> None:
        """`ports` are those that the workers have to themselves."""
        self._settings, self._ports, self._sockets = settings, ports, sockets
        # Not an Event: its lock may be held by the very code that a signal interrupts.
        self._stopping = False
        self._running: dict[SpawnProcess, tuple[_Ports, Connection]] = {}

    def run(self) -> None:
        signals = {
            number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)
        }
        ready = False
        try:
            started = [self._start(ports) for ports in self._ports]
            lines = [line for each in started if (line := _said(each)) is not None]
            ready = len(lines) == len(started)
            if ready:
                say(lines[0])
                self._keep_running()
        finally:
            failed = self._end()
            for number, handler in signals.items():
                signal.signal(number, handler)
        if failed or not (ready or self._stopping):
            raise SystemExit(self._exit_status())

    def _start(self, ports: _Ports) -> Connection:
        """Another worker; it sends its line when it is ready."""
        heard, said = _spawn.Pipe(duplex=False)
        process = _spawn.Process(target=_work, args=(self._settings, ports, said, self._sockets))
        # Ctrl-C in a terminal goes to all processes, and is the parent's alone to hear: see `_work`.
        resource_tracker.ensure_running()  # it would unblock the signal where it starts
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        said.close()  # so that the end of the worker is the end of the pipe
        self._running[process] = (ports, heard)
        return heard

    def _keep_running(self) -> None:
        while not self._stopping:
            wait([process.sentinel for process in self._running], timeout=RESTART_S)
            dead = [process for process in self._running if not process.is_alive()]
            if self._exit_status() == SHUT_STATUS:
                return
            for process in dead:
                wait((), timeout=RESTART_S)
                if not self._stopping:
                    _log.error("a worker ended with exit code %s; it is started again", process.exitcode)
                    ports, _ = self._running.pop(process)
                    self._start(ports)

    def _end(self) -> bool:
        """Stop all in order; returns whether one did not end so."""
        for process in self._running:
            if process.is_alive():
                process.terminate()
        for process in self._running:
            process.join()
        # One that was only just started knows no order yet, and has nothing to end.
        return any(process.exitcode not in (0, -signal.SIGTERM) for process in self._running)

    def _exit_status(self) -> int:
        """Why one failed: it has said that itself."""
        return SHUT_STATUS if any(process.exitcode == SHUT_STATUS for process in self._running) else 1

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._stopping:
            for process in self._running:
                process.kill()
        self._stopping = True


def _said(ready: Connection) -> str | None:
    """The line of a worker that is ready; None for one that has ended before."""
    try:
        line: str = ready.recv()
    except EOFError:
        return None
    return line


def _work(settings: Settings, ports: _Ports, said: Connection, sockets: Path | None) -> None:
    """The main function of a worker. Ctrl-C in a terminal goes to the parent, which then stops the
    workers; one that came before, while this one could not hear it, is dropped.
    """
    os.setsid()
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, handler)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    try:
        run(settings, ports[0], said.send, ports[1], sockets)
    except (LakelogError, OSError) as error:
        _log.error("%s", error)
        sys.exit(SHUT_STATUS if isinstance(error, InvalidRequest) else 1)
    finally:
        if sockets is not None and not _parent().is_alive():
            with suppress(OSError):  # the last one to end finds it empty
                sockets.rmdir()


def _end_with_parent() -> None:
    _parent().join()
    os.kill(os.getpid(), signal.SIGTERM)


def _parent() -> BaseProcess:
    parent = multiprocessing.parent_process()
    assert parent is not None
    return parent
