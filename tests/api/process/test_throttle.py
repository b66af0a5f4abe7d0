"""Quotas over HTTP: a short debt delays an answer, a long one is 429; no principal pays for another."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from api.process.app import create_app
from api.process.server import open_gateway
from api.requests.body import brings_records
from api.requests.rules import RULES
from ingest.settings import Settings
from log_tables.cluster.access_record import Quota, quota_record
from log_tables.cluster.acl import Operation
from tests.kit.every_route import routes
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.secured import Secured, bearer, error_code, everything
from tests.kit.support import wait_until

BODY = {"records": [{"value": "x" * 2_000}]}
KIND = {"Content-Type": "application/vnd.kafka.json.v2+json"}
ACCEPT = {"Accept": "application/vnd.kafka.json.v2+json"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return Secured(tmp_path_factory.mktemp("quotas"))


@pytest.fixture(scope="module")
def gateway(root: Secured) -> Iterator[RunningGateway]:
    data = root.cluster.store.url.removeprefix("file://")
    with running_gateway(data, linger_ms=0, authentication_methods="api-key") as running:
        key = root.key()
        answer = running.client.post("/topics", json={"topic_name": "t"}, headers=bearer(key))
        wait_until(lambda: running.client.get("/topics", headers=bearer(key)).is_success, "the key is known")
        if not answer.is_success:
            running.client.post("/topics", json={"topic_name": "t"}, headers=bearer(key)).raise_for_status()
        yield running


def client_of(root: Secured, gateway: RunningGateway, principal: str, **quota: float) -> httpx.Client:
    """A client of a principal with these quotas, which the gateway knows."""
    root.allow(*everything(principal))
    found = httpx.Client(base_url=gateway.url, headers=bearer(root.key(principal)), timeout=60)
    wait_until(lambda: found.get("/metrics").is_success, "the gateway knows the key")
    root.cluster.metadata_log.change_access(lambda _: [quota_record(principal, Quota(**quota))])
    return found


def test_a_producer_beyond_its_quota_is_delayed_and_then_refused(
    root: Secured, gateway: RunningGateway
) -> None:
    limited = client_of(root, gateway, "User:p", producer_byte_rate=4_000)
    delays, refused = [], None
    for _ in range(2_000):
        answer = limited.post("/topics/t", json=BODY, headers=KIND)
        delays.append(int(answer.headers.get("Throttle-Time-Ms", 0)))
        if not answer.is_success:
            refused = answer
            break
        if delays[-1]:
            large = {"records": [{"value": "x" * 20_000}]}
            assert limited.post("/topics/t", json=large, headers=KIND).is_success
    assert refused is not None
    assert (refused.status_code, error_code(refused)) == (429, 42901)
    assert int(refused.headers["Retry-After"]) >= 2
    assert any(0 < delay <= 1_000 for delay in delays)
    free = client_of(root, gateway, "User:q", consumer_byte_rate=10)
    assert free.post("/topics/t", json=BODY, headers=KIND).is_success


def test_a_consumer_pays_with_its_next_request(root: Secured, gateway: RunningGateway) -> None:
    writer = client_of(root, gateway, "User:w")
    writer.post("/topics/t", json=BODY, headers=KIND).raise_for_status()
    limited = client_of(root, gateway, "User:c", consumer_byte_rate=100)

    def fetched() -> int:
        return limited.get("/topics/t/partitions/0/records", headers=ACCEPT).status_code

    wait_until(lambda: fetched() == 429, "what was read is paid for")
    assert limited.get("/topics").is_success


def test_requests_are_counted(root: Secured, gateway: RunningGateway) -> None:
    limited = client_of(root, gateway, "User:r", request_rate=5)
    wait_until(lambda: "Throttle-Time-Ms" in limited.get("/topics").headers, "the quota is known")
    delays = [int(limited.get("/topics").headers.get("Throttle-Time-Ms", 0)) for _ in range(10)]
    assert 1 <= max(delays) <= 1_000


def test_changes_of_topics_are_counted(root: Secured, gateway: RunningGateway) -> None:
    limited = client_of(root, gateway, "User:m", controller_mutation_rate=2)
    created = iter(range(1_000))

    def create() -> int:
        body = {"topic_name": f"m{next(created)}", "partitions_count": 8}
        return limited.post("/topics", json=body).status_code

    wait_until(lambda: create() == 429, "partitions are counted")


@pytest.mark.parametrize("count", [-1_000_000, 10**400], ids=["negative", "huge"])
def test_a_number_of_partitions_that_cannot_be_pays_no_debt(
    root: Secured, gateway: RunningGateway, count: int
) -> None:
    limited = client_of(root, gateway, f"User:n{count < 0}", controller_mutation_rate=2)
    created = iter(range(1_000))

    def create() -> int:
        wrong = limited.post("/topics", json={"topic_name": "wrong", "partitions_count": count})
        assert wrong.status_code in (400, 429), wrong.text
        body = {"topic_name": f"n{count < 0}{next(created)}", "partitions_count": 3}
        return limited.post("/topics", json=body).status_code

    wait_until(lambda: create() == 429, "partitions are counted")


def test_every_route_that_writes_records_is_metered(tmp_path: Path) -> None:
    app = create_app(open_gateway(Settings(data=str(tmp_path)), "http://test"))
    for method, path in routes(app):
        operations = {each.operation for each in RULES[f"{method} {path}"].needs}
        scope = {"method": method, "path": path.replace("{", "").replace("}", "")}
        assert brings_records(scope) == (Operation.WRITE in operations), (method, path)


def test_one_principal_has_so_many_requests_under_way(tmp_path: Path) -> None:
    root = Secured(tmp_path)
    settings = {"authentication_methods": "api-key", "principal_requests_max": 2, "linger_ms": 0}
    with running_gateway(tmp_path, **settings) as gateway, ThreadPoolExecutor(3) as pool:
        one, other = bearer(root.key("User:one")), bearer(root.key())
        root.allow(*everything("User:one"))
        wait_until(lambda: gateway.client.get("/metrics", headers=one).is_success, "the key is known")
        created = gateway.client.post("/topics", json={"topic_name": "t"}, headers=other)
        created.raise_for_status()
        url = "/topics/t/partitions/0/records?timeout=100000"

        def polled() -> httpx.Response:
            while True:  # a look at whether both wait is a request of the same principal
                answer = gateway.client.get(url, headers=one | ACCEPT, timeout=120)
                if answer.status_code != 429:
                    return answer

        polls = [pool.submit(polled) for _ in range(2)]

        def refused() -> bool:
            return gateway.client.get("/topics", headers=one).status_code == 429

        wait_until(refused, "both polls wait")
        assert gateway.client.get("/topics", headers=other).is_success
        assert gateway.client.get("/health").is_success
        gateway.client.post("/topics/t", json=BODY, headers=KIND | other).raise_for_status()
        assert [poll.result().status_code for poll in polls] == [200, 200]
        assert gateway.client.get("/topics", headers=one).is_success


def test_one_address_has_so_many_connections(tmp_path: Path) -> None:
    with running_gateway(tmp_path, max_connections_per_ip=2) as gateway, ExitStack() as stack:
        at = (gateway.url.split("//")[1].split(":")[0], int(gateway.url.rsplit(":", 1)[1]))
        held = [stack.enter_context(socket.create_connection(at, timeout=60)) for _ in range(2)]
        for each in held:
            each.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert each.recv(100).startswith(b"HTTP/1.1 200")
        third = stack.enter_context(socket.create_connection(at, timeout=60))
        assert third.recv(1_000).startswith(b"HTTP/1.1 503")
        held[0].close()

        def served() -> bool:
            with socket.create_connection(at, timeout=60) as again:
                again.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                return again.recv(100).startswith(b"HTTP/1.1 200")

        wait_until(served, "there is room again")
