"""The declaration of a topic is altered before each single write of what it was judged by: nothing that was
accepted is refused any more, or lost.
"""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import alter_topic, create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.layout import VALUE_ERROR
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import Record, input_batch
from log_tables.root.fsck import check
from log_tables.rows import Rows
from log_tables.store.store import Store, open_store
from log_tables.testing import Crash, Fault, FaultyStore, crash_after, crash_before
from tests.kit.gateway import RunningGateway, two_gateways
from tests.kit.partitions import values
from tests.kit.support import wait_until
from tests.kit.transaction_gateway import OUT, Client, Gateway, expected, topics_made

REFUSING = {"value.columns": "n bigint", "value.columns.mode": "refuse"}
CONNECTIONS, KEYS = 16, 16
NOT_JSON = "the value is not JSON"


def errors(partition: Partition) -> list[str | None]:
    """Why the values of a partition do not fit."""
    partition.refresh()
    plan = partition.plan_read(0, 1_000_000)
    return [text for each in partition.read(plan, [VALUE_ERROR]) for text in each[VALUE_ERROR].to_pylist()]


async def transact(store: Store, watch: Callable[[Gateway], None] = lambda _: None) -> Client:
    """One transaction, from staging to the end."""
    client, gateway = Client(), Gateway(store, seed=1)
    await gateway.start()
    watch(gateway)
    await gateway.serve(client)
    await gateway.stop()
    return client


def writes_of_a_transaction() -> int:
    store, before = FaultyStore(topics_made()), []
    asyncio.run(transact(store, lambda _: before.append(store.writes())))
    return store.writes() - before[0]


def test_a_transaction_is_whole_whenever_its_topics_begin_to_refuse_its_values() -> None:
    """Between any two of: staged, committed, applied, sequenced, in a segment, in the log."""
    with_errors = set()
    for nth in range(1, writes_of_a_transaction() + 1):
        store = FaultyStore(topics_made())

        def watch(gateway: Gateway, nth: int = nth, store: FaultyStore = store) -> None:
            def alter(perform: Callable[[], object]) -> object:
                altering = Cluster.open(store.inner, ManualClock(seed=97))
                for name in OUT:
                    topic = alter_topic(altering, name, REFUSING)
                    gateway.cluster.topic(name).update(topic.partition_count, topic.config)
                return perform()

            store.faults.append(Fault(nth, alter))

        client = asyncio.run(transact(store, watch))
        assert len(client.answers) == 1
        cluster = Cluster.open(store.inner, ManualClock(seed=98))
        for name in OUT:
            for number, partition in enumerate(cluster.topic(name).partitions()):
                assert values(partition) == expected(0, name, number)
                with_errors |= {*errors(partition)}
        assert check(store.inner).problems == []
    assert with_errors == {None, "the value is not a JSON object"}


def test_what_was_sequenced_is_stored_as_in_keep() -> None:
    cluster = Cluster.open(open_store("memory://"), ManualClock())
    partition = create_topic(cluster, "t").partition(0)
    partition.claim("")
    sequenced = [partition.sequence(AppendRequest(Rows([value], 0))) for value in (b"{", b'{"n": 1}')]
    alter_topic(cluster, "t", REFUSING)
    partition.commit(sequenced[:1])
    alter_topic(cluster, "t", {"value.columns": "n bigint, s string"})
    partition.commit(sequenced[1:])
    assert errors(partition) == [NOT_JSON, None]
    assert partition.snapshot.declared.names == ["n", "s"]


