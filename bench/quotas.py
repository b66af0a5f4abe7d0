"""How exactly byte quotas are kept: what a client reaches that sends, or fetches, as much as it may."""

import http.client
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from bench import load
from bench.cells import scratch
from bench.contest import OURS, Results, Scale
from bench.gateway import Gateway
from bench.peers import Peers
from coordinator.access.authentication.api_key import new_api_key
from log_tables.clock import SystemClock, timer
from log_tables.cluster.access_record import Quota, quota_record, super_user_record
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.credential_log import api_key_record, create_credentials
from log_tables.store.store import open_store

_USER, _QUOTA = "User:bench", 2_000_000
_SECONDS, _BEFORE_S = 30.0, 3.0
"""A bucket begins full, so the first seconds do not count."""

_CONNECTIONS, _RECORDS, _FETCH_BYTES = 4, 500, 65_536


def byte_quotas(_peers: Peers | None, _scale: Scale) -> Results:
    """Four connections of one user, for 30 s each: the bytes that it sends, and gets, to its quota."""
    with scratch() as directory:
        root = directory / "data"
        with Gateway(root) as gateway:
            gateway.create_topic("bench", 1)
        sent = f"Bearer {_key(root)}"
        with Gateway(root, "--set", "authentication_methods=api-key") as gateway:
            return {
                OURS: {
                    "produced to quota": _produced(gateway, sent),
                    "fetched to quota": _fetched(gateway, sent),
                }
            }


def _produced(gateway: Gateway, sent: str) -> float:
    body = load.json_body(_RECORDS)
    headers = {"Authorization": sent, "Content-Type": load.JSON}

    def send(connection: http.client.HTTPConnection) -> tuple[http.client.HTTPResponse, int]:
        connection.request("POST", "/topics/bench", body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer, len(body)

    return _reached(gateway, send)


def _fetched(gateway: Gateway, sent: str) -> float:
    page = f"/topics/bench/partitions/0/records?offset=0&max_bytes={_FETCH_BYTES}"

    def fetch(connection: http.client.HTTPConnection) -> tuple[http.client.HTTPResponse, int]:
        connection.request("GET", page, headers={"Authorization": sent})
        answer = connection.getresponse()
        return answer, len(answer.read())

    return _reached(gateway, fetch)


def _reached(
    gateway: Gateway, ask: Callable[[http.client.HTTPConnection], tuple[http.client.HTTPResponse, int]]
) -> float:
    """The rate of the bytes of requests that were answered within `_SECONDS`, to the quota."""
    begin = timer() + _BEFORE_S
    end = begin + _SECONDS
    counted: list[int] = []

    def work() -> None:
        connection = http.client.HTTPConnection(urlsplit(gateway.url).netloc, timeout=60)
        while timer() < end:
            answer, size_bytes = ask(connection)
            if answer.status == http.HTTPStatus.TOO_MANY_REQUESTS:
                SystemClock().pause(float(answer.headers["Retry-After"]))
            elif answer.status != http.HTTPStatus.OK:
                raise RuntimeError(f"the gateway answered {answer.status}")
            elif begin <= timer() < end:
                counted.append(size_bytes)
        connection.close()

    threads = [threading.Thread(target=work) for _ in range(_CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counted) / _SECONDS / _QUOTA


def _key(root: Path) -> str:
    """A key of a super user who has quotas."""
    cluster = Cluster.open(open_store(str(root)))
    text, key = new_api_key(_USER, cluster.clock)
    create_credentials(cluster.store, cluster.clock, "").change(lambda _: [api_key_record(key)])
    quota = Quota(producer_byte_rate=_QUOTA, consumer_byte_rate=_QUOTA)
    cluster.metadata_log.change_access(lambda _: [super_user_record(_USER), quota_record(_USER, quota)])
    return text
