"""Several gateways on one root, each at a port that it keeps, and clients of all of them."""

import json
import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx

from log_tables.cluster import Cluster
from log_tables.store import open_store
from tests.clients import Task
from tests.gateway import RunningGateway, start_gateway
from tests.history import At, Commit, Fetch, Write
from tests.history_checker import Finding
from tests.proxy import Proxy
from tests.support import free_port, wait_until
from tests.workload import Workload, lag

TOPIC, COPY, PARTITIONS = "t", "copy", 3
READERS, COPIERS = "readers", "copiers"
LONG_S = 120.0
"""For whatever needs several processes, on a machine that is busy with others."""


class Several:
    """Gateways at `urls`, started together. With `proxied` they reach one another by `proxies` only."""

    def __init__(
        self,
        directory: Path,
        count: int,
        *,
        root: str = "",
        options: Mapping[str, str] = MappingProxyType({}),
        proxied: bool = False,
        **settings: object,
    ) -> None:
        self._directory, self.root, self.options = directory, root or str(directory / "root"), dict(options)
        self._settings = {"linger_ms": 1, "store_options": json.dumps(self.options), **settings}
        self._ports = [free_port() for _ in range(count)]
        self.urls = [f"http://127.0.0.1:{port}" for port in self._ports]
        self._open = ExitStack()
        self.proxies = [Proxy(port) for port in self._ports] if proxied else []
        for proxy in self.proxies:
            self._open.callback(proxy.close)
        with ThreadPoolExecutor(count) as pool:
            self.gateways: list[RunningGateway] = list(pool.map(self._started, range(count)))
        self.wait_until_alive(count)

    def _started(self, number: int) -> RunningGateway:
        settings = dict(self._settings)
        if self.proxies:
            settings["peer_url"] = self.proxies[number].url
        gateway = start_gateway(self.root, "--port", str(self._ports[number]), **settings)
        self._open.callback(gateway.stop)
        return gateway

    def start(self, number: int) -> None:
        """Start a gateway again, where it was."""
        self.gateways[number] = self._started(number)

    def add(self) -> int:
        """Start one more; returns its number."""
        self._ports.append(free_port())
        self.urls.append(f"http://127.0.0.1:{self._ports[-1]}")
        self.gateways.append(self._started(len(self.gateways)))
        return len(self.gateways) - 1

    def pause(self, number: int) -> None:
        self.gateways[number].process.send_signal(signal.SIGSTOP)

    def go_on(self, number: int) -> None:
        self.gateways[number].process.send_signal(signal.SIGCONT)

    def running(self) -> list[RunningGateway]:
        return [gateway for gateway in self.gateways if gateway.process.poll() is None]

    def wait_until_alive(self, count: int) -> None:
        """Return when all that run see as many."""
        for gateway in self.running():
            wait_until(
                lambda: sum(each["alive"] for each in brokers(gateway.url)) == count,  # noqa: B023
                f"{gateway.url} sees {count} gateways",
                LONG_S,
            )

    def broker(self, number: int) -> int:
        """The number that the gateways give one of them."""
        at = self.proxies[number].url if self.proxies else self.urls[number]
        (found,) = (each["broker"] for each in brokers(self.running()[0].url) if each["url"] == at)
        return int(found)

    def claims(self) -> dict[str, int]:
        """How often each partition of each topic was claimed, by its directory."""
        cluster = Cluster.open(open_store(self.root, self.options), create=False)
        return {
            partition.directory: partition.snapshot.leader_epoch
            for topic in cluster.topics(include_internal=True)
            for partition in topic.partitions()
        }

    def close(self) -> None:
        for number, gateway in enumerate(self.gateways):
            if gateway.process.poll() is None:
                self.go_on(number)
        self._open.close()


class Load:
    """Every kind of client at each partition of TOPIC, which it makes, and what they find in the end."""

    def __init__(self, directory: Path, urls: Sequence[str], *, alternating: bool = False) -> None:
        self._url = urls[0]
        with httpx.Client(base_url=self._url, timeout=LONG_S) as client:
            cluster = client.get("/v3/clusters").json()["data"][0]["cluster_id"]
            for topic in (TOPIC, COPY):
                body = {"topic_name": topic, "partitions_count": PARTITIONS}
                assert client.post(f"/v3/clusters/{cluster}/topics", json=body).status_code == 201
        self.work = Workload(urls, directory, alternating=alternating)

    def start(self) -> None:
        for index in range(PARTITIONS):
            at = At(TOPIC, index)
            copies = tuple(At(COPY, to) for to in range(PARTITIONS))
            self.work.start(
                Task("produce", f"idempotent{index}", at),
                Task("produce plainly", f"plain{index}", at),
                Task("fetch", f"fetcher{index}", at),
            )
            if index < 2:
                self.work.start(
                    Task("read", f"reader{index}", at, READERS),
                    Task("copy", f"copier{index}", at, COPIERS, copies),
                )

    def wait_for_all(self, more: int = 1) -> None:
        """Return when each kind of client has got on, in every partition."""
        for index in range(PARTITIONS):
            self.work.wait_for(more, Write, f"idempotent{index}")
            self.work.wait_for(more, Write, f"plain{index}")
        self.work.wait_for(more, Write, "copier")
        self.work.wait_for(more, Commit)
        self.work.wait_for(more, Fetch)

    def findings(self) -> list[Finding]:
        """End the load, let the groups reach the end, and look."""
        self.work.end_writers()
        for group in (READERS, COPIERS):
            wait_until(partial(self._is_at_the_end, group), f"{group} are at the end", LONG_S)
        self.work.end()
        return self.work.findings({TOPIC: PARTITIONS, COPY: PARTITIONS}, [READERS, COPIERS])

    def _is_at_the_end(self, group: str) -> bool:
        return lag(self._url, group, TOPIC, PARTITIONS) == 0


def brokers(url: str) -> list[dict[str, Any]]:
    """The gateways, as the one at `url` lists them."""
    answer = httpx.get(f"{url}/brokers", timeout=LONG_S)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["gateways"]
    return found


def leaders(url: str, topic: str) -> list[int]:
    """The broker that leads each partition, as the gateway at `url` says."""
    answer = httpx.get(f"{url}/topics/{topic}/partitions", timeout=LONG_S)
    assert answer.status_code == 200, answer.text
    return [each["leader"] for each in answer.json()]
