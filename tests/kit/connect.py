"""A worker of Kafka Connect, as a test starts one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.kit.kafka import KafkaGateway
from tests.kit.programs import Program, java_class_path, java_command
from tests.kit.support import WAIT_S, free_port

JARS = ["kafka", "kafka-connect"]
PLAIN = "org.apache.kafka.connect.storage.StringConverter"


class Worker:
    """A worker of Connect, in distributed mode, with its REST interface. If `once`, the records of a source
    are in a transaction with its offsets.
    """

    def __init__(self, gateway: KafkaGateway, directory: Path, *jars: str, once: bool = False) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        config = {
            "bootstrap.servers": gateway.bootstrap,
            "group.id": "connect",
            "listeners": self.url,
            "plugin.discovery": "only_scan",
            "key.converter": PLAIN,
            "value.converter": PLAIN,
            "offset.flush.interval.ms": 500,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 1_000,
            "scheduled.rebalance.max.delay.ms": 1_000,
            "exactly.once.source.support": "enabled" if once else "disabled",
        }
        for kind in ("offset", "config", "status"):
            config[f"{kind}.storage.topic"] = f"connect-{kind}"
            config[f"{kind}.storage.replication.factor"] = 1
        file = properties(directory / "worker.properties", config)
        command = java_command(
            java_class_path(*JARS, *jars), "org.apache.kafka.connect.cli.ConnectDistributed", file
        )
        self.program = Program(command, directory)

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.program.kill()

    def put(self, name: str, config: Mapping[str, object]) -> None:
        """Make a connector, or change it; again while the group of workers rebalances."""
        url = f"{self.url}/connectors/{name}/config"
        self.program.until(
            lambda: self._asked("PUT", url, config) in (200, 201), f"it has the connector {name}"
        )

    def runs(self, name: str) -> None:
        """Wait until a connector and its one task run."""
        self.program.until(lambda: self._states(name) == ["RUNNING"] * 2, f"{name} runs with one task")

    def _states(self, name: str) -> list[str]:
        try:
            answer = httpx.get(f"{self.url}/connectors/{name}/status", timeout=WAIT_S)
        except httpx.TransportError:
            return []
        found: Any = answer.json() if answer.status_code == 200 else {}
        return [found["connector"]["state"], *(task["state"] for task in found["tasks"])] if found else []

    def _asked(self, method: str, url: str, body: object) -> int:
        try:
            return httpx.request(method, url, json=body, timeout=WAIT_S).status_code
        except httpx.TransportError:
            return 0


def properties(file: Path, config: Mapping[str, object]) -> str:
    """A file of Java's properties; returns its name."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
    return str(file)
