"""A real gateway for tests: its own process, on a free port, over a temporary root."""

import os
import signal
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any

import httpx
import pytest

from ingest.settings import SECRET
from log_tables.clock import SystemClock
from log_tables.layout import partition_directory, topic_directory
from log_tables.partition.partition import Partition
from log_tables.store.store import open_store
from tests.kit.forked import ForkedLakelog
from tests.kit.partitions import append_each, thin_out
from tests.kit.run_credential import note_gateway, settings_of
from tests.kit.support import WAIT_S, exit_code

LEADER_TIMEOUT_MS = 500
"""Short, as one that is killed here and started again has another port, and so is another broker."""

NEVER_MS = 600_000
"""No machine is so slow that a gateway is silent for so long: the timeout where nobody is to take over."""


@dataclass
class RunningGateway:
    """A gateway process and a client of it, whose requests are relative to the gateway's URL."""

    process: ForkedLakelog
    url: str
    data: str
    client: httpx.Client
    ssl_context: ssl.SSLContext | None = None

    @property
    def cluster(self) -> str:
        """The URL path of the v3 cluster."""
        found = self.client.get("/v3/clusters").json()["data"][0]["cluster_id"]
        return f"/v3/clusters/{found}"

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> str:
        """Create a topic; `configs` are Kafka's names with `_` for `.`. Returns the name."""
        body = {"topic_name": name, "partitions_count": partitions, "configs": _named(configs)}
        answer = self.client.post(f"{self.cluster}/topics", json=body)
        assert answer.status_code == 201, answer.text
        return name

    def alter_topic(self, name: str, **configs: str) -> None:
        """Set settings of a topic, named as for `create_topic`."""
        path = f"{self.cluster}/topics/{name}/configs:alter"
        answer = self.client.post(path, json={"data": _named(configs)})
        assert answer.status_code == 204, answer.text

    def produce(self, topic: str, *values: Any, partition: int | None = None, **query: str) -> httpx.Response:
        """Produce JSON values, through the partition's endpoint when one is named."""
        path = f"/topics/{topic}" + ("" if partition is None else f"/partitions/{partition}")
        return self.client.post(
            path,
            json={"records": [{"value": value} for value in values]},
            headers={"Content-Type": "application/vnd.kafka.json.v2+json"},
            params=query,
        )

    def stop(self) -> int:
        """Ask it to stop in order; returns the exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        """End it at once, as a power cut would end the process."""
        return self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.client.close()
        return exit_code(self.process)


def _named(configs: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()]


def start_gateway(data: str | Path, *flags: str, **settings: object) -> RunningGateway:
    """Start `lakelog serve` on a free port and wait until it says that it is ready.

    `flags` go to the command line, `settings` are set by `--set`; those that may hold a secret, and so have
    no flag, by their variables. Where these have empty `authentication_methods`, it authenticates nobody in
    a secured run either.
    """
    own = "authentication_methods" in settings
    secured = {} if own else settings_of(data, settings.get("store_options", "{}"))
    if own and not settings["authentication_methods"]:
        settings = {name: value for name, value in settings.items() if name != "authentication_methods"}
    settings = {"leader_timeout_ms": LEADER_TIMEOUT_MS, **secured, **settings}
    without_flag = settings.keys() & {*SECRET} - {"store_options"}
    by_variable = {name: settings.pop(name) for name in sorted(without_flag)}
    pairs = (part for name, value in settings.items() for part in ("--set", f"{name}={value}"))
    others = {name: value for name, value in os.environ.items() if not name.startswith("LAKELOG_")}
    words = ["serve", "--data", str(data), "--port", "0", *flags, *pairs]
    own_variables = {f"LAKELOG_{name.upper()}": str(value) for name, value in by_variable.items()}
    process = ForkedLakelog(words, {**others, **own_variables, "PYTHONFAULTHANDLER": "1"})
    late = Timer(WAIT_S, process.send_signal, [signal.SIGABRT])
    late.start()
    ready = process.stdout.readline()
    late.cancel()
    assert "ready at" in ready, f"the gateway ended with exit code {exit_code(process)}"
    url = ready.split("ready at ")[1].split()[0]
    note_gateway(url, own)
    return RunningGateway(process, url, str(data), httpx.Client(base_url=url, timeout=30))


@contextmanager
def running_gateway(data: str | Path, **settings: object) -> Iterator[RunningGateway]:
    """A gateway that is stopped at the end, whatever happens."""
    gateway = start_gateway(data, **settings)
    try:
        yield gateway
    finally:
        gateway.stop()


@contextmanager
def two_gateways(data: str | Path, **settings: object) -> Iterator[tuple[RunningGateway, RunningGateway]]:
    """Two gateways of one root that never take each other for dead, however busy the machine is."""
    settings = {"leader_timeout_ms": NEVER_MS, **settings}
    with running_gateway(data, **settings) as first, running_gateway(data, **settings) as second:
        yield first, second


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """One gateway for all tests that only need topics of their own."""
    with running_gateway(tmp_path_factory.mktemp("gateway"), linger_ms=0) as running:
        yield running


@pytest.fixture
def topic(gateway: RunningGateway, request: pytest.FixtureRequest) -> str:
    """A new topic of two partitions, named after the test."""
    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in request.node.name)
    return gateway.create_topic(name[:200], partitions=2)


def append_segments(gateway: RunningGateway, topic: str, count: int) -> None:
    """Append the values 0, 1, 2 … to partition 0 of `topic` behind the gateway's back, a segment for each."""
    directory = partition_directory(topic_directory(topic), 0)
    partition = Partition(open_store(gateway.data), directory, SystemClock())
    partition.claim("http://elsewhere")
    append_each(partition, [b"%d" % number for number in range(count)])


def leave_every_tenth(gateway: RunningGateway, topic: str) -> None:
    """Compact partition 0 of `topic` behind the gateway's back: offsets 0, 10, 20 … and the last one
    stay, in one segment.
    """
    directory = partition_directory(topic_directory(topic), 0)
    partition = Partition(open_store(gateway.data), directory, SystemClock())
    thin_out(partition, partition.snapshot.segments, lambda offset: offset % 10 == 0)
