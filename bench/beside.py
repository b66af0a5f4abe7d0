"""The effect of maintenance on producers: an open loop of produce requests, without jobs and beside them."""

import http.client
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from bench import load
from bench.cells import Figures, scratch
from bench.contest import OURS, Results, Scale
from bench.gateway import Gateway
from bench.peers import Peers
from bench.spark_load import TOPIC
from log_tables.clock import timer

CONNECTIONS, REQUESTS_PER_S, RECORDS = 10, 100, 10
"""1,000 records a second."""
_CONFIGS = {"merge_min_age_ms": "0", "segment_bytes": "1048576"}
_STARTED_WITHIN_S = 120


def beside(_peers: Peers | None, scale: Scale) -> Results:
    """1,000 records/s, 10 a request, default settings; then the same beside `lakelog maintain --every 5s`."""
    return _beside(scale)


def beside_unpaced(_peers: Peers | None, scale: Scale) -> Results:
    """As `beside`, but without linger and commit-rate bound, which at this load are most of the time."""
    return _beside(
        scale, "--set", "linger_ms=0", "--set", "commits_per_second_max=0", "--set", "commits_cores_max=0"
    )


def _beside(scale: Scale, *options: str) -> Results:
    seconds = 12 * scale.seconds
    with scratch() as directory, Gateway(directory / "data", *options) as gateway:
        gateway.create_topic(TOPIC, 1, **_CONFIGS)
        sent = len(_load(gateway.url, scale.seconds))
        alone = _load(gateway.url, seconds)
        with _maintenance(directory) as merges:
            before = len(merges)
            disturbed = _load(gateway.url, seconds)
            merged = len(merges) - before
        sent += len(alone) + len(disturbed)
        held = gateway.end_offset(TOPIC, 1)
    if held != sent * RECORDS:
        raise RuntimeError(f"{sent * RECORDS} records were acknowledged, {held} are there")
    if merged < 2:
        raise RuntimeError(f"the jobs merged {merged} times while records came; make --seconds longer")
    return {
        OURS: {**_quantiles(disturbed), "merges meanwhile": merged},
        "without the jobs": _quantiles(alone),
    }


def _load(url: str, seconds: int) -> list[float]:
    """How long each request took, in ms, from when it was due: a slow answer delays others in no figure."""
    body, begin = load.json_body(RECORDS), timer() + 0.1

    def send(lane: int) -> list[float]:
        connection, waiting = http.client.HTTPConnection(urlsplit(url).netloc), threading.Event()
        took = []
        for number in range(lane, seconds * REQUESTS_PER_S, CONNECTIONS):
            due = begin + number / REQUESTS_PER_S
            waiting.wait(max(0.0, due - timer()))
            connection.request("POST", f"/topics/{TOPIC}/partitions/0", body, {"Content-Type": load.JSON})
            answer = connection.getresponse()
            answer.read()
            if answer.status != 200:
                raise RuntimeError(f"a request was answered with {answer.status}")
            took.append((timer() - due) * 1e3)
        connection.close()
        return took

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return [each for lane in pool.map(send, range(CONNECTIONS)) for each in lane]


@contextmanager
def _maintenance(directory: Path) -> Iterator[list[str]]:
    """The jobs in a process of their own, which has done a first run; gives what it says of each merge."""
    command = [
        sys.executable,
        "-m",
        "lakelog",
        "maintain",
        "--data",
        str(directory / "data"),
        "--every",
        "5s",
    ]
    merges: list[str] = []
    first = threading.Event()

    def listen(lines: Iterator[str]) -> None:
        for line in lines:
            if line.startswith(f"segment_compaction {TOPIC}-") and "failed" not in line:
                merges.append(line)
            if merges and "partitions changed" in line:
                first.set()

    with (directory / "maintain.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    listener = threading.Thread(target=listen, args=(process.stdout,))
    listener.start()
    try:
        if not first.wait(_STARTED_WITHIN_S):
            raise RuntimeError((directory / "maintain.log").read_text(errors="replace")[-3000:])
        yield merges
    finally:
        process.terminate()
        process.wait()
        listener.join()


def _quantiles(took: list[float]) -> Figures:
    ordered = sorted(took)
    return {f"p{part} ms": ordered[len(ordered) * part // 100] for part in (50, 99)}
