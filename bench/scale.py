"""The cost of many idle things to a gateway: `python -m bench.scale --share 0.1`.

The whole is 2,000 topics of 8 partitions, 5,000 groups with a member each, 100,000 ids of producers and
10,000 idle connections, half of them to the Kafka listener. One gateway leads all partitions and all groups.
"""

import argparse
import http.client
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from bench import load
from bench.cells import scratch
from bench.gateway import Gateway, kafka_gateway, wait_until
from bench.many import FULL, PARTITIONS, Sizes, build, group_name, shard_of, topic_name
from bench.soak.store import Bucket
from log_tables.clock import SystemClock, timer
from log_tables.cluster.root_location import note_location
from log_tables.store.store import open_store

_AT_ONCE = 16
_LONE = 200
"""Records that are sent one after the other to find what one takes."""

_SETTLED_S = 75
"""After this time a gateway looks as seldom as it ever does at what nobody uses."""

_HOUR_MS = 3_600_000
_API_VERSIONS = bytes.fromhex("0000000e 0012 0000 00000001 0004 69646c65")
"""A request of a Kafka client called `idle`, as version 0 has it."""

_LAG = re.compile(r"^lakelog_topic_table_lag_seconds\{.*\} (\S+)$", re.MULTILINE)


def main() -> None:
    """Print a table of what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--share", type=float, default=1.0, help="of the whole; 1")
    parser.add_argument("--seconds", type=float, default=20.0, help="for which the idle gateway is watched")
    parser.add_argument("--s3", action="store_true", help="count the requests of an idle gateway on S3, too")
    arguments = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print("| what | measured |\n| --- | ---: |", flush=True)
    for what, measured in figures(FULL.part(arguments.share), arguments.seconds, arguments.s3):
        print(
            f"| {what} | {measured:,.3g} |" if measured < 100 else f"| {what} | {measured:,.0f} |", flush=True
        )


Figures = Iterator[tuple[str, float]]


def figures(sizes: Sizes, seconds: float, s3: bool) -> Figures:
    """Each figure as it is known, with its name."""
    yield from zip(("topics", "groups", "producer ids", "connections"), sizes, strict=True)
    with scratch() as directory, ExitStack() as stack:
        bucket = stack.enter_context(Bucket(directory)) if s3 else None
        root = directory / "s3" / bucket.root.removeprefix("s3://") if bucket else directory / "data"
        begin = timer()
        with scratch(in_memory=True) as fast:
            build(fast / "data", sizes)
            shutil.copytree(fast / "data", root)
        note_location(open_store(str(root)))
        yield "build, s", timer() - begin
        yield from _on_disk(root, sizes, seconds)
        begin = timer()
        found = subprocess.run(
            [sys.executable, "-m", "lakelog", "fsck", "--data", str(root)], capture_output=True, check=False
        )
        yield "fsck, s", timer() - begin
        if found.returncode:
            raise RuntimeError(f"the root is not sound: {found.stdout[-500:]!r} {found.stderr[-500:]!r}")
        if bucket is not None:
            yield from _on_s3(bucket, sizes, seconds)


def _on_disk(root: Path, sizes: Sizes, seconds: float) -> Figures:
    options = _options(sizes)
    begin = timer()
    with kafka_gateway(root, *options) as (kafka, gateway):
        yield "start to ready, s", timer() - begin
        yield "resident at the start, MB", gateway.resident_mb
        yield "start: processor a minute, s", _idle_cpu(gateway, seconds)
        begin = timer()
        _lead_all(gateway.url, sizes)
        yield "all partitions led, s", timer() - begin
        begin = timer()
        _use_groups(gateway.url, sizes)
        yield "a group of each shard answers, s", timer() - begin
        begin = timer()
        wait_until(lambda: _fold_lag(gateway.url) == 0, "the tables over topics are level", 600)
        yield "until all tables over topics are level, s", timer() - begin
        yield "resident, MB", gateway.resident_mb
        yield "idle: processor a minute, s", _idle_cpu(gateway, seconds)
        with _connections(gateway.url, kafka, sizes.connections):
            yield "resident with connections, MB", gateway.resident_mb
            yield "idle with connections: processor a minute, s", _idle_cpu(gateway, seconds)
            took = _lone(gateway.url)
            yield "a lone record, p50 ms", took[len(took) // 2]
            yield "a lone record, p99 ms", took[len(took) * 99 // 100]
            yield "a lone record, most ms", took[-1]
            begin = timer()
            wait_until(lambda: _fold_lag(gateway.url) == 0, "the table over the topic is level")
            yield "its table over the topic is level after, s", timer() - begin
            begin = timer()
            page = _get(f"{gateway.url}/metrics")
            yield "/metrics, s", timer() - begin
            yield "/metrics, KB", len(page) / 1e3
        yield from _take_over(root, gateway, sizes, options)


def _options(sizes: Sizes) -> tuple[str, ...]:
    named = {
        "max_connections": sizes.connections + 200,
        "connections_max_idle_ms": _HOUR_MS,
        "kafka_connections_max_idle_ms": _HOUR_MS,
        "groups_max": 2 * sizes.groups,
        "consumer_instances_max": 2 * sizes.groups,
    }
    return tuple(word for name, value in named.items() for word in ("--set", f"{name}={value}"))


def _lead_all(url: str, sizes: Sizes) -> None:
    """A record to each partition of each topic."""
    records = [{"partition": index, "value": "awake"} for index in range(PARTITIONS)]
    _ask_all(url, [(f"/topics/{topic_name(n)}", {"records": records}) for n in range(sizes.topics)])


def _use_groups(url: str, sizes: Sizes) -> None:
    """A request to one group of each shard, which loads it."""
    one = {shard_of(group_name(number)): group_name(number) for number in range(sizes.groups)}
    _ask_all(
        url, [(f"/consumers/{group}/instances/reader/records?timeout=0", None) for group in one.values()]
    )


def _ask_all(url: str, requests: Sequence[tuple[str, object]]) -> None:
    def ask(lane: int) -> None:
        connection = http.client.HTTPConnection(urlsplit(url).netloc)
        for path, body in requests[lane::_AT_ONCE]:
            _ask(connection, path, body)

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in pool.map(ask, range(_AT_ONCE)):
            pass


def _ask(connection: http.client.HTTPConnection, path: str, body: object = None) -> None:
    data = None if body is None else json.dumps(body).encode()
    connection.request("GET" if data is None else "POST", path, data, {"Content-Type": load.JSON})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status >= 300 or b'"error_code":5' in content:
        raise RuntimeError(f"{path}: {answer.status} {content[:300]!r}")


def _idle_cpu(gateway: Gateway, seconds: float) -> float:
    """Seconds of a processor that a minute takes in which nobody asks for anything."""
    clock = SystemClock()
    clock.pause(5)  # what the last step left to do
    before, begin = gateway.cpu_seconds, timer()
    clock.pause(seconds)
    return (gateway.cpu_seconds - before) * 60 / (timer() - begin)


@contextmanager
def _connections(url: str, kafka: str, count: int) -> Iterator[None]:
    """Half of them to HTTP and half to the Kafka listener, each after a request."""
    health = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with ExitStack() as stack:
        for at, first, most in (
            (urlsplit(url).netloc, health, count // 2),
            (kafka, _API_VERSIONS, count - count // 2),
        ):
            host, _, port = at.rpartition(":")
            for _ in range(most):
                each = stack.enter_context(socket.create_connection((host, int(port))))
                each.sendall(first)
                if not each.recv(65_536):
                    raise RuntimeError(f"{at} has closed a connection")
        yield


def _lone(url: str) -> list[float]:
    """The times that records take, in ms, in order: one connection, one partition, a pause after each."""
    connection, took, clock = http.client.HTTPConnection(urlsplit(url).netloc), [], SystemClock()
    for _ in range(_LONE):
        begin = timer()
        _ask(connection, f"/topics/{topic_name(0)}/partitions/0", {"records": [{"value": "alone"}]})
        took.append((timer() - begin) * 1e3)
        clock.pause(0.02)
    return sorted(took)


def _fold_lag(url: str) -> float:
    return max(map(float, _LAG.findall(_get(f"{url}/metrics").decode())), default=0.0)


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:
        return bytes(answer.read())


def _take_over(root: Path, gateway: Gateway, sizes: Sizes, options: Sequence[str]) -> Figures:
    """Kill the gateway; how long until another one takes records of some partitions, and answers a group."""
    with Gateway(root, *options) as other:
        wait_until(lambda: len(other.leads("")) == 2, "the other gateway knows of it")
        path, body = _led_by(gateway, other), {"records": [{"value": "again"}]}
        gateway.kill()
        begin = timer()
        _until_answered(other.url, path, body)
        yield "after kill -9: a record to a partition is taken, s", timer() - begin
        _until_answered(other.url, f"/consumers/{group_name(0)}/instances/reader/records?timeout=0", None)
        yield "after kill -9: a group is answered, s", timer() - begin
        _lead_all(other.url, sizes)
        yield "after kill -9: a record to every partition is taken, s", timer() - begin


def _led_by(gateway: Gateway, other: Gateway) -> str:
    """The path of a partition that stays with `gateway`, once each of the two leads half of its topic."""

    def led() -> list[int]:
        found = other.leads(topic_name(0))
        return found[gateway.url] if len(found[gateway.url]) == len(found[other.url]) else []

    wait_until(lambda: bool(led()), "each gateway leads half of a topic", 300)
    return f"/topics/{topic_name(0)}/partitions/{led()[0]}"


def _until_answered(url: str, path: str, body: object) -> None:
    def answered() -> bool:
        try:
            _ask(http.client.HTTPConnection(urlsplit(url).netloc, timeout=60), path, body)
        except (RuntimeError, OSError):
            return False
        return True

    wait_until(answered, f"{path} is answered")


def _on_s3(bucket: Bucket, sizes: Sizes, seconds: float) -> Figures:
    """The requests to the store of a gateway that leads everything, and is asked for nothing."""
    os.environ.update(bucket.environment)
    note_location(bucket.open())
    with Gateway(bucket.root, *_options(sizes)) as gateway:  # type: ignore[arg-type]
        yield from _requests(bucket, "S3, nothing led", seconds)
        _use_groups(gateway.url, sizes)
        yield from _requests(bucket, "S3, groups led", seconds)
        _lead_all(gateway.url, sizes)
        wait_until(lambda: _fold_lag(gateway.url) == 0, "the tables over topics are level", 600)
        yield from _requests(bucket, "S3, all led", seconds)


def _requests(bucket: Bucket, what: str, seconds: float) -> Figures:
    SystemClock().pause(_SETTLED_S)
    before = bucket.requests()
    SystemClock().pause(seconds)
    for verb, count in sorted((bucket.requests() - before).items()):
        yield f"{what}: {verb} a second", count / seconds


if __name__ == "__main__":
    main()
