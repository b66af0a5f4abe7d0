"""Programs of lakelog that run beside a gateway, each in a process of its own: the scheduler of maintenance,
mirrors, and replication to a standby.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ingest.opening import cluster_of
from ingest.settings import Settings
from lakelog.cli.common import check_mirror_installed
from log_tables.clock import Backoff, timer

_log = logging.getLogger(__name__)

STOP_S = 5.0
"""How long a stopping gateway waits for what runs beside it: to be killed does it no harm."""

RESTARTS = Backoff(5.0, max_s=300.0)
"""How long a process that has ended is left alone, ever longer: the cause may be gone by then."""

_LOOK_S = 0.5


class Beside:
    """A command of `lakelog` in another process, started again when it ends.

    It stops by itself when this process is gone, however it went: its standard input ends then.
    """

    def __init__(
        self, what: str, command: Sequence[str], settings: Settings, restarts: Backoff = RESTARTS
    ) -> None:
        """`what` is its name in the log. Makes the root if there is none, and may; the command opens this one
        and no other. Raises StoreUnavailable, InvalidConfig.
        """
        cluster = cluster_of(settings, create=True)  # the command makes none
        self._what = what
        self._command = [
            *(sys.executable, "-m", "lakelog", *command, "--with-stdin", "--data", settings.data),
            *("--set", f"log_level={settings.log_level}", "--set", f"log_format={settings.log_format}"),
        ]
        # In the environment, which other users do not see: they hold secrets.
        registries = {url: each.as_json() for url, each in settings.schema_registries.items()}
        told = {
            "LAKELOG_STORE_OPTIONS": json.dumps(settings.store_options),
            "LAKELOG_STANDBY_STORE_OPTIONS": json.dumps(settings.standby_store_options),
            "LAKELOG_SCHEMA_REGISTRIES": json.dumps(registries),
            "LAKELOG_MUST_EXIST": "true",
            "LAKELOG_CLUSTER_ID": cluster.cluster_id,
        }
        self._environment = {**os.environ, **told, "LAKELOG_CONTEXT": ""}
        self._restarts, self._stopping = restarts, threading.Event()
        self._thread = threading.Thread(target=self._keep_running, name=what, daemon=True)

    def __enter__(self) -> "Beside":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(2 * STOP_S)

    def _keep_running(self) -> None:
        pause_s = 0.0
        while not self._stopping.wait(pause_s):
            started = timer()
            process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=sys.stderr,
                start_new_session=True,
            )
            while process.poll() is None:
                if self._stopping.wait(_LOOK_S):
                    _stop(process)
                    return
            pause_s = next_pause_s(self._restarts, pause_s, timer() - started)
            _log.error(
                "%s ended with exit code %s; it is started again in %g s",
                self._what,
                process.returncode,
                pause_s,
            )


def next_pause_s(restarts: Backoff, before_s: float, ran_s: float) -> float:
    """How long to leave a process alone that ran for `ran_s` after a pause of `before_s`."""
    if before_s == 0 or ran_s > restarts.max_s:
        return restarts.first_s
    return restarts.after(before_s)


def _stop(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def mirrors(settings: Settings, restarts: Backoff = RESTARTS) -> Beside:
    """`lakelog mirror run` for all mirrors, beside a gateway. Raises InvalidArgument, StoreUnavailable."""
    check_mirror_installed()
    bounds = [
        f"disk_reserve_bytes={int(settings.disk_reserve_bytes)}",
        f"disk_free_min_bytes={int(settings.disk_free_min_bytes)}",
    ]
    return Beside("the mirror", ["mirror", "run", *_set(bounds)], settings, restarts)


def replication(settings: Settings, standby: str, restarts: Backoff = RESTARTS) -> Beside:
    """`lakelog replicate` to `standby`, beside a gateway. Raises InvalidArgument, StoreUnavailable."""
    bounds = [
        f"replicate_max_bytes_per_second={int(settings.replicate_max_bytes_per_second)}",
        f"replicate_max_requests_per_second={settings.replicate_max_requests_per_second:g}",
    ]
    return Beside("the replication", ["replicate", standby, *_set(bounds)], settings, restarts)


def _set(settings: Sequence[str]) -> Iterator[str]:
    return (word for each in settings for word in ("--set", each))


@contextmanager
def stopping_event(with_stdin: bool) -> Iterator[threading.Event]:
    """An event that is set by SIGTERM and Ctrl-C, or when standard input ends.

    A second signal ends the process at once, which harms nothing.
    """
    event = threading.Event()

    def stop(number: int, _: object) -> None:
        event.set()
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    if with_stdin:
        threading.Thread(target=_await_end, args=(event,), daemon=True).start()
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _await_end(event: threading.Event) -> None:
    # Not sys.stdin: a thread that waits in it cannot be left behind when the process ends.
    while os.read(0, 4096):
        pass
    event.set()
