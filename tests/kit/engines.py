"""The engines of the jobs, as tests take them: processes, Spark, and one that does the work at once, here."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from tempfile import TemporaryDirectory, mkdtemp
from typing import TypeVar

import pytest

from jobs.engine import Engine, EngineChoice, Failure
from jobs.local_engine import LOCAL_JOB_BYTES, LocalEngine, shuffled
from log_tables.segments.key_shuffle import KeyGroup
from log_tables.table.snapshot import Segment
from log_tables.task import attempt

Item = TypeVar("Item")
Result = TypeVar("Result")

_SCRATCH = TemporaryDirectory(prefix="lakelog-tests-")
"""Of this process: a test that is killed within a shuffle leaves its files."""


class InProcess:
    """Tasks that run in this process, one after the other; items go to them through pickle."""

    name = "local"
    job_bytes = LOCAL_JOB_BYTES

    def spread(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result | Failure]:
        found = [attempt(function, pickle.loads(pickle.dumps(item))) for item in items]
        return [Failure(result) if isinstance(result, str) else result[0] for result in found]

    def shuffle(self, parts: Sequence[Sequence[KeyGroup]]) -> list[tuple[Segment, ...] | Failure]:
        return shuffled(self.spread, parts, mkdtemp(dir=_SCRATCH.name))

    def end_run(self) -> None:
        """There is nothing to let go of."""


class NoEngine(InProcess):
    """For a job that has nothing to rewrite."""

    def spread(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result | Failure]:
        raise AssertionError(f"a job asked for {function} of {len(items)} items")


in_process, no_engine = InProcess(), NoEngine()


def always(engine: Engine) -> EngineChoice:
    """`engine`, whatever there is to do."""
    return lambda _size, _debt: engine


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Each engine in turn."""
    if request.param == "local":
        local = LocalEngine(2)
        yield local
        local.end_run()
        return
    from jobs.spark_engine import SparkEngine

    spark = request.getfixturevalue("spark")
    yield SparkEngine(lambda: spark)
