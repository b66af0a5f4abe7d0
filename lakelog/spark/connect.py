"""A session of a Spark Connect server, and what that server needs for the source and the views.

There the Python that plans and runs a query is the server's, and this process only describes it. So
`pyspark-client` is enough here, which has no Java and no py4j: what needs them is imported late.
"""

import os
import re
from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

try:
    from py4j.protocol import Py4JError
except ImportError:
    SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException,)
else:
    SPARK_ERRORS = (PySparkException, Py4JError)  # PySpark does not make one of its own of each
"""The errors of Spark, wherever it runs."""

DELTA_PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
"""The jar that belongs to the extra `spark`: PySpark 4.2.0 and delta-spark 4.4.0."""

SOURCE = "lakelog"
"""The name for `format`."""

ANSWER_S = 10.0
"""How long a server may take to accept a connection. PySpark itself tries for many minutes, in silence."""

_SEE = "docs/spark-connect.md has the command"


class SparkMissing(RuntimeError):
    """Spark cannot be had as it is needed; the message says what is missing and what to do."""


def server_named(remote: str | None, config: Mapping[str, str]) -> str | None:
    """The URL of the Spark Connect server that a session is to use; None for a Spark of this process."""
    return remote or config.get("spark.remote") or os.environ.get("SPARK_REMOTE")


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is that of a Spark Connect server, to which PySpark has another class."""
    return not isinstance(spark, SparkSession)


def connected(app_name: str, url: str, config: Mapping[str, str], answer_s: float = ANSWER_S) -> SparkSession:
    """The session of this process at the server at `url`, in which `config` is set.

    Raises SparkMissing when the packages of Spark Connect are not installed, a session of another Spark runs
    here, nothing answers, or the server has no lakelog; PySparkValueError for what is no `sc://` URL.
    """
    try:
        endpoint = _answering(url, answer_s)
    except ImportError as error:
        raise SparkMissing(
            f"Spark Connect is not installed here ({error}); install lakelog with its extra connect, or the "
            "package pyspark-client"
        ) from None
    try:
        spark = SparkSession.builder.appName(app_name).remote(url).getOrCreate()
    except PySparkException as error:
        if error.getCondition() != "SESSION_ALREADY_EXIST":
            raise
        raise SparkMissing(
            f"this process has a Spark of its own, so it gets no session of {endpoint}; stop that one, or "
            "connect in another process"
        ) from None
    if (other := endpoint_of(spark)) != endpoint:
        raise SparkMissing(
            f"this process has a session of {other}, so it gets none of {endpoint}; call its stop() first"
        )
    check_source(spark)
    return configured(spark, config)


def configured(spark: SparkSession, config: Mapping[str, str]) -> SparkSession:
    """The session of a Spark Connect server, with `config` set. Raises AnalysisException for a setting of the
    server itself.
    """
    for name, value in config.items():
        if name != "spark.remote":
            spark.conf.set(name, value)
    return spark


def _answering(url: str, answer_s: float) -> str:
    """The host and port of the server at `url`, once it accepts a connection.

    Raises SparkMissing, ImportError.
    """
    import grpc
    from pyspark.sql.connect.client import DefaultChannelBuilder

    builder = DefaultChannelBuilder(url)
    with builder.toChannel() as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=answer_s)
        except grpc.FutureTimeoutError:
            raise SparkMissing(
                f"no Spark Connect server answers at {builder.endpoint} within {answer_s:g} s; start one "
                f"({_SEE}), or correct the URL"
            ) from None
    return builder.endpoint


def endpoint_of(spark: SparkSession) -> str:
    """The host and port of the server of a session; of a channel that the caller has built, the host."""
    channel = spark.client._builder
    return str(getattr(channel, "endpoint", channel.host))


def analyze(frame: DataFrame) -> DataFrame:
    """The frame, of which Spark has found that it makes sense: with Spark Connect it would look later."""
    frame.schema  # noqa: B018 (it asks the server)
    return frame


def missing_module(error: Exception) -> str | None:
    """The package for want of which Spark's Python cannot make the source; None for another error."""
    if "DATA_SOURCE_NOT_FOUND" in str(error):
        return SOURCE
    found = re.search(r"ModuleNotFoundError: No module named '([^']+)'", str(error))
    return found[1] if found else None


def check_source(spark: SparkSession) -> None:
    """Raise SparkMissing when the Python of a Spark Connect server cannot make the source."""
    try:
        analyze(spark.read.format(SOURCE).option("path", "/").load())
    except PySparkException as error:
        missing = missing_module(error)
        if missing is None:
            raise
        raise SparkMissing(
            f"the Python of the Spark Connect server at {endpoint_of(spark)} does not find {missing}; "
            "install lakelog there, in the environment that the server's PYSPARK_PYTHON names, and start the "
            f"server again ({_SEE})"
        ) from None


def missing_delta(spark: SparkSession) -> str:
    """The end of an error about a Delta table that Spark could not read: what to do."""
    if is_connect(spark):
        return (
            f"start the Spark Connect server at {endpoint_of(spark)} with {DELTA_PACKAGE} among its "
            f"packages, and with Delta's extension and catalog ({_SEE}), and let it see the root at that path"
        )
    return "make the session with lakelog.spark.session"