@pytest.mark.parametrize(("nth", "crash"), [(1, crash_before), (1, crash_after), (2, crash_before)])
def test_the_next_leader_goes_on_where_one_died_between_the_new_column_and_the_append(
    nth: int, crash: Callable[[Callable[[], object]], object]
) -> None:
    """The first write of a leader that finds a new declaration is the column, the second one the segment."""
    inner = open_store("memory://")
    cluster = Cluster.open(inner, ManualClock())
    topic = create_topic(cluster, "t", configs={"value.columns": "n bigint"})
    store = FaultyStore(inner)
    leader = Partition(store, topic.partition(0).directory, ManualClock(seed=1), topic.partition(0).config)
    leader.claim("")
    leader.append([AppendRequest(input_batch([Record(b'{"n": 1}')], 0))])
    alter_topic(cluster, "t", {"value.columns": "n bigint, s string"})
    widened = cluster.topic("t").config
    leader.config = widened.partition_config()
    store.faults.append(Fault(nth, crash))
    with pytest.raises(Crash):
        leader.append([AppendRequest(input_batch([Record(b'{"s": "lost"}')], 0))])
    following = Partition(inner, leader.directory, ManualClock(seed=2), widened.partition_config())
    following.claim("")
    following.append([AppendRequest(input_batch([Record(b'{"n": 2, "s": "a"}')], 0))])
    rows = [
        row for each in following.read(following.plan_read(0, 10_000), ["n", "s"]) for row in each.to_pylist()
    ]
    assert rows == [{"n": 1, "s": None}, {"n": 2, "s": "a"}]
    assert check(inner).problems == []


class Load:
    """CONNECTIONS clients that produce to a topic until `end`, and the answers that are no success."""

    def __init__(self, gateways: tuple[RunningGateway, ...], topic: str) -> None:
        self._urls, self._topic, self._ended = [each.url for each in gateways], topic, threading.Event()
        self.failed: list[str] = []
        self.sent = [0] * CONNECTIONS
        self._threads = [threading.Thread(target=self._send, args=[each]) for each in range(CONNECTIONS)]
        for thread in self._threads:
            thread.start()

    def _send(self, number: int) -> None:
        headers = {"Content-Type": "application/vnd.kafka.json.v2+json"}
        body = {"records": [{"key": key, "value": {"n": key, "s": "x"}} for key in range(KEYS)]}
        with httpx.Client(base_url=self._urls[number % len(self._urls)], timeout=300) as client:
            while not self._ended.is_set() and not self.failed:
                answer = client.post(f"/topics/{self._topic}", json=body, headers=headers)
                if answer.status_code != 200 or '"error_code":null' not in answer.text:
                    self.failed.append(answer.text)
                self.sent[number] += KEYS

    def wait_for_more(self) -> None:
        """Return when each client has been answered once more, for a request that began later."""
        before = [*self.sent]
        wait_until(
            lambda: (
                bool(self.failed)
                or all(now >= then + 2 * KEYS for now, then in zip(self.sent, before, strict=True))
            ),
            "every client gets on",
        )

    def end(self) -> int:
        """End it; returns how many records were sent."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        return sum(self.sent)


def columns_of(partition: Partition, name: str) -> list[object]:
    partition.refresh()
    if name not in partition.snapshot.declared.names:
        return []
    plan = partition.plan_read(0, 100_000_000)
    return [value for each in partition.read(plan, [name]) for value in each[name].to_pylist()]


def test_a_column_is_added_under_load_at_both_gateways_without_a_failed_request(tmp_path: Path) -> None:
    with two_gateways(tmp_path, linger_ms=5) as gateways:
        name = gateways[0].create_topic("t", 4, value_columns="n bigint", value_columns_mode="refuse")
        load = Load(gateways, name)
        try:
            load.wait_for_more()
            path = f"{gateways[1].cluster}/topics/{name}/configs:alter"
            data = [{"name": "value.columns", "value": "n bigint, s string"}]
            assert gateways[1].client.post(path, json={"data": data}).status_code == 204
            topic = Cluster.open(open_store(tmp_path), create=False).topic(name)
            led = [each for each in topic.partitions() if values(each)]
            assert len({each.snapshot.leader_broker for each in led}) == len(gateways)
            wait_until(
                lambda: all(columns_of(each, "s")[-1:] == ["x"] for each in led),
                "each leader fills the new column",
            )
            load.wait_for_more()
        finally:
            sent = load.end()
        assert load.failed == []
        stored = [columns_of(each, "n") for each in topic.partitions()]
        assert sum(map(len, stored)) == sent
        assert all(None not in each for each in stored)
    assert check(open_store(tmp_path)).problems == []
