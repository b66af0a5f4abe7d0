"""A Spark session that reads and writes Delta tables: of this process's own Spark, or of a Connect server."""

import os
import re
import shlex
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pyspark
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from lakelog.spark.connect import DELTA_PACKAGE, SparkMissing, configured, connected, is_connect, server_named
from lakelog.spark.java import java_home, write_script

_PACKAGES = "spark.jars.packages"
_EXCLUDES = "spark.jars.excludes"
_EXTENSIONS = "spark.sql.extensions"

# Spark ships these already. Without them 85 MB become 14, and a half-filled local Maven cache does no harm.
_SHIPPED_WITH_SPARK = (
    "com.fasterxml.jackson.core:*",
    "com.fasterxml.jackson.datatype:*",
    "com.fasterxml.jackson.module:*",
    "com.github.luben:zstd-jni",
    "com.google.code.findbugs:jsr305",
    "commons-*:*",
    "org.apache.commons:*",
    "org.apache.hadoop:hadoop-client-*",
    "org.apache.logging.log4j:*",
    "org.apache.parquet:*",
    "org.roaringbitmap:*",
    "org.slf4j:*",
    "org.xerial.snappy:*",
)

_SETTINGS = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # A partition's log is small: Delta's 50 and Spark's 200 tasks would only wait for each other.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    # Between Java and Python, TCP waits 40 ms for an acknowledgement in every task.
    "spark.python.unix.domain.socket.enabled": "true",
}

LISTS = {
    _PACKAGES: (DELTA_PACKAGE,),
    _EXCLUDES: _SHIPPED_WITH_SPARK,
    _EXTENSIONS: ("io.delta.sql.DeltaSparkSessionExtension",),
}
"""Settings to which both the user and Delta add."""

_PYTHON_SHIM = """\
#!/bin/sh
# Spark puts archives before all packages: PySpark, py4j and a jar. Python compiles what it imports from an
# archive again in every process. This environment has both installed, and compiled.
path=
set -f
IFS=:
for entry in $PYTHONPATH; do
  case $entry in
    */pyspark.zip | */py4j-*-src.zip | */spark-core_*.jar) ;;
    *) path=$path${{path:+:}}$entry ;;
  esac
done
unset IFS
PYTHONPATH=$path
exec {python} "$@"
"""

_PROPERTY = re.compile(r"\s*([^\s=:#!][^\s=:]*)[\s=:]+(.*?)\s*")


def session(app_name: str = "lakelog", *, remote: str | None = None, **config: str) -> SparkSession:
    """The Spark session of this process, made with Delta's settings when there is none yet.

    `config` holds Spark's settings by their names (`**{"spark.master": "local[2]"}`). Settings there, in
    spark-defaults.conf, in PYSPARK_SUBMIT_ARGS or of spark-submit stay as they are; Delta's packages,
    excludes and extensions are added to the lists. (`--packages` is not a setting: if you use it, name
    Delta there.) If a session runs already, it keeps its settings, and only `config` is applied.

    `remote` is the URL of a Spark Connect server, `sc://host:15002`; the default is SPARK_REMOTE of the
    environment. That server has settings of its own: only `config` is set, in its session.

    Sets JAVA_HOME; and PYSPARK_PYTHON and SPARK_SIMPLIFIED_TRACEBACK where they are missing; nothing for a
    server. Raises JavaMissing when no Java 17 or newer is found, SparkMissing when Spark, Delta or the
    server cannot be had, or the server has no lakelog.
    """
    if server := server_named(remote, config):
        return connected(app_name, server, config)
    running = _running()
    if running is not None and is_connect(running):
        return configured(running, config)
    builder = SparkSession.builder.appName(app_name)
    if running is None:
        outside = set_outside()
        if not _submitted():
            os.environ["JAVA_HOME"] = str(java_home())
            # Spark's own default is the first python3 of PATH, which lacks this environment's packages.
            os.environ.setdefault("PYSPARK_PYTHON", python_for_workers(_master(config, outside)))
            # Spark asks most of its Python processes to leave PySpark's frames out of tracebacks, but forgets
            # the one that plans a stream.
            os.environ.setdefault("SPARK_SIMPLIFIED_TRACEBACK", "1")
        config = session_config(config, outside)
    for name, value in config.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise SparkMissing(
            f"Spark did not start ({error.getCondition()}); what Java printed above says why. Without a "
            "network, "
            f"{DELTA_PACKAGE} must be in the local Ivy or Maven cache"
        ) from error
    _check_delta(spark)
    return spark


