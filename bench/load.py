"""Payloads, and the wrk load generator that sends them."""

import json
import os
import random
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from log_tables.record import binary_array

JSON = "application/vnd.kafka.json.v2+json"
ARROW = "application/vnd.apache.arrow.stream"
NDJSON = "application/x-ndjson"
_SCRIPT = Path(__file__).with_name("post.lua")
_WORDS = [f"{word:05x}" for word in range(4096)]


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of wrk, which count only answered requests."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    failed: int


def values(count: int, size: int = 100, seed: int = 1) -> list[bytes]:
    """`count` texts of `size` bytes, each different: words from a list of 4,096."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(_WORDS, k=size // 6 + 1))[:size].encode() for _ in range(count)]


def json_body(count: int) -> bytes:
    return json.dumps({"records": [{"value": value.decode()} for value in values(count)]}).encode()


def keyed_bodies(count: int, keys: int = 97) -> bytes:
    """A line for each key: a body of `count` records with keys, of which the first has that one."""
    texts = [value.decode() for value in values(count)]

    def body(first: int) -> str:
        named = (f"user{(first + number) % keys}" for number in range(count))
        records = [{"key": key, "value": text} for key, text in zip(named, texts, strict=True)]
        return json.dumps({"records": records})

    return "\n".join(body(first) for first in range(keys)).encode()


def lines_body(count: int, keys: int = 97) -> bytes:
    """`count` lines of JSON of 100 bytes, each an object with a `user`, who is one of so many."""
    users = (f"user{number % keys:02}" for number in range(count))
    texts = (value.decode() for value in values(count, 70))
    return b"\n".join(
        json.dumps({"user": user, "text": text}).encode() for user, text in zip(users, texts, strict=True)
    )


def arrow_body(count: int) -> bytes:
    batch = pa.RecordBatch.from_arrays([binary_array(values(count))], ["value"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def post(
    url: str,
    body: Path | None,
    media_type: str,
    connections: int,
    seconds: int,
    in_turn: bool = False,
    authorization: str = "",
) -> Measured:
    """Send `body` over `connections` kept-alive connections, one thread, for `seconds`; without one, GET.

    With `in_turn` each line of the file is a body, and they are sent in turn.
    """
    sent = {"BODY": str(body or ""), "CTYPE": media_type, "IN_TURN": "1" * in_turn}
    environment = {**os.environ, **sent, "AUTHORIZATION": authorization}
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s", "-s", str(_SCRIPT), url]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("MEASURED "))
    measured = Measured(**json.loads(line.removeprefix("MEASURED ")))
    if measured.failed:
        raise RuntimeError(f"{measured.failed} of {measured.requests} requests to {url} failed")
    return measured


def post_to(urls: Sequence[str], body: Path, media_type: str, connections: int, seconds: int) -> Measured:
    """Like `post`, with one wrk for each of `urls`, all at once, each with its share of the connections.

    Requests are counted together; the latencies are those of the slowest one.
    """
    share = connections // len(urls)
    with ThreadPoolExecutor(len(urls)) as pool:
        parts = [*pool.map(lambda url: post(url, body, media_type, share, seconds), urls)]
    return Measured(
        requests=sum(part.requests for part in parts),
        seconds=max(part.seconds for part in parts),
        p50_ms=max(part.p50_ms for part in parts),
        p99_ms=max(part.p99_ms for part in parts),
        failed=0,
    )
