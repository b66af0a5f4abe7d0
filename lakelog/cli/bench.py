"""`lakelog bench`: how fast a running gateway takes and gives records."""

import http.client
import json as json_text
import statistics
import threading
from enum import StrEnum
from typing import Annotated
from urllib.parse import urlsplit

import typer

from lakelog.cli.common import GATEWAY, Json, Url, connect, print_json, print_table
from log_tables.clock import SystemClock, timer
from log_tables.errors import LakelogError, Unreachable

JSON = "application/vnd.kafka.json.v2+json"
ARROW = "application/vnd.apache.arrow.stream"


class Wire(StrEnum):
    """How records go over the wire."""

    JSON = "json"
    ARROW = "arrow"


def bench(
    url: Url = GATEWAY,
    wire: Annotated[Wire, typer.Option("--format", help="json or arrow.")] = Wire.ARROW,
    records: Annotated[int, typer.Option(min=1, help="Records in a request.")] = 1_000,
    size: Annotated[int, typer.Option(min=1, max=1_000_000, help="Bytes of a value.")] = 100,
    connections: Annotated[int, typer.Option(min=1, max=256)] = 8,
    seconds: Annotated[int, typer.Option(min=1, max=600, help="How long to produce.")] = 5,
    partitions: Annotated[int, typer.Option(min=1)] = 4,
    json: Json = False,
) -> None:
    """Produce to a topic of its own, fetch it all back, and delete it."""
    clock = SystemClock()
    topic = f"bench-{clock.random_hex(8)}"
    with connect(url) as client:
        client.create_topic(topic, partitions)
        try:
            produced = _produce(url, topic, _body(wire, records, size), wire, connections, seconds)
            begin = timer()
            fetched = sum(
                table.num_rows for index in range(partitions) for table in client.read_tables(topic, index)
            )
            fetch_s = timer() - begin
        finally:
            client.delete_topic(topic)
    rows = _figures(produced, records, size, fetched, fetch_s)
    if json:
        print_json(dict(rows))
    else:
        print_table(("figure", "value"), rows)


def _body(wire: Wire, records: int, size: int) -> bytes:
    import pyarrow as pa

    from log_tables.record import binary_array

    draw = SystemClock()
    values = [draw.random_hex(size) for _ in range(records)]
    if wire is Wire.JSON:
        return json_text.dumps({"records": [{"value": value} for value in values]}).encode()
    batch = pa.RecordBatch.from_arrays([binary_array([value.encode() for value in values])], ["value"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


class _Load:
    """What the connections have measured together."""

    def __init__(self) -> None:
        self.latencies_s: list[float] = []
        self.failure: Exception | None = None
        self.elapsed_s = 0.0


def _produce(url: str, topic: str, body: bytes, wire: Wire, connections: int, seconds: int) -> _Load:
    load, begin = _Load(), timer()

    def send() -> None:
        connection = http.client.HTTPConnection(urlsplit(url).netloc)
        try:
            while load.failure is None and timer() < begin + seconds:
                asked = timer()
                _post(connection, topic, body, wire)
                load.latencies_s.append(timer() - asked)
        except (OSError, http.client.HTTPException, LakelogError) as error:
            load.failure = error
        finally:
            connection.close()

    threads = [threading.Thread(target=send) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    load.elapsed_s = timer() - begin
    if isinstance(load.failure, LakelogError):
        raise load.failure
    if load.failure is not None:
        raise Unreachable(f"the gateway at {url} went away: {load.failure}")
    return load


def _post(connection: http.client.HTTPConnection, topic: str, body: bytes, wire: Wire) -> None:
    media_type = JSON if wire is Wire.JSON else ARROW
    connection.request("POST", f"/topics/{topic}", body, {"Content-Type": media_type})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != 200:
        raise LakelogError(f"the gateway answered {answer.status}: {text[:300]!r}")


def _figures(load: _Load, records: int, size: int, fetched: int, fetch_s: float) -> list[tuple[str, float]]:
    ordered = sorted(load.latencies_s)
    rate = len(ordered) * records / load.elapsed_s
    return [
        ("produced records/s", rate),
        ("produced MB/s", rate * size / 1e6),
        ("request p50 ms", statistics.median(ordered) * 1e3),
        ("request p99 ms", ordered[int(len(ordered) * 0.99)] * 1e3),
        ("fetched records/s", fetched / fetch_s),
    ]
