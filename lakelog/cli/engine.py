"""The engine of `lakelog maintain`, by its settings. PySpark is imported when a job first goes to Spark."""

import logging
import signal
import sys
import threading
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ingest.settings import Settings
from jobs.engine import Engine, EngineChoice, EngineGone
from jobs.local_engine import LocalEngine
from log_tables.errors import InvalidArgument

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


def choice(settings: Settings) -> EngineChoice:
    """The engine for a job, by the number of bytes that it rewrites.

    Raises InvalidArgument when Spark is asked for and not installed.
    """
    check_installed(settings)
    local = LocalEngine()

    def by_size(size: int) -> Engine:
        if size <= settings.maintain_local_max_bytes:
            return local
        missing = _missing()
        if missing is None:
            return _spark()
        _log.warning(
            "a job rewrites %s bytes, more than maintain_local_max_bytes, by local processes: %s",
            f"{size:,}",
            missing,
        )
        return local

    return {"auto": by_size, "local": lambda _: local, "spark": lambda _: _spark()}[settings.maintain_engine]


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
    from lakelog.spark.jre import JavaMissing, java_home

    try:
        java_home()
    except JavaMissing as error:
        return str(error)
    return None


def _spark() -> Engine:
    from jobs.spark_engine import SparkEngine

    return SparkEngine(session)


@cache
def session() -> "SparkSession":
    """The one Spark session of this process, started when a job first has something for it.

    Raises EngineGone when it cannot be had.
    """
    from lakelog.spark import session as made
    from lakelog.spark.jre import JavaMissing
    from lakelog.spark.session import SparkMissing

    progress = str(sys.stderr.isatty()).lower()
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        spark = made(
            "lakelog maintain", **{"spark.ui.showConsoleProgress": progress, "spark.log.level": "ERROR"}
        )
    except (JavaMissing, SparkMissing) as error:
        raise EngineGone(f"{error}; or name --engine local") from None
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupt)  # PySpark puts one in its place that ends the job
    return spark
