"""A consumer instance over one kept-alive connection, with nothing between it and the socket."""

import http.client
import json
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
import pyarrow as pa

from bench.load import JSON


class Row(msgspec.Struct):
    """One record of a JSON answer."""

    partition: int
    offset: int
    value: msgspec.Raw


_decode = msgspec.json.Decoder(list[Row]).decode


class Member:
    """An instance `name` of `group`; each has a connection of its own, so each is for one thread."""

    def __init__(self, url: str, group: str, name: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc)
        self._group, self.path = f"/consumers/{quote(group)}", f"/consumers/{quote(group)}/instances/{name}"
        self._name = name

    def create(self, form: str = "json", **config: Any) -> None:
        body = {"name": self._name, "format": form, "auto.offset.reset": "earliest"}
        self.call("POST", self._group, {**body, "auto.commit.enable": False, **config})

    def subscribe(self, topic: str) -> None:
        self.call("POST", f"{self.path}/subscription", {"topics": [topic]})

    def assign(self, topic: str, partitions: int) -> None:
        named = [{"topic": topic, "partition": index} for index in range(partitions)]
        self.call("POST", f"{self.path}/assignments", {"partitions": named})

    def assignment(self) -> set[int]:
        """The partitions that it owns; of one topic."""
        return {
            at["partition"] for at in json.loads(self.call("GET", f"{self.path}/assignments"))["partitions"]
        }

    def poll(self, timeout_ms: int) -> list[Row]:
        return _decode(self.call("GET", f"{self.path}/records?timeout={timeout_ms}"))

    def poll_arrow(self, timeout_ms: int) -> int:
        """How many records a poll gives, decoded."""
        data = self.call("GET", f"{self.path}/records?timeout={timeout_ms}")
        with pa.ipc.open_stream(pa.BufferReader(data)) as reader:
            return int(sum(batch.num_rows for batch in reader))

    def commit(self, body: bytes) -> None:
        self.call("POST", f"{self.path}/offsets", body)

    def call(self, method: str, path: str, body: object = None, key: str | None = None) -> bytes:
        """The answer. `body` is sent as it is, or as JSON; `key` is the retry key of a transaction."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"Content-Type": JSON, **({} if key is None else {"Idempotency-Key": key})}
        self._connection.request(method, path, data, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {content[:500]!r}")
        return content
