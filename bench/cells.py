"""The cells of the table: each function measures one, and returns the figures of one run by name."""

import http.client
import resource
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from deltalake import DeltaTable

from bench import load
from bench.fetch import read_topic
from bench.gateway import Gateway
from bench.peers import Peers
from log_tables.clock import SystemClock, timer
from log_tables.layout import partition_directory, topic_directory
from log_tables.limits import MIB
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import binary_array, input_batch_from_columns
from log_tables.rows import Rows
from log_tables.store.store import open_store
from log_tables.table.table import create_table

PARTITIONS = 4
Figures = dict[str, float]


_MEMORY = Path("/dev/shm")


@contextmanager
def scratch(in_memory: bool = False) -> Iterator[Path]:
    """A directory on the disk of the working directory: /tmp may be memory, where fsync costs nothing.

    With `in_memory` just there, on systems that have it.
    """
    parent = _MEMORY if in_memory and _MEMORY.is_dir() else Path.cwd()
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=parent) as name:
        yield Path(name)


def body_file(directory: Path, data: bytes) -> Path:
    """A file with `data`, for the load generator."""
    path = directory / "body"
    path.write_bytes(data)
    return path


def json_produce(seconds: int) -> Figures:
    """500 records a request, 16 connections, default settings."""
    return _produce(load.json_body(500), load.JSON, 500, 16, seconds)


def arrow_produce(seconds: int) -> Figures:
    """10,000 records a request, 8 connections, default settings."""
    return _produce(load.arrow_body(10_000), load.ARROW, 10_000, 8, seconds)


def values_produce(seconds: int) -> Figures:
    """500 lines of JSON a request as bare values, 16 connections, default settings."""
    return _produce(load.lines_body(500), load.NDJSON, 500, 16, seconds, "/values")


def keyed_values_produce(seconds: int) -> Figures:
    """As `values_produce`, but each line has its key at a JSON pointer."""
    return _produce(load.lines_body(500), load.NDJSON, 500, 16, seconds, "/values?key=/user")


def _produce(
    data: bytes, media_type: str, count: int, connections: int, seconds: int, path: str = ""
) -> Figures:
    with scratch() as directory, Gateway(directory / "data") as gateway:
        gateway.create_topic("bench", PARTITIONS)
        url, body = f"{gateway.url}/topics/bench{path}", body_file(directory, data)
        load.post(url, body, media_type, connections, 1)
        before, held = gateway.cpu_seconds, gateway.end_offset("bench", PARTITIONS)
        measured = load.post(url, body, media_type, connections, seconds)
        cpu = gateway.cpu_seconds - before
        kept = gateway.end_offset("bench", PARTITIONS) - held
        if kept < measured.requests * count:
            raise RuntimeError(f"{measured.requests * count} records were acknowledged, {kept} are there")
        return {
            "records/s": measured.requests * count / measured.seconds,
            "p99 ms": measured.p99_ms,
            "CPU s per MB of values": cpu / (kept * 100 / 1e6),
        }


def one_record(seconds: int) -> Figures:
    """One record a request, one connection, linger 0, no commit-rate bound, acks=all with fsync."""
    options = ("--set", "linger_ms=0", "--set", "commits_per_second_max=0")
    with scratch() as directory, Gateway(directory / "data", *options) as gateway:
        gateway.create_topic("bench", 1)
        body = body_file(directory, load.json_body(1))
        url = f"{gateway.url}/topics/bench"
        load.post(url, body, load.JSON, 1, 1)
        measured = load.post(url, body, load.JSON, 1, seconds)
        return {"p50 ms": measured.p50_ms, "p99 ms": measured.p99_ms}


