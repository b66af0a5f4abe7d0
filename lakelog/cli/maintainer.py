"""How maintenance runs: its engine, by the settings, and the scheduler beside a gateway.

`lakelog serve --maintain` runs the scheduler, in a process of its own. PySpark is imported when a job first
goes to Spark.
"""

import json
import logging
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ingest.settings import Settings
from jobs.engine import Engine, EngineChoice, EngineGone
from jobs.local_engine import LocalEngine
from log_tables.clock import Backoff, timer
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidArgument
from log_tables.store.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


def choice(settings: Settings, nice: int = 0) -> EngineChoice:
    """The engine for a job, by the number of bytes that it rewrites.

    Its processes stand back by `nice` as long as no partition has unmerged_segments_urgent. Those of Spark do
    so once they have begun to: no process may take itself forward again.

    Raises InvalidArgument when Spark is asked for and not installed.
    """
    check_installed(settings)
    local = LocalEngine()

    def local_of(debt: int) -> Engine:
        local.niceness = 0 if 0 < settings.unmerged_segments_urgent <= debt else nice
        return local

    def by_size(size: int, debt: int) -> Engine:
        if size <= settings.maintain_local_max_bytes:
            return local_of(debt)
        missing = _missing()
        if missing is None:
            return _spark(nice)
        _log.warning(
            "a job rewrites %s bytes, more than maintain_local_max_bytes, by local processes: %s",
            f"{size:,}",
            missing,
        )
        return local_of(debt)

    engines = {"auto": by_size, "local": lambda _, debt: local_of(debt), "spark": lambda *_: _spark(nice)}
    return engines[settings.maintain_engine]


def check_installed(settings: Settings) -> None:
    """Raise InvalidArgument when the engine is to be Spark, and it is not installed."""
    if settings.maintain_engine == "spark" and find_spec("pyspark") is None:
        raise InvalidArgument(
            "maintain_engine 'spark' needs Spark; install lakelog with its extra spark, or take local"
        )


def _missing() -> str | None:
    """Why this machine has no Spark; None when it has."""
    if find_spec("pyspark") is None:
        return "Spark is not installed; lakelog's extra spark has it"
    from lakelog.spark.connect import server_named
    from lakelog.spark.java import JavaMissing, java_home

    if server_named(None, {}):
        return "SPARK_REMOTE names a Spark Connect server, which runs no jobs; unset it"
    try:
        java_home()
    except JavaMissing as error:
        return str(error)
    return None


def _spark(nice: int) -> Engine:
    from jobs.spark_engine import SparkEngine

    return SparkEngine(partial(session, nice))


@cache
def session(nice: int = 0) -> "SparkSession":
    """The one Spark session of this process, started when a job first has something for it.

    On Linux, its processes stand back by `nice`. Raises EngineGone when it cannot be had.
    """
    from lakelog.spark import session as made
    from lakelog.spark.connect import SparkMissing, server_named
    from lakelog.spark.java import JavaMissing

    if server_named(None, {}):
        raise EngineGone(f"{_missing()}, or name --engine local")
    progress = str(sys.stderr.isatty()).lower()
    options = {"spark.ui.showConsoleProgress": progress, "spark.log.level": "ERROR"}

    def started() -> "SparkSession":
        if sys.platform == "linux":
            os.nice(nice)  # there it is of a thread, and of the processes that this one starts
        return made("lakelog maintain", **options)

    try:
        # In the main thread PySpark would put a handler in the place of that of SIGINT, which ends the job.
        with ThreadPoolExecutor(1) as pool:
            spark = pool.submit(started).result()
    except (JavaMissing, SparkMissing) as error:
        raise EngineGone(f"{error}; or name --engine local") from None
    return spark


STOP_S = 5.0
"""How long a stopping gateway waits for the job that runs: to be killed does it no harm."""

RESTARTS = Backoff(5.0, max_s=300.0)
"""How long a scheduler that has ended is left alone, ever longer: the cause may be gone by then."""

_LOOK_S = 0.5


class Maintainer:
    """`lakelog maintain --every` in another process, started again when it ends.

    It stops by itself when this process is gone, however it went: its standard input ends then.
    """

    def __init__(self, settings: Settings, restarts: Backoff = RESTARTS) -> None:
        """Makes the root if there is none. Raises InvalidArgument when the engine is Spark and is not
        installed, StoreUnavailable.
        """
        check_installed(settings)
        Cluster.open(open_store(settings.data, settings.store_options))  # the scheduler makes none
        every_s = max(1, settings.maintain_interval_ms // 1000)
        self._command = [
            *(sys.executable, "-m", "lakelog", "maintain", "--with-stdin"),
            *("--data", settings.data, "--every", f"{every_s}s"),
            *("--engine", settings.maintain_engine),
            *("--set", f"maintain_local_max_bytes={int(settings.maintain_local_max_bytes)}"),
            *("--set", f"unmerged_segments_urgent={settings.unmerged_segments_urgent}"),
            *("--set", f"log_level={settings.log_level}", "--set", f"log_format={settings.log_format}"),
            *(("--remote-root", settings.remote_root) if settings.remote_root else ()),
        ]
        # In the environment, which other users do not see: they hold secrets.
        registries = {url: each.as_json() for url, each in settings.schema_registries.items()}
        told = {
            "LAKELOG_STORE_OPTIONS": json.dumps(settings.store_options),
            "LAKELOG_SCHEMA_REGISTRIES": json.dumps(registries),
        }
        self._environment = {**os.environ, **told, "LAKELOG_CONTEXT": ""}
        self._restarts, self._stopping = restarts, threading.Event()
        self._thread = threading.Thread(target=self._keep_running, name="maintainer", daemon=True)

    def __enter__(self) -> "Maintainer":
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
                "maintenance ended with exit code %s; it is started again in %g s",
                process.returncode,
                pause_s,
            )


def next_pause_s(restarts: Backoff, before_s: float, ran_s: float) -> float:
    """How long to leave a scheduler alone that ran for `ran_s` after a pause of `before_s`."""
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
