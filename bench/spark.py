"""The Spark cells: topics in Spark, by lakelog, by Delta alone, and by Spark's Kafka source.

Each contender runs in a fresh process with the same master and memory (`bench/spark_worker.py`).
"""

import http.client
import json
import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench import load
from bench.cells import PARTITIONS, Figures, scratch
from bench.contest import OURS, Results, Scale
from bench.gateway import Gateway, kafka_gateway
from bench.peers import Peers
from bench.spark_job import Job, Worker
from bench.spark_load import SEGMENT_ROWS, TOPIC, append, fill
from log_tables.clock import SystemClock
from log_tables.record import binary_array

DELTA = "native Delta scan"
DELTA_STREAM = "Delta's streaming source"
KAFKA = "Spark's Kafka source"
_WARM_SECONDS = 20


def _measured(job: Job) -> Figures:
    with Worker(job) as worker:
        return worker.figures()


@contextmanager
def _filled(verb: str, partitions: int, segments: int, rows: int) -> Iterator[Job]:
    """A root with the topic in it, and lakelog's job over it."""
    with scratch() as directory:
        root = str(directory / "data")
        fill(root, partitions, segments, rows)
        yield _job(verb, directory, root, partitions, segments, rows)


def _job(verb: str, directory: Path, root: str, partitions: int, segments: int, rows: int) -> Job:
    records = partitions * segments * rows
    return Job(verb, OURS, root, str(directory / OURS), records, partitions, segments)


def _contender(job: Job, engine: str, **changes: Any) -> Job:
    return replace(job, engine=engine, directory=str(Path(job.directory).with_name(engine)), **changes)


def _kafka(job: Job, peers: Peers, topic: str = TOPIC) -> Job:
    return _contender(job, "kafka", source=peers.bootstrap, topic=topic, jars=",".join(peers.spark_jars()))


