"""How maintenance runs: its engine, by the settings, and the scheduler beside a gateway.

PySpark is imported when a job first goes to Spark.
"""

import logging
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ingest.settings import Settings
from jobs.engine import Engine, EngineChoice, EngineGone
from jobs.local_engine import LocalEngine
from lakelog.cli.beside import RESTARTS, Beside
from log_tables.clock import Backoff
from log_tables.errors import InvalidArgument

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


def maintainer(settings: Settings, restarts: Backoff = RESTARTS) -> Beside:
    """`lakelog maintain --every` beside a gateway.

    Raises InvalidArgument when the engine is Spark and is not installed, StoreUnavailable.
    """
    check_installed(settings)
    every_s = max(1, settings.maintain_interval_ms // 1000)
    command = [
        *("maintain", "--every", f"{every_s}s", "--engine", settings.maintain_engine),
        *("--set", f"maintain_local_max_bytes={int(settings.maintain_local_max_bytes)}"),
        *("--set", f"unmerged_segments_urgent={settings.unmerged_segments_urgent}"),
        *(("--remote-root", settings.remote_root) if settings.remote_root else ()),
    ]
    return Beside("maintenance", command, settings, restarts)
