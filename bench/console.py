"""The console: pages of a large cluster, of a partition of very many files, SQL, and what open pages cost."""

import http.client
import json
import statistics
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Any

from bench import load
from bench.cells import Figures, body_file, fill, scratch
from bench.contest import OURS, Results, Scale
from bench.gateway import Gateway
from bench.peers import Peers
from log_tables.clock import SystemClock, timer
from log_tables.layout import partition_directory, topic_directory
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import Record, input_batch
from log_tables.store.store import open_store

TOPICS, TOPIC_PARTITIONS, GROUPS, GROUP_TOPICS = 1_000, 16, 200, 5
SEGMENTS = 10_000
RECORDS = 10_000_000
CONSOLES, REFRESH_S = 10, 5.0
_PARTITIONS, _BODY_RECORDS, _CONNECTIONS = 4, 500, 16
_ORDERS = ("name", "lag", "records", "bytes", "rate", "newest")
_QUANTILE = 0.95


def topic_list(seconds: int) -> Figures:
    """1,000 topics of 16 partitions, 200 groups with offsets in 80 partitions each; a page of the list twice
    a second, in another order each time, next to appends.
    """
    with scratch() as directory, Gateway(directory / "data") as gateway:
        begin = timer()
        _make_cluster(gateway)
        made_s = timer() - begin
        begin = timer()
        _page(gateway, "/console/topics")
        first_s = timer() - begin
        clock, times = SystemClock(), list[float]()
        orders = cycle(_ORDERS)
        for number in range(2 * seconds):
            _produce(gateway, f"topic-{number % TOPICS}", 1)
            times.append(_timed(gateway, f"/console/topics?order={next(orders)}&page={1 + number % 20}"))
            clock.pause(0.5)
        return {
            "making the cluster s": made_s,
            "first look s": first_s,
            "p50 ms": 1000 * statistics.median(times),
            "p95 ms": 1000 * _quantile(times),
            "max ms": 1000 * max(times),
        }


def strip(seconds: int) -> Figures:
    """The page of a partition of 10,000 segments."""
    with scratch() as directory:
        root = directory / "data"
        with Gateway(root) as gateway:
            gateway.create_topic("bench", 1)
        partition = Partition(
            open_store(str(root)), partition_directory(topic_directory("bench"), 0), SystemClock()
        )
        partition.claim("bench")
        for number in range(SEGMENTS):
            batch = input_batch([Record(b"%d" % number)], SystemClock().now_us())
            partition.append([AppendRequest(batch)])
            if partition.table.checkpoint_due():
                partition.checkpoint()
        with Gateway(root) as gateway:
            path = "/console/topics/bench/partitions/0"
            first_s = _timed(gateway, path)
            times = [_timed(gateway, path) for _ in range(4 * seconds)]
            size = len(_page(gateway, path))
        return {
            "first s": first_s,
            "p50 ms": 1000 * statistics.median(times),
            "p95 ms": 1000 * _quantile(times),
            "page KB": size / 1000,
        }


def sql(_seconds: int) -> Figures:
    """10 M records: the first rows of two queries, and the end of a third that is given up."""
    with scratch() as directory:
        root = directory / "data"
        with Gateway(root) as gateway:
            gateway.create_topic("bench", _PARTITIONS)
        fill(root, RECORDS)
        with Gateway(root) as gateway:
            _first_rows(gateway, "SELECT 1")  # the process is there
            limited = _first_rows(gateway, "SELECT * FROM bench LIMIT 100")
            streamed = _first_rows(gateway, 'SELECT "offset", value_text FROM bench')
            given_up = _given_up(gateway, "SELECT max(md5(value_text)) FROM bench")
        return {"first rows, LIMIT s": limited, "first rows, all s": streamed, "given up s": given_up}


def open_consoles(_peers: Peers | None, scale: Scale) -> Results:
    """Large requests, while ten readers have pages of the console open that refresh themselves, and none."""
    return {OURS: _produced(scale.seconds, CONSOLES), "no console": _produced(scale.seconds, 0)}