def _segments(records: int) -> int:
    """How many segments each partition gets: at least one."""
    return max(1, records // (PARTITIONS * SEGMENT_ROWS))


def batch_read(peers: Peers | None, scale: Scale) -> Results:
    """All columns to `noop`; the same records natively by Delta, and from Kafka."""
    return _three("batch", DELTA, peers, scale)


def stream(peers: Peers | None, scale: Scale) -> Results:
    """AvailableNow to `noop`, in one batch and in about ten."""
    return _three("stream", DELTA_STREAM, peers, scale)


def _three(verb: str, delta: str, peers: Peers | None, scale: Scale) -> Results:
    with _filled(verb, PARTITIONS, _segments(scale.records), SEGMENT_ROWS) as job:
        results = {OURS: _measured(job), delta: _measured(_contender(job, "delta"))}
        if peers is not None:
            peers.filled(TOPIC, job.records)
            results[KAFKA] = _measured(_kafka(job, peers))
        return results


def kafka_source(peers: Peers | None, scale: Scale) -> Results:
    """Spark's own Kafka source, on a gateway and on Kafka: all at once, and as streams."""
    if peers is None:
        raise RuntimeError("Spark's Kafka source comes with the peers; name them by --peers")
    results: Results = {OURS: {}, KAFKA: {}}
    with _filled("batch", PARTITIONS, _segments(scale.records), SEGMENT_ROWS) as job:
        peers.filled(TOPIC, job.records)
        with kafka_gateway(Path(job.source)) as (bootstrap, _):
            for name, source in ((OURS, peers.at(bootstrap)), (KAFKA, peers)):
                for verb in ("batch", "stream"):
                    directory = str(Path(job.directory).with_name(f"{verb}-{len(name)}"))
                    figures = _measured(replace(_kafka(job, source), verb=verb, directory=directory))
                    results[name] |= {f"{verb}: {each}": figure for each, figure in figures.items()}
    return results


def pruned_read(_peers: Peers | None, scale: Scale) -> Results:
    """`columns=offset,timestamp` of four times as many records, beside the read of all columns."""
    with _filled("batch", PARTITIONS, 4 * _segments(scale.records), SEGMENT_ROWS) as job:
        whole = replace(job, directory=f"{job.directory}-whole")
        return {
            OURS: _measured(replace(job, columns="offset,timestamp")),
            "all columns": _measured(whole),
        }


def planning(_peers: Peers | None, scale: Scale) -> Results:
    """500 partitions of two segments, while a record comes into each of 20 of them five times a second."""
    with scratch() as directory:
        root, clock, values = str(directory / "data"), SystemClock(), binary_array(load.values(1))
        partitions = fill(root, 500, 2, 10)
        with Worker(_job("planning", directory, root, 500, 2, 10)) as worker:
            worker.ready()
            for turn in range(scale.seconds * 10):
                for index in range(20):
                    append(partitions[(turn + index * 25) % 500], values, clock)
                clock.pause(0.2)
            return {OURS: worker.figures()}


def view_planning(_peers: Peers | None, _scale: Scale) -> Results:
    """A count over the view of 64 partitions of a few segments, each time with news of every partition."""
    with _filled("views", 64, 4, 10) as job, Worker(job) as worker:
        return worker.figures()


def point_lookup(_peers: Peers | None, scale: Scale) -> Results:
    """`WHERE offset = …` by the topic's view, one partition of 1,000 segments."""
    with _filled("lookup", 1, 1_000, max(1, scale.records // 1_000)) as job:
        return {OURS: _measured(job)}


def freshness(peers: Peers | None, scale: Scale) -> Results:
    """From the answer to a record to its row in `foreachBatch`: 100 records a second, default trigger.

    The first 20 seconds warm the JVM and are left out.
    """
    seconds = _WARM_SECONDS + 4 * scale.seconds
    with scratch() as directory, Gateway(directory / "data") as gateway:
        gateway.create_topic(TOPIC, 1)
        job = Job("fresh", OURS, str(gateway.data), str(directory / OURS))
        with Worker(job) as worker:
            worker.ready()
            acknowledged = _send(gateway.url, seconds)
            results = {OURS: _delays(acknowledged, worker.figures())}
        if peers is not None:
            topic = peers.topic("fresh", 1)
            with Worker(_kafka(job, peers, topic)) as worker:
                worker.ready()
                acknowledged = peers.librdkafka_send(topic, seconds * 100)
                results[KAFKA] = _delays(acknowledged, worker.figures())
        return results


def _send(url: str, seconds: int) -> dict[int, int]:
    """A record every 10 ms, each answer awaited: when each offset was acknowledged, µs since 1970."""
    clock, stop = SystemClock(), threading.Event()
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    body, acknowledged = load.json_body(1), dict[int, int]()
    due = clock.monotonic()
    end = due + seconds
    while due < end:
        stop.wait(max(0.0, due - clock.monotonic()))
        connection.request("POST", f"/topics/{TOPIC}/partitions/0", body, {"Content-Type": load.JSON})
        answer = json.load(connection.getresponse())
        acknowledged[answer["offsets"][0]["offset"]] = clock.now_us()
        due = max(due + 0.01, clock.monotonic() - 0.01)
    connection.close()
    return acknowledged


def _delays(acknowledged: dict[int, int], seen: dict[str, int]) -> Figures:
    """Quantiles of the delays after the warm-up. Raises RuntimeError when a record was never seen."""
    missing = [offset for offset in acknowledged if str(offset) not in seen]
    if missing:
        raise RuntimeError(f"{len(missing)} of {len(acknowledged)} records never came out, as {missing[0]}")
    warm = min(acknowledged.values()) + _WARM_SECONDS * 1_000_000
    delays = [(seen[str(offset)] - at) / 1e3 for offset, at in acknowledged.items() if at > warm]
    cuts = statistics.quantiles(delays, n=100)
    return {"p50 ms": cuts[49], "p99 ms": cuts[98]}
