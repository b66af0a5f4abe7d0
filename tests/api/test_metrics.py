"""The page of metrics: the same text as the client library's, in less time."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from api.metrics import Metrics, page
from log_tables.schemas.registry import SourceCounts

VALUES = st.one_of(st.integers(0, 10**12), st.floats())


class Families:
    """Two families with a sample for each of `values`."""

    def __init__(self, values: dict[str, float]) -> None:
        self._values = values

    def collect(self) -> Iterator[Metric]:
        for family in (
            GaugeMetricFamily("lakelog_gauge", 'A "gauge" \\ of\nlines.', labels=["topic", "group"]),
            CounterMetricFamily("lakelog_counter", "A counter.", labels=["topic", "group"]),
        ):
            for label, value in self._values.items():
                family.add_metric(["t", label], value)
            yield family


@given(st.dictionaries(st.text(), VALUES, max_size=8))
def test_a_page_is_as_the_client_library_writes_it(values: dict[str, float]) -> None:
    families = Families(values)
    assert page(families.collect()) == generate_latest(families)


def test_the_page_of_a_gateway_is_as_the_client_library_writes_it() -> None:
    metrics = Metrics()
    metrics.topic("t").produced(3, 100, 0.01)
    metrics.topic("u").committed(3, 0.002)
    metrics.request_failed(40401)
    families = [*metrics.registry.collect()]

    class Once:
        """The families, collected once for both."""

        def collect(self) -> list[Metric]:
            return families

    assert page(families) == generate_latest(Once())


def test_look_ups_of_schemas_are_counted_by_source_and_outcome() -> None:
    metrics, counts = Metrics(), SourceCounts(asked=9, found=1, unknown=2, failed=3, changed=4, unreadable=5)
    metrics.watch_schemas(lambda: {"topic:_schemas": counts})
    text = metrics.render().decode()
    for outcome, count in (("found", 1), ("unknown", 2), ("failed", 3)):
        line = f'lakelog_schema_lookups_total{{outcome="{outcome}",source="topic:_schemas"}} {count}.0'
        assert line in text
    assert 'lakelog_schema_changed_ids_total{source="topic:_schemas"} 4.0' in text
    assert 'lakelog_schema_unreadable_total{source="topic:_schemas"} 5.0' in text
