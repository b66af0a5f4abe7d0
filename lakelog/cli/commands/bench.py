"""`lakelog bench`: how fast a running gateway takes and gives records."""

import json as json_text
import statistics
import threading
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli.common import GATEWAY, WAIT_S, Json, Url, Wait, connect, print_json, print_table
from log_tables.clock import SystemClock, timer
from log_tables.errors import BufferFull, LakelogError

if TYPE_CHECKING:
    from lakelog.client.client import Client


class Wire(StrEnum):
    """How records go over the wire."""

    JSON = "json"
    ARROW = "arrow"


MEDIA_TYPES = {
    Wire.JSON: "application/vnd.kafka.json.v2+json",
    Wire.ARROW: "application/vnd.apache.arrow.stream",
}


def bench(  # noqa: PLR0913, PLR0917 -- each is an option
    url: Url = GATEWAY,
    wait: Wait = WAIT_S,
    wire: Annotated[Wire, typer.Option("--format", help="json or arrow.")] = Wire.ARROW,
    records: Annotated[int, typer.Option(min=1, help="Records in a request.")] = 1_000,
    size: Annotated[int, typer.Option(min=1, max=1_000_000, help="Bytes of a value.")] = 100,
    connections: Annotated[int, typer.Option(min=1, max=256)] = 8,
    seconds: Annotated[int, typer.Option(min=1, max=600, help="How long to produce.")] = 5,
    partitions: Annotated[int, typer.Option(min=1)] = 4,
    json: Json = False,
) -> None:
    """Measure a gateway: produce to a new topic, fetch it all back, and delete it.

    Values are random text. The load comes from this one process, which may be slower than the gateway.
    """
    clock = SystemClock()
    topic = f"bench-{clock.random_hex(8)}"
    with connect(url, wait) as client:
        client.create_topic(topic, partitions)
        try:
            produced = _produce(client, topic, _body(wire, records, size), wire, connections, seconds)
            begin = timer()
            fetched = _fetch(client, topic, partitions, wire)
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
    """The measurements of all connections."""

    def __init__(self) -> None:
        self.latencies_s: list[float] = []
        self.failure: LakelogError | None = None
        self.elapsed_s = 0.0


def _produce(client: "Client", topic: str, body: bytes, wire: Wire, connections: int, seconds: int) -> _Load:
    """Send `body` again and again, over so many connections, for so long."""
    load, begin, clock = _Load(), timer(), SystemClock()

    def send() -> None:
        try:
            while load.failure is None and timer() < begin + seconds:
                asked = timer()
                try:
                    client.post(f"/topics/{topic}", body, {"Content-Type": MEDIA_TYPES[wire]})
                    load.latencies_s.append(timer() - asked)
                except BufferFull as full:
                    clock.pause(float(full.details.get("retry_after_s", 1)))
        except LakelogError as error:
            load.failure = error

    threads = [threading.Thread(target=send) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    load.elapsed_s = timer() - begin
    if load.failure is not None:
        raise load.failure
    return load


def _fetch(client: "Client", topic: str, partitions: int, wire: Wire) -> int:
    """Read everything back, over one connection; how many records that was."""
    if wire is Wire.ARROW:
        return sum(
            table.num_rows for index in range(partitions) for table in client.read_tables(topic, index)
        )
    return sum(_fetch_json(client, topic, index) for index in range(partitions))


def _fetch_json(client: "Client", topic: str, partition: int) -> int:
    import msgspec

    count, offset, end = 0, 0, 1
    while offset < end:
        path = f"/topics/{topic}/partitions/{partition}/records"
        answer = client.request("GET", path, params={"offset": offset})
        count += len(msgspec.json.decode(answer.content, type=list[msgspec.Raw]))
        offset, end = (int(answer.headers[name]) for name in ("Next-Offset", "High-Watermark"))
    return count


def _figures(load: _Load, records: int, size: int, fetched: int, fetch_s: float) -> list[tuple[str, float]]:
    ordered = sorted(load.latencies_s)
    if not ordered:
        raise BufferFull("the gateway's buffer was full all the time; run the bench when it has less to do")
    rate = len(ordered) * records / load.elapsed_s
    return [
        ("produced records/s", rate),
        ("produced MB/s", rate * size / 1e6),
        ("request p50 ms", statistics.median(ordered) * 1e3),
        ("request p99 ms", ordered[int(len(ordered) * 0.99)] * 1e3),
        ("fetched records/s", fetched / fetch_s),
        ("fetched MB/s", fetched / fetch_s * size / 1e6),
    ]
