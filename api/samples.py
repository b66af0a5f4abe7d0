"""The last hour of a gateway in samples: how much went through it, and how far behind its groups were.

Metrics say what is; a page that shows how it came to be needs what was. Where there is a Prometheus, it keeps
that for months; this hour needs none.
"""

import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from prometheus_client import Counter, Histogram

from api.metrics import Metrics
from log_tables.clock import Clock

SAMPLE_S = 5.0
"""How often a sample is taken."""

SAMPLES_MAX = 720
"""An hour of them."""

LAG_SAMPLES = 2
"""Every so many samples the lags of groups are noted, too."""

LAG_SAMPLES_MAX = SAMPLES_MAX // LAG_SAMPLES

GROUPS_MAX = 500
"""Groups whose lags are noted: some megabytes."""


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """Five seconds of a gateway: rates are per second, times in milliseconds, `at_ms` since 1970 UTC.

    `commit_p50_ms` and `commit_p99_ms` are bounds of the histogram of commits; 0 without a commit.
    """

    at_ms: int
    produced: float
    produced_bytes: float
    fetched: float
    fetched_bytes: float
    commits: float
    commit_p50_ms: float
    commit_p99_ms: float
    errors: float
    buffer_used: int


class GroupLags(msgspec.Struct, frozen=True):
    """The lag of one group over time: in all its partitions together, in seconds the worst."""

    at_ms: list[int]
    records: list[int]
    seconds: list[float]
    size_bytes: list[int]


class LagSum(NamedTuple):
    """The lag of a group at one moment, as GroupLags has it."""

    group: str
    records: int
    seconds: float
    size_bytes: int


class _Sums(NamedTuple):
    at_ms: int
    counts: tuple[float, ...]
    commits: Mapping[float, float]


class _Series(NamedTuple):
    at_ms: "array[int]"
    records: "array[int]"
    seconds: "array[float]"
    size_bytes: "array[int]"


class SampleLog:
    """The samples of one gateway. `sample` is called by one thread; the rest by any."""

    def __init__(
        self,
        metrics: Metrics,
        buffer_used: Callable[[], int],
        lags: Callable[[], Iterable[LagSum]],
        clock: Clock,
    ) -> None:
        """`lags` says how far behind the groups are that this gateway coordinates."""
        self._metrics, self._buffer_used, self._lags, self._clock = metrics, buffer_used, lags, clock
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._of_groups: dict[str, _Series] = {}
        self._before: _Sums | None = None
        self._taken = 0
        self._lock = threading.Lock()

    def sample(self) -> None:
        """Take a sample."""
        now = self._totals()
        if self._before is not None and now.at_ms > self._before.at_ms:
            self._samples.append(_between(self._before, now, self._buffer_used()))
        self._before = now
        if self._taken % LAG_SAMPLES == 0:
            self._note(now.at_ms, self._lags())
        self._taken += 1

    def samples(self) -> list[Sample]:
        """The samples of the last hour, the oldest first."""
        return list(self._samples)

    def lags(self, group: str) -> GroupLags:
        """The lags of a group in the last hour; none for one that this gateway does not coordinate."""
        with self._lock:
            found = self._of_groups.get(group)
            if found is None:
                return GroupLags([], [], [], [])
            at_ms, records, seconds, size_bytes = found
            return GroupLags(at_ms.tolist(), records.tolist(), seconds.tolist(), size_bytes.tolist())

    def _note(self, at_ms: int, lags: Iterable[LagSum]) -> None:
        found = {each.group: each for each in lags}
        with self._lock:
            for group in [*self._of_groups]:
                if group not in found:
                    del self._of_groups[group]  # it is gone, or another gateway coordinates it
            for group, lag in found.items():
                if group not in self._of_groups and len(self._of_groups) >= GROUPS_MAX:
                    continue
                empty = _Series(array("q"), array("q"), array("d"), array("q"))
                series = self._of_groups.setdefault(group, empty)
                series.at_ms.append(at_ms)
                series.records.append(lag.records)
                series.seconds.append(lag.seconds)
                series.size_bytes.append(lag.size_bytes)
                for values in (series.at_ms, series.records, series.seconds, series.size_bytes):
                    del values[:-LAG_SAMPLES_MAX]

    def _totals(self) -> _Sums:
        metrics = self._metrics
        counters = (
            *(metrics.produce_records, metrics.produce_bytes),
            *(metrics.fetch_records, metrics.fetch_bytes),
            metrics.request_errors,
        )
        return _Sums(self._clock.now_ms(), tuple(map(_total, counters)), _buckets(metrics.commit_seconds))


def _total(counter: Counter) -> float:
    """The sum of a counter over all its labels."""
    samples = (sample for family in counter.collect() for sample in family.samples)
    return sum(sample.value for sample in samples if sample.name.endswith("_total"))


def _buckets(histogram: Histogram) -> dict[float, float]:
    """How many observations were below each bound, over all labels."""
    found: dict[float, float] = {}
    for family in histogram.collect():
        for sample in family.samples:
            if sample.name.endswith("_bucket"):
                bound = float(sample.labels["le"])
                found[bound] = found.get(bound, 0.0) + sample.value
    return found


def _between(before: _Sums, now: _Sums, buffer_used: int) -> Sample:
    seconds = (now.at_ms - before.at_ms) / 1000
    # A topic that is deleted takes its counts along.
    rates = [max(0.0, b - a) / seconds for a, b in zip(before.counts, now.counts, strict=True)]
    counts = {bound: max(0.0, count - before.commits.get(bound, 0.0)) for bound, count in now.commits.items()}
    commits = max(counts.values(), default=0.0)
    return Sample(
        now.at_ms,
        rates[0],
        rates[1],
        rates[2],
        rates[3],
        commits / seconds,
        _quantile(counts, commits, 0.5),
        _quantile(counts, commits, 0.99),
        rates[4],
        buffer_used,
    )


def _quantile(counts: Mapping[float, float], total: float, part: float) -> float:
    """The least bound below which `part` of all observations are, in milliseconds."""
    if not total:
        return 0.0
    bounds: Sequence[float] = sorted(counts)
    found = next(bound for bound in bounds if counts[bound] >= part * total)
    return 1000 * (found if found != float("inf") else bounds[-2])