def freshness(seconds: int) -> Figures:
    """The time from sending a record to a delta-rs reader seeing it: 100 records/s, linger 5 ms, default
    settings.
    """
    with scratch() as directory, Gateway(directory / "data") as gateway:
        gateway.create_topic("bench", 1)
        sent: dict[int, float] = {}
        stop = threading.Event()
        sender = threading.Thread(target=_send, args=(gateway.url, sent, stop))
        sender.start()
        seen = _watch(directory / "data", seconds, stop)
        sender.join()
        delays = sorted((seen[offset] - at) * 1e3 for offset, at in sent.items() if offset in seen)
        return {"p50 ms": delays[len(delays) // 2], "p95 ms": delays[int(len(delays) * 0.95)]}


def _send(url: str, sent: dict[int, float], stop: threading.Event) -> None:
    """A record every 10 ms, each on time: the answer is waited for, so a slow one delays none by more."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    body, due = load.json_body(1), timer()
    while not stop.wait(max(0.0, due - timer())):
        begin = timer()
        connection.request("POST", "/topics/bench/partitions/0", body, {"Content-Type": load.JSON})
        answer = connection.getresponse().read()
        sent[int(answer.split(b'"offset":')[1].split(b",")[0])] = begin
        due = max(due + 0.01, begin)


def _watch(root: Path, seconds: int, stop: threading.Event) -> dict[int, float]:
    """When each offset was first seen by delta-rs, polling every 5 ms."""
    table = DeltaTable(str(root / partition_directory(topic_directory("bench"), 0)))
    seen: dict[int, float] = {}
    following, end, version = 0, timer() + seconds, -1
    while timer() < end:
        table.update_incremental()
        if table.version() != version:
            version = table.version()
            adds = pa.table(table.get_add_actions(flatten=True))
            latest, now = max(adds.column("max.offset").to_pylist(), default=-1), timer()
            for offset in range(following, latest + 1):
                seen[offset] = now
            following = latest + 1
        threading.Event().wait(0.005)
    stop.set()
    return seen


def arrow_fetch(_seconds: int) -> Figures:
    """2 M records in closed segments of 250,000, by offset, 64 MiB a request; not from the tail's memory."""
    return _fetch(load.ARROW, 2_000_000, 64 * MIB)


def json_fetch(_seconds: int) -> Figures:
    """As `arrow_fetch`, but as JSON: 400,000 records, 8 MiB a request."""
    return _fetch(load.JSON, 400_000, 8 * MIB)


def _fetch(media_type: str, records: int, max_bytes: int) -> Figures:
    with scratch() as directory:
        root = directory / "data"
        with Gateway(root) as gateway:
            gateway.create_topic("bench", PARTITIONS)
        fill(root, records)
        with Gateway(root) as gateway:
            begin = timer()
            got = read_topic(gateway.url, "bench", PARTITIONS, media_type, max_bytes)
            elapsed = timer() - begin
        if got != records:
            raise RuntimeError(f"{got} of {records} records came back")
        return {"records/s": records / elapsed}


def fill(root: Path, records: int) -> None:
    """Append straight to the tables, JSON texts in segments of at most 250,000 records."""
    store, clock = open_store(str(root)), SystemClock()
    share = records // PARTITIONS
    texts = [b'"' + text + b'"' for text in load.values(share, 98)]
    for index in range(PARTITIONS):
        partition = Partition(store, partition_directory(topic_directory("bench"), index), clock)
        partition.claim("bench")
        for start in range(0, share, 250_000):
            values = binary_array(texts[start : start + 250_000])
            partition.append([AppendRequest(input_batch_from_columns(values, now_us=clock.now_us()))])


def memory(_seconds: int) -> Figures:
    """Resident memory of a gateway through which 10 million records pass, in Arrow requests of 10,000."""
    with scratch() as directory, Gateway(directory / "data") as gateway:
        gateway.create_topic("bench", PARTITIONS)
        body = body_file(directory, load.arrow_body(10_000))
        while gateway.end_offset("bench", PARTITIONS) < 10_000_000:
            load.post(f"{gateway.url}/topics/bench", body, load.ARROW, 8, 2)
        return {"peak MB": gateway.peak_mb}


def open_partition(_seconds: int) -> Figures:
    """Opening a partition with 10,000 commits behind it and all their files there."""
    with scratch() as directory:
        partition = _led_partition(directory)
        _commit_rows(partition, 1, 9_950)
        partition.checkpoint()
        _commit_rows(partition, 1, 50)
        begin = timer()
        opened = Partition(partition.table.store, partition.directory, partition.clock)
        elapsed = timer() - begin
        if opened.high_watermark != 10_000:
            raise RuntimeError(f"the partition opened at {opened.high_watermark}")
        return {"ms": elapsed * 1e3}


def commit_cpu(_seconds: int) -> Figures:
    """Processor time of a commit with fsync, one after the other in this process: of one row, of 300."""
    with scratch() as directory:
        partition = _led_partition(directory)
        _commit_rows(partition, 1, 50)
        times = {rows: _commit_rows(partition, rows, 500) for rows in (1, 300)}
        return {f"CPU µs, {rows} row(s)": seconds / 500 * 1e6 for rows, seconds in times.items()}


def _led_partition(directory: Path) -> Partition:
    store, clock = open_store(str(directory)), SystemClock()
    create_table(store, "table", clock)
    partition = Partition(store, "table", clock)
    partition.claim("bench")
    return partition


def _commit_rows(partition: Partition, rows: int, commits: int) -> float:
    """Commit so often so many rows of 100 bytes with a key; returns the seconds of processor time it took."""
    before = _cpu_seconds()
    for _ in range(commits):
        records = Rows([b"x" * 100] * rows, partition.clock.now_us(), [b"user-1"] * rows)
        partition.append([AppendRequest(records)])
    return _cpu_seconds() - before


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peer_java_produce(peers: Peers, _seconds: int) -> Figures:
    return {"records/s": peers.java_produce(1_000_000)}


def peer_librdkafka_produce(peers: Peers, _seconds: int) -> Figures:
    return {"records/s": peers.librdkafka_produce(peers.topic("rd"), 1_000_000)}


def peer_librdkafka_consume(peers: Peers, _seconds: int) -> Figures:
    peers.librdkafka_produce(peers.topic("rd"), 1_000_000)
    return {"records/s": peers.librdkafka_consume("rd", 1_000_000)[0]}


def peer_http_produce(peers: Peers, seconds: int) -> Figures:
    with scratch() as directory, peers.http_gateway() as url:
        target, body = f"{url}/topics/{peers.topic('http')}", body_file(directory, load.json_body(500))
        load.post(target, body, load.JSON, 16, 1)
        measured = load.post(target, body, load.JSON, 16, seconds)
        return {"records/s": measured.requests * 500 / measured.seconds}
