"""A refused request leaves no garbage behind."""

import asyncio
import gc
from pathlib import Path

from log_tables.limits import REQUEST_RECORDS_MAX
from tests.kit.produce import JSON
from tests.kit.served import Served, served
from tests.kit.sockets import head
from tests.kit.support import wait_until

RECORDS = REQUEST_RECORDS_MAX + 1
LENGTH = len('{"records":[]}') + 3 * RECORDS - 1


def bodies() -> int:
    """How many objects refer to the bytes of such a body."""
    kept = (kept for held in gc.get_objects() for kept in gc.get_referents(held))
    return sum(type(each) is bytes and len(each) == LENGTH for each in kept)


async def send_too_much(gateway: Served) -> bytes:
    """Send more records than are taken, which a thread finds out; returns the first line of the answer."""
    reader, writer = await asyncio.open_connection(gateway.client.base_url.host, gateway.client.base_url.port)
    writer.write(head("POST /topics/t", Content_Type=JSON, Content_Length=str(LENGTH)))
    writer.write(b'{"records":[')
    writer.write(b",".join([b"{}"] * RECORDS))
    writer.write(b"]}")
    answer = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return answer


def test_the_body_of_a_refused_request_does_not_wait_for_a_look_for_garbage(tmp_path: Path) -> None:
    async def refused() -> None:
        async with served(tmp_path) as gateway:
            found = await gateway.client.get("/v3/clusters")
            cluster = found.json()["data"][0]["cluster_id"]
            made = await gateway.client.post(f"/v3/clusters/{cluster}/topics", json={"topic_name": "t"})
            assert made.status_code == 201, made.text
            gc.disable()
            try:
                assert await send_too_much(gateway) == b"HTTP/1.1 413 Request Entity Too Large\r\n"
                await asyncio.to_thread(wait_until, lambda: bodies() == 0, "nobody has the body")
            finally:
                gc.enable()

    asyncio.run(refused())
