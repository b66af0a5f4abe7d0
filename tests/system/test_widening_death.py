"""`kill -9` of a gateway while the tables of a topic get another column: nothing acknowledged is lost, and
every value has the columns that were declared when it was written, or those of before.
"""

import json
import threading
from pathlib import Path

import httpx
import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.cluster import Cluster
from log_tables.layout import VALUE, VALUE_ERROR
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.gateway import RunningGateway, start_gateway

TOPIC, PARTITIONS = "grows", 4
ANSWERS = 40
"""Before each death."""

JSON = {"Content-Type": "application/vnd.kafka.json.v2+json"}


class Load:
    """A writer of each partition, which goes on through every death of the gateway."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._alive, self._ended = threading.Event(), threading.Event()
        self._answers = threading.Semaphore(0)
        self.acknowledged: set[int] = set()
        self.columns = 1
        self.gateway: RunningGateway
        self.revive()
        self.gateway.create_topic(TOPIC, PARTITIONS, value_columns=self.declared(), file_delete_delay_ms="0")
        self._threads = [threading.Thread(target=self._write, args=[each]) for each in range(PARTITIONS)]
        for thread in self._threads:
            thread.start()

    def declared(self) -> str:
        """The columns c0, c1 …, which all have the number of a value."""
        return ", ".join(f"c{index} bigint FROM '/n'" for index in range(self.columns))

    def revive(self) -> None:
        self.gateway = start_gateway(self._data, linger_ms=1)
        self._alive.set()

    def kill_while_it_widens(self, after_s: float) -> None:
        """Declare one column more, and kill the gateway so long after the request was sent."""
        gateway = self.gateway
        for _ in range(ANSWERS):
            assert self._answers.acquire(timeout=60)
        self.columns += 1
        altering = threading.Thread(target=self._alter, args=[gateway.url, gateway.cluster])
        altering.start()
        altering.join(after_s)
        self._alive.clear()
        gateway.kill()
        altering.join()

    def _alter(self, url: str, cluster: str) -> None:
        data = [{"name": "value.columns", "value": self.declared()}]
        try:
            httpx.post(f"{url}{cluster}/topics/{TOPIC}/configs:alter", json={"data": data}, timeout=60)
        except httpx.TransportError:
            pass  # the gateway died before it answered

    def end(self) -> None:
        self._ended.set()
        self._alive.set()
        for thread in self._threads:
            thread.join()

    def _write(self, partition: int) -> None:
        number = partition
        while not self._ended.is_set():
            self._alive.wait(60)
            values = [number + place * PARTITIONS for place in range(3)]
            number += 3 * PARTITIONS
            body = json.dumps({"records": [{"value": {"n": value}} for value in values]})
            url = f"{self.gateway.url}/topics/{TOPIC}/partitions/{partition}"
            try:
                answer = httpx.post(url, content=body, headers=JSON, timeout=60)
            except httpx.TransportError:
                continue
            if answer.status_code == 200:
                self.acknowledged |= {*values}
                self._answers.release()


def tables_widen_through_deaths(data: Path, deaths: int, seed: int) -> None:
    """Kill a gateway `deaths` times as it widens tables, and look at all that there is."""
    draw, load = ManualClock(seed=seed), Load(data)
    try:
        for _ in range(deaths):
            load.kill_while_it_widens(draw.random() * 0.08)
            load.revive()
        load.gateway.alter_topic(TOPIC, value_columns=load.declared())
        for partition in range(PARTITIONS):
            assert load.gateway.produce(TOPIC, {"n": -1}, partition=partition).status_code == 200
    finally:
        load.end()
        load.gateway.stop()
    store = open_store(data)
    names, found = [f"c{index}" for index in range(load.columns)], set[int]()
    for table in Cluster.open(store, ManualClock()).topic(TOPIC).partitions():
        assert table.snapshot.declared.names == names
        plan = table.plan_read(0, 1_000_000)
        batches = table.read(plan, [VALUE, VALUE_ERROR, *names])
        rows = [row for batch in batches for row in batch.to_pylist()]
        for row in rows:
            number = json.loads(row[VALUE])["n"]
            filled = [row[name] for name in names]
            later = filled.index(None) if None in filled else len(filled)
            assert filled == [number] * later + [None] * (len(filled) - later)
            assert (later > 0, row[VALUE_ERROR]) == (True, None)
            found.add(number)
        whole = dict.fromkeys(names, -1)
        assert any(whole.items() <= row.items() for row in rows)
    assert load.acknowledged <= found
    assert check(store, deep=True).problems == []


def test_tables_widen_through_deaths_of_the_gateway(tmp_path: Path, seed: int) -> None:
    tables_widen_through_deaths(tmp_path, 2, seed)


@pytest.mark.torture
def test_tables_widen_through_many_deaths_of_the_gateway(tmp_path: Path, seed: int) -> None:
    tables_widen_through_deaths(tmp_path, 25, seed)
