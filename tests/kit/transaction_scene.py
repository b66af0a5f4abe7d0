"""Transactions over HTTP: a topic that is read, one for results, and the requests of a consumer instance."""

import json
from typing import Any

import httpx
import pytest

from tests.kit.consumers import Instance
from tests.kit.gateway import RunningGateway

JSON = "application/vnd.kafka.json.v2+json"
ARROW = "application/vnd.apache.arrow.stream"


class Scene:
    """A topic of three records, one for results, and an instance that was given all of the first."""

    def __init__(self, gateway: RunningGateway, name: str) -> None:
        self.gateway, self.group = gateway, f"group-{name}"
        self.source = gateway.create_topic(f"{name}-in", 1)
        self.results = gateway.create_topic(f"{name}-out", 2)
        gateway.produce(self.source, "a", "b", "c")
        self.instance = Instance(gateway.client, self.group, "m")
        self.instance.subscribe(self.source)
        assert self.instance.values(3) == ["a", "b", "c"]

    @classmethod
    def of(cls, gateway: RunningGateway, request: pytest.FixtureRequest) -> "Scene":
        """The scene of a test, named after it."""
        name = "".join(c if c.isalnum() else "-" for c in request.node.name)
        return cls(gateway, name[:180])

    def body(self, last: int = 2, **more: Any) -> dict[str, Any]:
        """Offsets up to `last`, and a record for each partition of the results."""
        return {
            "offsets": [{"topic": self.source, "partition": 0, "offset": last}],
            "records": [{"topic": self.results, "partition": p, "value": [p, last]} for p in range(2)],
            **more,
        }

    def transact(self, body: Any, key: str = "", member: str = "/instances/m") -> httpx.Response:
        headers = {"Content-Type": JSON} | ({"Idempotency-Key": key} if key else {})
        path = f"/consumers/{self.group}{member}/transactions"
        return self.gateway.client.post(path, content=json.dumps(body), headers=headers)

    def values(self) -> list[list[Any]]:
        """The values in each partition of the results topic."""
        return [values(self.gateway, self.results, partition) for partition in range(2)]

    def check_nothing(self) -> None:
        """Nothing is committed, appended or staged."""
        assert self.instance.committed(self.source, 0) == {}
        assert self.values() == [[], []]


def values(gateway: RunningGateway, topic: str, partition: int) -> list[Any]:
    answer = gateway.client.get(f"/topics/{topic}/partitions/{partition}/records", params={"offset": 0})
    assert answer.status_code == 200, answer.text
    return [record["value"] for record in answer.json()]
