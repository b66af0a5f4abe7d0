"""A plain HTTP client of consumer groups, for tests: what somebody with nothing but curl would do."""

import json
from collections.abc import Iterable
from typing import Any

import httpx
import pyarrow as pa

from tests.kit.support import wait_until

V2 = "application/vnd.kafka.v2+json"
JSON = "application/vnd.kafka.json.v2+json"


class Instance:
    """A consumer instance of `group`, whose requests go through `client`."""

    def __init__(
        self, client: httpx.Client, group: str, name: str, *, create: bool = True, **config: Any
    ) -> None:
        """`config` are Kafka's names with `_` for `.`."""
        self.client, self.group, self.name = client, group, name
        self.path = f"/consumers/{group}/instances/{name}"
        if create:
            asked = {"format": "json", "auto.offset.reset": "earliest", "auto.commit.enable": False}
            asked |= {key.replace("_", "."): value for key, value in config.items()}
            answer = self.send("POST", f"/consumers/{group}", {"name": name, **asked})
            assert answer.status_code == 200, answer.text

    def send(self, method: str, path: str, body: Any = None, **query: Any) -> httpx.Response:
        """One request; a path that begins with a slash is taken as it is, others are the instance's."""
        full = path if path.startswith("/") else f"{self.path}/{path}".rstrip("/")
        content = None if body is None else json.dumps(body)
        return self.client.request(method, full, content=content, headers={"Content-Type": V2}, params=query)

    def subscribe(self, *topics: str, pattern: str = "") -> None:
        body = {"topic_pattern": pattern} if pattern else {"topics": list(topics)}
        answer = self.send("POST", "subscription", body)
        assert answer.status_code == 204, answer.text

    def poll(self, timeout: int = 0, **query: Any) -> list[dict[str, Any]]:
        """One poll; the records that it gives."""
        answer = self.client.get(f"{self.path}/records", params={"timeout": timeout, **query})
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()
        return found

    def poll_arrow(self, timeout: int = 0, **query: Any) -> pa.Table:
        answer = self.client.get(f"{self.path}/records", params={"timeout": timeout, **query})
        assert answer.status_code == 200, answer.text
        with pa.ipc.open_stream(answer.content) as reader:
            return reader.read_all()

    def values(self, count: int) -> list[Any]:
        """Poll until there are `count` values; fails when they do not come, or more."""
        found: list[Any] = []

        def enough() -> bool:
            found.extend(record["value"] for record in self.poll(timeout=200))
            return len(found) >= count

        wait_until(enough, f"{count} records, {len(found)} so far")
        assert len(found) == count, found
        return found

    def assignment(self) -> set[tuple[str, int]]:
        answer = self.send("GET", "assignments")
        assert answer.status_code == 200, answer.text
        return {(p["topic"], p["partition"]) for p in answer.json()["partitions"]}

    def commit(self, offsets: dict[tuple[str, int], int] | None = None) -> httpx.Response:
        """Commit these offsets of records processed, or all that was given."""
        if offsets is None:
            return self.send("POST", "offsets")
        named = [{"topic": t, "partition": p, "offset": offset} for (t, p), offset in offsets.items()]
        return self.send("POST", "offsets", {"offsets": named})

    def committed(self, topic: str, *partitions: int) -> dict[int, int]:
        body = {"partitions": [{"topic": topic, "partition": p} for p in partitions]}
        answer = self.send("GET", "offsets", body)
        assert answer.status_code == 200, answer.text
        return {found["partition"]: found["offset"] for found in answer.json()["offsets"]}

    def delete(self) -> None:
        answer = self.send("DELETE", "")
        assert answer.status_code == 204, answer.text


def settle(instances: Iterable[Instance]) -> None:
    """Let everybody poll until nothing changes hands any more."""
    listed = list(instances)

    def settled() -> bool:
        before = [instance.assignment() for instance in listed]
        for instance in listed:
            instance.poll()
        return before == [instance.assignment() for instance in listed]

    wait_until(settled, "nothing changes hands")
