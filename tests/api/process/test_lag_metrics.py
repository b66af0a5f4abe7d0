"""The lag of consumer groups in a gateway's metrics."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from api.process.lag_metrics import GROUP_LABELS_MAX, LAG_SERIES_MAX, OTHER_GROUPS, GroupLag, LagMetrics
from log_tables.sql.lag import Lag
from tests.kit.consumers import Instance
from tests.kit.gateway import RunningGateway

Series = tuple[str, str, str, str]


def lags(text: str) -> dict[Series, float]:
    """(metric, group, topic, partition) → value."""
    families = text_string_to_metric_families(text)
    return {
        (
            s.name.removeprefix("lakelog_consumer_"),
            s.labels["group"],
            s.labels["topic"],
            s.labels["partition"],
        ): s.value
        for f in families
        for s in f.samples
        if s.name.startswith("lakelog_consumer_lag")
    }


def test_a_group_that_is_behind_shows(gateway: RunningGateway, topic: str) -> None:
    gateway.produce(topic, *range(5), partition=0)
    gateway.produce(topic, *range(2), partition=1)
    reader = Instance(gateway.client, "metered", "reader")
    reader.subscribe(topic)
    assert len(reader.values(7)) == 7
    reader.commit({(topic, 0): 1, (topic, 1): 1})
    seen = lags(gateway.client.get("/metrics").text)
    assert seen["lag_records", "metered", topic, "0"] == 3
    assert seen["lag_seconds", "metered", topic, "0"] > 0
    assert seen["lag_bytes", "metered", topic, "0"] > 0
    for figure in ("lag_records", "lag_seconds", "lag_bytes"):
        assert seen[figure, "metered", topic, "1"] == 0
    gateway.client.delete(f"/topics/{topic}/partitions/0/records", params={"before": 4})
    assert lags(gateway.client.get("/metrics").text)["lag_records", "metered", topic, "0"] == 1
    reader.delete()
    gateway.client.delete("/consumers/metered")
    assert ("lag_records", "metered", topic, "0") not in lags(gateway.client.get("/metrics").text)


def test_what_is_too_much_is_summed_up() -> None:
    found = [GroupLag("g", "t", index, Lag(1, float(index), 2)) for index in range(LAG_SERIES_MAX + 3)]
    registry = CollectorRegistry()
    registry.register(LagMetrics(lambda: found))
    seen = lags(generate_latest(registry).decode())
    assert len(seen) == 3 * (LAG_SERIES_MAX + 1)
    assert seen["lag_records", OTHER_GROUPS, "", ""] == 3
    assert seen["lag_seconds", OTHER_GROUPS, "", ""] == LAG_SERIES_MAX + 2
    assert seen["lag_bytes", OTHER_GROUPS, "", ""] == 6


def test_so_many_groups_have_series_of_their_own_and_no_more() -> None:
    names = [f"g{number}" for number in range(GROUP_LABELS_MAX + 3)]
    found = [GroupLag(name, "t", index, Lag(1, 1.0, 2)) for index in range(2) for name in names]
    registry = CollectorRegistry()
    registry.register(LagMetrics(lambda: found))
    seen = lags(generate_latest(registry).decode())
    assert {group for _, group, _, _ in seen} == {*names[:GROUP_LABELS_MAX], OTHER_GROUPS}
    assert seen["lag_records", OTHER_GROUPS, "", ""] == 6
