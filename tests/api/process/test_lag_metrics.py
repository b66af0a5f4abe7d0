"""The lag of consumer groups in a gateway's metrics."""

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from api.process.lag_metrics import (
    GROUP_LABELS_MAX,
    LAG_SERIES_MAX,
    LOOK_MAX_S,
    OTHER_GROUPS,
    GroupLag,
    LagFollower,
    LagMetrics,
)
from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.sql.lag import Lag
from log_tables.store.store import open_store
from log_tables.testing import FaultyStore
from tests.kit.clusters import another
from tests.kit.consumers import Instance
from tests.kit.gateway import RunningGateway
from tests.kit.partitions import append

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


def test_the_ends_of_idle_partitions_are_looked_for_less_and_less(clock: ManualClock) -> None:
    store = FaultyStore(open_store("memory://"))
    here = Cluster.open(store, clock)
    led = here.claim(create_topic(here, "t"), 0)
    seen = another(here).topic("t").partition(0)
    follower = LagFollower(clock)

    def follow(seconds: int) -> int:
        before = len(store.calls)
        for _ in range(0, seconds, 5):
            follower.follow([seen, seen])
            clock.pause(5)
        return len(store.calls) - before

    follow(300)
    assert 0 < follow(600) <= 600 / LOOK_MAX_S + 1
    append(led, b"v")
    waited = 0
    while seen.high_watermark == 0:
        follow(5)
        waited += 5
    assert waited <= LOOK_MAX_S + 5
    append(led, b"v")
    follow(10)
    assert seen.high_watermark == 2  # what has moved is looked at often again


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