def _produced(seconds: int, consoles: int) -> Figures:
    with scratch() as directory, Gateway(directory / "data") as gateway:
        gateway.create_topic("bench", _PARTITIONS)
        url, body = f"{gateway.url}/topics/bench", body_file(directory, load.json_body(_BODY_RECORDS))
        load.post(url, body, load.JSON, _CONNECTIONS, 2)
        with _readers(gateway, consoles):
            begun = gateway.cpu_seconds
            measured = load.post(url, body, load.JSON, _CONNECTIONS, seconds)
            used = gateway.cpu_seconds - begun
        return {
            "records/s": measured.requests * _BODY_RECORDS / measured.seconds,
            "CPU µs/request": 1e6 * used / measured.requests,
        }


@contextmanager
def _readers(gateway: Gateway, count: int) -> Iterator[None]:
    """Keep pages open, each of which asks again every five seconds."""
    paths = ("/console", "/console/topics", "/console/groups", "/console/topics/bench")
    stop = threading.Event()

    def read(path: str) -> None:
        while not stop.wait(REFRESH_S):
            _page(gateway, path)

    threads = [threading.Thread(target=read, args=(paths[n % len(paths)],)) for n in range(count)]
    for number, thread in enumerate(threads):
        SystemClock().pause(REFRESH_S / max(1, count) if number else 0)
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _make_cluster(gateway: Gateway) -> None:
    for number in range(TOPICS):
        gateway.create_topic(f"topic-{number}", TOPIC_PARTITIONS)
        _produce(gateway, f"topic-{number}", TOPIC_PARTITIONS)
    for number in range(GROUPS):
        offsets = [
            {"topic": f"topic-{(number * GROUP_TOPICS + each) % TOPICS}", "partition": partition, "offset": 0}
            for each in range(GROUP_TOPICS)
            for partition in range(TOPIC_PARTITIONS)
        ]
        _ask(gateway, "PUT", f"/consumers/group-{number}/offsets", {"offsets": offsets})


def _produce(gateway: Gateway, topic: str, partitions: int) -> None:
    records = [{"value": "x" * 100, "partition": partition} for partition in range(partitions)]
    _ask(gateway, "POST", f"/topics/{topic}", {"records": records})


def _timed(gateway: Gateway, path: str) -> float:
    begin = timer()
    _page(gateway, path)
    return timer() - begin


def _page(gateway: Gateway, path: str) -> bytes:
    return _ask(gateway, "GET", path, None)


def _ask(gateway: Gateway, method: str, path: str, body: Any) -> bytes:
    connection = _connection(gateway)
    kind = "application/vnd.kafka.json.v2+json" if method == "POST" else "application/json"
    sent = None if body is None else json.dumps(body)
    connection.request(method, path, sent, {"Content-Type": kind} if sent else {})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    if answer.status >= 300:
        raise RuntimeError(f"{method} {path}: {answer.status} {content[:300]!r}")
    return content


def _connection(gateway: Gateway) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(gateway.url.removeprefix("http://"), timeout=600)


def _begun(gateway: Gateway, query: str) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = _connection(gateway)
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/console/sql", json.dumps({"sql": query}), headers)
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(f"{query}: {answer.status} {answer.read()[:300]!r}")
    return connection, answer


def _first_rows(gateway: Gateway, query: str) -> float:
    """The seconds until the first rows arrive; the rest is not read."""
    begin = timer()
    connection, answer = _begun(gateway, query)
    for line in answer:
        if "rows" in json.loads(line):
            break
    else:
        raise RuntimeError(f"{query} had no rows")
    elapsed = timer() - begin
    connection.close()
    return elapsed


def _given_up(gateway: Gateway, query: str) -> float:
    """The seconds from the end of a client to the rows of the next query."""
    connection, _ = _begun(gateway, query)
    SystemClock().pause(1.0)
    begin = timer()
    connection.close()
    _first_rows(gateway, "SELECT 1")
    return timer() - begin


def _quantile(times: Sequence[float]) -> float:
    return sorted(times)[int(_QUANTILE * (len(times) - 1))]


CELLS: dict[str, Callable[[int], Figures]] = {
    "console, list of topics": topic_list,
    "console, partition of 10,000 files": strip,
    "console, SQL": sql,
}
"""Those without a rival."""
