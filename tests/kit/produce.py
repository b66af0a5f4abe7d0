"""Produce requests by hand, and what is asked of their answers."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa

from tests.kit.gateway import RunningGateway

JSON = "application/vnd.kafka.json.v2+json"

BINARY = "application/vnd.kafka.binary.v2+json"

TEXT = "application/vnd.kafka.text.v2+json"

ARROW = "application/vnd.apache.arrow.stream"


def post(
    gateway: RunningGateway, path: str, body: bytes | Iterator[bytes], media_type: str = JSON, **headers: str
) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return gateway.client.post(path, content=body, headers={"Content-Type": media_type, **named})


def records(*rows: dict[str, Any]) -> bytes:
    return json.dumps({"records": rows}).encode()


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def refused(answer: httpx.Response, status: int, code: int, says: str) -> None:
    assert (answer.status_code, answer.json()["error_code"]) == (status, code), answer.text
    assert says in answer.json()["message"]


def ends(gateway: RunningGateway, topic: str) -> list[int]:
    """The next offset of each partition of a topic with two."""
    paths = (f"/topics/{topic}/partitions/{index}/offsets" for index in range(2))
    return [gateway.client.get(path).json()["end_offset"] for path in paths]


def offsets(answer: httpx.Response) -> list[tuple[int, int | None]]:
    """(partition, offset) of each record that was sent."""
    assert answer.status_code == 200, answer.text
    return [(each["partition"], each["offset"]) for each in answer.json()["offsets"]]
