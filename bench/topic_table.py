"""How far the table over a topic lags behind what was acknowledged."""

import http.client
import threading
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from deltalake import DeltaTable

from bench import load
from bench.cells import Figures, scratch
from bench.gateway import Gateway
from log_tables.clock import timer
from log_tables.layout import topic_directory

TOPIC = "bench"
PARTITIONS = 4
COMMITS_PER_SECOND = 20
LOOK_S = 0.02

Place = tuple[int, int]
"""A partition, and an offset in it."""


def lag(seconds: int) -> Figures:
    """From the acknowledgement of a record to a delta-rs reader of the table over its topic: 4 partitions
    with 20 commits a second each.
    """
    with scratch() as directory, Gateway(directory / "data") as gateway:
        gateway.create_topic(TOPIC, PARTITIONS)
        answered: list[dict[Place, float]] = [{} for _ in range(PARTITIONS)]
        stop = threading.Event()
        senders = [
            threading.Thread(target=_send, args=(gateway.url, number, answered[number], stop))
            for number in range(PARTITIONS)
        ]
        for sender in senders:
            sender.start()
        seen = _watch(directory / "data", 3 * seconds, stop, senders)
    every = {place: at for part in answered for place, at in part.items()}
    if every.keys() - seen.keys():
        raise RuntimeError(f"{len(every.keys() - seen.keys())} records are not in the table over the topic")
    delays = sorted((seen[place] - at) * 1e3 for place, at in every.items())
    return {
        "p50 ms": delays[len(delays) // 2],
        "p95 ms": delays[int(len(delays) * 0.95)],
        "max ms": delays[-1],
        "commits/s of all partitions": len(every) / (3 * seconds),
    }


def _send(url: str, number: int, answered: dict[Place, float], stop: threading.Event) -> None:
    """A record 20 times a second, each answered before the next."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    body, due = load.json_body(1), timer()
    while not stop.wait(max(0.0, due - timer())):
        connection.request("POST", f"/topics/{TOPIC}/partitions/{number}", body, {"Content-Type": load.JSON})
        answer = connection.getresponse().read()
        answered[number, int(answer.split(b'"offset":')[1].split(b",")[0])] = timer()
        due += 1 / COMMITS_PER_SECOND


def _watch(
    root: Path, seconds: int, stop: threading.Event, senders: Sequence[threading.Thread]
) -> dict[Place, float]:
    """When each record was first seen by delta-rs; it looks until all that was sent had time to come."""
    table = DeltaTable(str(root / topic_directory(TOPIC)))
    seen: dict[Place, float] = {}
    following = dict.fromkeys(range(PARTITIONS), 0)
    end, version = timer() + seconds, -1
    while timer() < end + 5:
        if timer() >= end and not stop.is_set():
            stop.set()
            for sender in senders:
                sender.join()
        table.update_incremental()
        if table.version() != version:
            version, now = table.version(), timer()
            adds = pa.table(table.get_add_actions(flatten=True))
            for number, last in zip(
                adds["partition.partition"].to_pylist(), adds["max.offset"].to_pylist(), strict=True
            ):
                for offset in range(following[number], last + 1):
                    seen.setdefault((number, offset), now)
                following[number] = max(following[number], last + 1)
        threading.Event().wait(LOOK_S)
    return seen
