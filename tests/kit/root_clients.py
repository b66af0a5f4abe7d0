"""Clients of a gateway whose root is copied meanwhile: they produce, copy by transactions, and commit."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import httpx

from tests.kit.consumers import JSON
from tests.kit.gateway import running_gateway
from tests.kit.support import wait_until

GROUP, READER = "copier", "reader"
OUT = ("out", "out2")


class Clients:
    """A producer of numbers to `in`, one who copies each by a transaction to two topics, and one who commits
    that it has read these, until closed.

    What is committed of `in` at k is, once all is applied, 0 to k-1 in both of the others, each once.
    """

    def __init__(self, url: str) -> None:
        self._url, self.acknowledged, self.copied = url, 0, 0
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._produce, self._copy, self._read)]
        for thread in self._threads:
            thread.start()

    def _produce(self) -> None:
        with httpx.Client(base_url=self._url, timeout=60, headers={"Content-Type": JSON}) as client:
            while not self._ended.is_set():
                body = {"records": [{"value": self.acknowledged}]}
                assert client.post("/topics/in", json=body).status_code == 200
                self.acknowledged += 1

    def _copy(self) -> None:
        with httpx.Client(base_url=self._url, timeout=60, headers={"Content-Type": JSON}) as client:
            while not self._ended.is_set():
                if self.copied < self.acknowledged:
                    transact(client, self.copied)
                    self.copied += 1

    def _read(self) -> None:
        with httpx.Client(base_url=self._url, timeout=60) as client:
            while not self._ended.is_set():
                end = client.get(f"/topics/{OUT[0]}/partitions/0/offsets").json()["end_offset"]
                body = {"offsets": [{"topic": OUT[0], "partition": 0, "offset": end}]}
                assert client.put(f"/consumers/{READER}/offsets", json=body).status_code == 204

    def close(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def transact(client: httpx.Client, number: int) -> None:
    """Copy record `number` of `in` to both topics, and commit that it was."""
    body = {
        "records": [{"topic": topic, "partition": 0, "value": number} for topic in OUT],
        "offsets": [{"topic": "in", "partition": 0, "offset": number + 1}],
    }
    answer = client.post(f"/consumers/{GROUP}/transactions", json=body, headers={"Content-Type": JSON})
    assert answer.status_code == 200, answer.text


@contextmanager
def busy(data: str, options: Mapping[str, str]) -> Iterator[Clients]:
    settings = {"store_options": json.dumps(dict(options)), "offsets_topic_num_partitions": 3}
    with running_gateway(data, linger_ms=0, **settings) as gateway:
        for topic in ("in", *OUT):
            gateway.create_topic(topic)
        clients = Clients(gateway.url)
        try:
            wait_until(lambda: clients.copied >= 5, "clients are busy")
            yield clients
        finally:
            clients.close()
