"""Standbys, for Prometheus: how far behind they are, and whether somebody replicates to them."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from api.standby_reports import SeenStandby


class StandbyMetrics(Collector):
    """Collects `seen`, which is asked whenever the metrics are read."""

    def __init__(self, seen: Callable[[], Iterable[SeenStandby]]) -> None:
        self._seen = seen

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return (*_lags(), *_wholes())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        lags, wholes = _lags(), _wholes()
        for each in self._seen():
            label = [each.target]
            if each.processes:
                for family, value in zip(
                    lags, (each.lag_s, each.commits, each.records, each.bytes), strict=True
                ):
                    family.add_metric(label, value)
            troubled = sum(bool(one.trouble) for one in each.processes)
            for family, value in zip(wholes, (len(each.processes), troubled, each.is_level), strict=True):
                family.add_metric(label, value)
        yield from (*lags, *wholes)


def _lags() -> tuple[GaugeMetricFamily, ...]:
    label = ["standby"]
    return (
        GaugeMetricFamily("lakelog_standby_lag_seconds", "The age of the newest whole moment.", labels=label),
        GaugeMetricFamily("lakelog_standby_lag_commits", "Commits that were read and not put.", labels=label),
        GaugeMetricFamily("lakelog_standby_lag_records", "Records in these commits.", labels=label),
        GaugeMetricFamily("lakelog_standby_lag_bytes", "Bytes of these commits.", labels=label),
    )


def _wholes() -> tuple[GaugeMetricFamily, ...]:
    label = ["standby"]
    return (
        GaugeMetricFamily("lakelog_standby_processes", "Processes that replicate.", labels=label),
        GaugeMetricFamily("lakelog_standby_troubled_processes", "Those that something keeps.", labels=label),
        GaugeMetricFamily("lakelog_standby_is_level", "1 if it is of one moment, else 0.", labels=label),
    )
