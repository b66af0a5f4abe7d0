"""Several gateways on one root, each at a port that it keeps, and clients of all of them."""

import json
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx

from coordinator.brokers.leadership import preferred_leaders
from lakelog.client.client import Client
from log_tables.clock import timer
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.store.store import open_store
from tests.kit.clients import Task
from tests.kit.consumers import JSON
from tests.kit.gateway import RunningGateway, start_gateway
from tests.kit.history import At, Commit, Fetch, Write
from tests.kit.history_checker import Finding
from tests.kit.proxy import Proxy
from tests.kit.support import free_port, wait_until
from tests.kit.workload import Workload, lag

TOPIC, COPY, PARTITIONS = "t", "copy", 3
READERS, COPIERS = "readers", "copiers"
LONG_S = 120.0
"""For whatever needs several processes, on a machine that is busy with others."""


class Several:
    """Gateways at `urls`, started together. With `proxied` they reach one another by `proxies` only, with
    `hosts` at these addresses of the machine.
    """

    def __init__(
        self,
        directory: Path,
        count: int,
        *,
        root: str = "",
        options: Mapping[str, str] = MappingProxyType({}),
        proxied: bool = False,
        hosts: Sequence[str] = (),
        **settings: object,
    ) -> None:
        self._directory, self.root, self.options = directory, root or str(directory / "root"), dict(options)
        self._settings = {"linger_ms": 1, "store_options": json.dumps(self.options), **settings}
        if "://" in self.root:
            secret = directory / "peer-secret"
            secret.write_text("several" * 8)
            secret.chmod(0o600)
            self._settings["peer_secret_file"] = secret
        self._ports = [free_port() for _ in range(count)]
        self.urls = [f"http://127.0.0.1:{port}" for port in self._ports]
        self._open = ExitStack()
        self.proxies = [Proxy(port) for port in self._ports] if proxied else []
        for proxy in self.proxies:
            self._open.callback(proxy.close)
        self._peer_urls = [proxy.url for proxy in self.proxies]
        for host, port in zip(hosts, self._ports, strict=False):
            self._settings |= {"host": "0.0.0.0", "insecure": True}
            self._peer_urls.append(f"http://{host}:{port}")
        self.gateways: list[RunningGateway] = []
        try:
            with ThreadPoolExecutor(count) as pool:
                self.gateways += pool.map(self._started, range(count))
            self.wait_until_alive(count)
        except BaseException:
            self._open.close()
            raise

    def _started(self, number: int) -> RunningGateway:
        settings = dict(self._settings)
        if self._peer_urls:
            settings["peer_url"] = self._peer_urls[number]
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
        at = (self._peer_urls or self.urls)[number]
        (found,) = (each["broker"] for each in brokers(self.running()[0].url) if each["url"] == at)
        return int(found)

    def is_balanced(self) -> bool:
        """Whether the preferred leader leads each partition that was ever claimed."""
        alive = tuple(sorted(each["broker"] for each in brokers(self.running()[0].url) if each["alive"]))
        return all(
            partition.snapshot.leader_broker
            == preferred_leaders(topic.topic_id, topic.partition_count, alive)[index]
            for topic in self._topics()
            for index, partition in enumerate(topic.partitions())
            if partition.snapshot.leader_epoch
        )

    def _topics(self) -> list[Topic]:
        cluster = Cluster.open(open_store(self.root, self.options), create=False)
        return cluster.topics(include_internal=True)

    def claims(self) -> dict[str, int]:
        """How often each partition of each topic was claimed, by its directory."""
        return {
            partition.directory: partition.snapshot.leader_epoch
            for topic in self._topics()
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


@contextmanager
def loaded(several: Several, directory: Path, *, alternating: bool = False) -> Iterator[Load]:
    """Clients of all of `several`, and both ended at the end."""
    with closing(several):
        load = Load(directory, several.urls, alternating=alternating)
        load.start()
        try:
            yield load
        finally:
            load.work.end()


def check_refusals(several: Several, *others: int) -> None:
    """Each of two gateways refuses what belongs to the other, which it cannot reach, with 50003, 50304 or
    one of the error codes `others`, and takes what is its own.
    """
    led = leaders(several.urls[0], TOPIC)
    refused = (50003, 50304, *others)
    asked = [
        (
            f"{url}/topics/{TOPIC}/partitions/{index}",
            (41201,) if leader == several.broker(number) else refused,
        )
        for number, url in enumerate(several.urls)
        for index, leader in enumerate(led)
    ]
    with ThreadPoolExecutor(len(asked)) as pool:
        answers = pool.map(_append_if_empty, (url for url, _ in asked))
        paths = [f"{url}/consumers/{READERS}/offsets" for url in several.urls]
        groups = pool.map(partial(httpx.get, timeout=LONG_S), paths)
    for answer, (url, expected) in zip(answers, asked, strict=True):
        assert answer.json()["error_code"] in expected, f"{url}: {answer.text}"
    codes = [answer.json()["error_code"] in refused for answer in groups if not answer.is_success]
    assert codes == [True]


def time_to_serve(urls: Sequence[str], meanwhile: Callable[[], None]) -> float:
    """Seconds until the gateways at `urls` answer for each partition and group, while `meanwhile` is done."""
    begin = timer()

    def partition_is_led(url: str, index: int) -> bool:
        answer = _append_if_empty(f"{url}/topics/{TOPIC}/partitions/{index}")
        return bool(answer.json()["error_code"] == 41201)

    def group_is_led(url: str, group: str) -> bool:
        return httpx.get(f"{url}/consumers/{group}/offsets", timeout=LONG_S).status_code in (200, 404)

    waits = [partial(partition_is_led, url, index) for url in urls for index in range(PARTITIONS)]
    waits += [partial(group_is_led, url, group) for url in urls for group in (READERS, COPIERS)]

    def served(wait: Callable[[], bool]) -> float:
        wait_until(wait, f"{wait} is served", LONG_S)
        return timer() - begin

    with ThreadPoolExecutor(len(waits)) as pool:
        times = pool.map(served, waits)
        meanwhile()
        return max(times)


def _append_if_empty(url: str) -> httpx.Response:
    body = json.dumps({"records": [{"value": "only if the log were empty"}]})
    headers = {"Content-Type": JSON, "Expected-Offset": "0"}
    return httpx.post(url, headers=headers, content=body, timeout=LONG_S)


def part(
    several: Several, load: Load, cut: Callable[[], None], join: Callable[[], None], *others: int
) -> None:
    """Let two gateways that share the partitions lose one another, and find one another again."""
    load.wait_for_all()
    wait_until(several.is_balanced, "each leads its share", LONG_S)
    before = several.claims()
    cut()
    check_refusals(several, *others)
    check_refusals(several)
    for index in range(PARTITIONS):
        load.work.wait_for(2, Write, f"idempotent{index}")
    after = several.claims()
    assert after == before, f"claims while they were cut off: {sorted(after.items() - before.items())}"
    join()
    load.wait_for_all(2)


def brokers(url: str) -> list[dict[str, Any]]:
    """The gateways, as the one at `url` lists them."""
    with Client(url, timeout_s=LONG_S) as client:
        return client.brokers()


def leaders(url: str, topic: str) -> list[int]:
    """The broker that leads each partition, as the gateway at `url` says."""
    answer = httpx.get(f"{url}/topics/{topic}/partitions", timeout=LONG_S)
    assert answer.status_code == 200, answer.text
    return [each["leader"] for each in answer.json()]
