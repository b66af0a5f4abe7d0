"""Spark without Spark: what the jobs use of it, done in this process by lists and dictionaries.

Spark routes; what is routed is ours. Items go from task to task through pickle, as they do there.
"""

import pickle
from collections.abc import Callable, Iterable
from typing import Any, cast

from pyspark.sql import SparkSession


def no_spark() -> SparkSession:
    """For a job that has no need of Spark."""
    raise AssertionError("this job asked for Spark")


def in_process() -> SparkSession:
    """A session whose jobs run at once, here."""
    return cast("SparkSession", _Session())


class _Session:
    defaultParallelism = 2  # noqa: N815 -- Spark's name

    @property
    def sparkContext(self) -> "_Session":  # noqa: N802 -- Spark's name
        return self

    def parallelize(self, items: Iterable[Any], slices: int) -> "_Items":
        assert slices > 0
        return _Items(items)


class _Items:
    """What jobs use of an RDD."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items: list[Any] = [pickle.loads(pickle.dumps(item)) for item in items]

    def map(self, function: Callable[[Any], Any]) -> "_Items":
        return _Items(map(function, self._items))

    def flatMap(self, function: Callable[[Any], Iterable[Any]]) -> "_Items":  # noqa: N802
        return _Items(made for item in self._items for made in function(item))

    def groupByKey(self, parts: int, _: Callable[[Any], int]) -> "_Items":  # noqa: N802
        assert parts > 0
        return _Items(self._grouped().items())

    def cogroup(self, other: "_Items", parts: int) -> "_Items":
        assert parts > 0
        mine, others = self._grouped(), other._grouped()
        return _Items((key, (mine.get(key, []), others.get(key, []))) for key in {*mine, *others})

    def _grouped(self) -> dict[Any, list[Any]]:
        grouped: dict[Any, list[Any]] = {}
        for key, value in self._items:
            grouped.setdefault(key, []).append(value)
        return grouped

    def collect(self) -> list[Any]:
        return self._items
