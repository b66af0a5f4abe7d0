"""Starting queries of Spark, which gives up a Python process of theirs that takes 10 s to start."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from pyspark.errors import StreamingQueryException

from tests.kit.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

T = TypeVar("T")

WAIT_S = 300
GIVEN_UP = "Python worker failed to connect back"
"""What Spark says of a Python process that was too slow, on a busy machine. No setting gives it longer."""

STARTS_MAX = 5
"""How often a query is started from its checkpoint, as docs/spark.md says, before that is an error."""


def started(writer: "DataStreamWriter") -> "StreamingQuery":
    """A query that has its source, unless it has failed."""
    for _ in range(STARTS_MAX):
        query = writer.start()
        wait_until(lambda: _has_source(query), "the query has its source", WAIT_S)  # noqa: B023
        if GIVEN_UP not in str(query.exception()):
            break
    return query


def _has_source(query: "StreamingQuery") -> bool:
    return not query.isActive or query.status["message"] != "Initializing sources"


def run_to_end(writer: "DataStreamWriter") -> "StreamingQuery":
    """A query that has ended by itself; raises what fails it."""

    def run() -> "StreamingQuery":
        query = writer.start()
        assert query.awaitTermination(WAIT_S)
        return query

    return patiently(run)


def patiently(run: Callable[[], T]) -> T:
    """Run a query with a checkpoint to its end, again if Spark gives up meanwhile. Returns the result of
    `run`.
    """
    for _ in range(STARTS_MAX - 1):
        try:
            return run()
        except StreamingQueryException as error:
            if GIVEN_UP not in str(error):
                raise
    return run()