def _running() -> SparkSession | None:
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def _master(config: Mapping[str, str], outside: Mapping[str, str]) -> str:
    """Where Spark will run, as Spark finds it out."""
    return {"spark.master": os.environ.get("MASTER", "local"), **outside, **config}["spark.master"]


def _submitted() -> bool:
    """Whether spark-submit started this program: Java runs already, with the jars that it was given."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _check_delta(spark: SparkSession) -> None:
    from py4j.java_gateway import JavaPackage

    assert spark._jvm is not None
    if isinstance(spark._jvm.io.delta.sql.DeltaSparkSessionExtension, JavaPackage):
        raise SparkMissing(
            "Spark runs without Delta's jars, and they cannot be added now: start it with "
            f"{DELTA_PACKAGE} among "
            f"its packages (spark-submit --packages, or the setting {_PACKAGES})"
        )


def session_config(config: Mapping[str, str], outside: Mapping[str, str]) -> dict[str, str]:
    """The settings of a new session: `config`, and ours where neither it nor `outside` has one.

    `outside` holds the settings from elsewhere. They are left out, except for lists that ours are added to.
    """
    given = {**outside, **config}
    lists = {name: _joined(given.get(name, ""), ours) for name, ours in LISTS.items()}
    ours = {name: value for name, value in _SETTINGS.items() if name not in given}
    return {**ours, **config, **lists}


def _joined(theirs: str, ours: tuple[str, ...]) -> str:
    parts = [part.strip() for part in theirs.split(",") if part.strip()]
    return ",".join([*parts, *(part for part in ours if part not in parts)])


def set_outside() -> dict[str, str]:
    """The settings that Spark will find without ours."""
    from pyspark import SparkConf, SparkContext
    from pyspark.find_spark_home import _find_spark_home

    if _submitted():
        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    directory = os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf")
    return {**_of_file(Path(directory, "spark-defaults.conf")), **_of_arguments()}


def _of_file(path: Path) -> dict[str, str]:
    """Java properties, a line each: the name, a space or `=`, the value."""
    found: dict[str, str] = {}
    if path.is_file():
        for line in path.read_text().replace("\\\n", "").splitlines():
            if match := _PROPERTY.fullmatch(line):
                found[match[1]] = match[2]
    return found


def _of_arguments() -> dict[str, str]:
    found: dict[str, str] = {}
    arguments = os.environ.get("PYSPARK_SUBMIT_ARGS", "").replace("--conf=", "--conf ")
    try:
        words = shlex.split(arguments)
    except ValueError as error:
        raise SparkMissing(
            f"PYSPARK_SUBMIT_ARGS={arguments!r} cannot be read ({error}); correct it"
        ) from None
    for flag, value in pairwise(words):
        if flag in ("--conf", "-c") and "=" in value:
            name, _, setting = value.partition("=")
            found[name] = setting
        elif flag == "--master":
            found["spark.master"] = value
        elif flag == "--properties-file":
            found = {**_of_file(Path(value)), **found}
    return found


def python_for_workers(master: str) -> str:
    """The value of PYSPARK_PYTHON for a Spark at `master`.

    A local Spark gets a script in the environment's directory, which starts this interpreter with a third
    less work. Spark waits 10 s for the process that plans a stream, and no setting makes it wait longer.
    Executors on other machines do not have that script; they get the interpreter's own path.
    """
    import py4j

    installed = all(Path(package.__file__ or "").is_file() for package in (pyspark, py4j))
    if os.name != "posix" or not installed or not master.startswith("local"):
        return sys.executable
    script = Path(sys.prefix, "lakelog-python", "python3")
    try:
        write_script(script, _PYTHON_SHIM.format(python=shlex.quote(sys.executable)))
    except OSError:  # an environment that only its owner may write
        return sys.executable
    return str(script)
