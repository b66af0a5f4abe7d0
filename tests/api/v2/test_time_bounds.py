"""`message.timestamp.after.max.ms` at every door of HTTP: a time from a clock that is wrong is refused."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from log_tables.record import timestamp_array
from tests.kit.produce import JSON, stream
from tests.kit.served import served

ARROW = "application/vnd.apache.arrow.stream"
AHEAD_MS = 200_000_000_000_000
BOUND = {"name": "message.timestamp.after.max.ms", "value": "3600000"}


def bodies(cluster: str, time_ms: int) -> list[tuple[str, dict[str, str], bytes]]:
    """A request to each door that takes a time: its path, its headers, its body."""
    record = {"value": "x", "timestamp": time_ms}
    table = pa.table({"value": pa.array([b"x"]), "timestamp": timestamp_array(np.array([time_ms * 1_000]))})
    alone = {"value": {"type": "STRING", "data": "x"}, "timestamp": time_ms}
    entry = {"entries": [{"id": "1", **alone}]}
    transaction = {"offsets": [], "records": [{"topic": "t", **record}]}

    def json(body: Any) -> bytes:
        return msgspec.json.encode(body)

    return [
        ("/topics/t", {"Content-Type": JSON}, json({"records": [record]})),
        ("/topics/t/partitions/0", {"Content-Type": ARROW}, stream(table)),
        (f"{cluster}/topics/t/records", {"Content-Type": "application/json"}, json(alone)),
        (f"{cluster}/topics/t/records:batch", {"Content-Type": "application/json"}, json(entry)),
        ("/consumers/g/transactions", {"Content-Type": JSON}, json(transaction)),
    ]


def test_a_time_far_ahead_is_refused_by_every_door(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(tmp_path) as here:
            found = await here.client.get("/v3/clusters")
            cluster = f"/v3/clusters/{found.json()['data'][0]['cluster_id']}"
            made = {"topic_name": "t", "configs": [BOUND]}
            assert (await here.client.post(f"{cluster}/topics", json=made)).is_success
            for time_ms, refused in ((AHEAD_MS, True), (here.gateway.clock.now_ms(), False)):
                for path, headers, body in bodies(cluster, time_ms):
                    answer = await here.client.post(path, content=body, headers=headers)
                    assert ("42211" in answer.text) is refused, (path, answer.text)
                    assert ("after.max.ms forbids" in answer.text) is refused, (path, answer.text)
                    assert refused or answer.is_success, (path, answer.text)
            offsets = await here.client.get("/topics/t/partitions/0/offsets")
            assert offsets.json()["end_offset"] == 5

    asyncio.run(scenario())
