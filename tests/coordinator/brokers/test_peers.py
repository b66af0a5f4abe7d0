"""coordinator/brokers/peers.py: what another gateway has done is never said to be undone."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coordinator.brokers.leadership import preferred_leaders
from coordinator.brokers.peers import Peers
from log_tables.cluster.topic import Topic
from log_tables.errors import Unreachable
from tests.kit.mesh import CUT, Mesh, meshed
from tests.kit.secured import Secured, bearer
from tests.kit.served import JSON, Served, served
from tests.kit.support import ROOT, WAIT_S, wait_until

PARTITIONS = 8
LINGER_MS = 2_000
"""For so long the other gateway has the record, and has not answered."""


async def led_by(leader: Served, other: Served) -> tuple[Topic, int]:
    """A partition of a new topic that `leader` leads and not `other`, with one record."""
    wanted = {"topic_name": "t", "partitions_count": PARTITIONS}
    (await leader.client.post("/topics", json=wanted)).raise_for_status()
    topic, ids = leader.gateway.cluster.topic("t"), [each.gateway.brokers.id for each in (other, leader)]
    leaders = preferred_leaders(topic.topic_id, PARTITIONS, tuple(sorted(ids)))
    number = leaders.index(leader.gateway.brokers.id)
    (await leader.produce("t", {"value": 0}, partition=number)).raise_for_status()
    writer = leader.gateway.writer
    await asyncio.to_thread(wait_until, lambda: writer.leads(topic, number), "it leads its partition")
    return topic, number


def test_an_answer_of_a_mesh_between_gateways_proves_nothing(tmp_path: Path) -> None:
    """The mesh forwards the records and then answers by itself: only an idempotent producer's are sent once
    more.
    """

    async def scenario(mesh: Mesh) -> None:
        async with served(tmp_path) as asking, served(tmp_path, peer_url=mesh.url) as asked:
            mesh.target = str(asked.client.base_url)
            topic, number = await led_by(asked, asking)
            path, count = f"/topics/t/partitions/{number}", 1
            for status in (502, 503, 504, 200, 500, 404, CUT):
                stamp = {"Producer-Id": f"{7_000 + status}", "Producer-Epoch": "0", "Producer-Seq": "0"}
                for headers, code in (({}, 50303), (stamp, None)):
                    mesh.answers["/peer/append"] = status
                    sent: dict[str, Any] = {"records": [{"value": status}]}
                    kind = {"Content-Type": JSON, **headers}
                    answer = await asking.client.post(path, json=sent, headers=kind)
                    assert answer.json().get("error_code") == code, (status, headers, answer.text)
                    count += 1
                    assert topic.partition(number).refresh().high_watermark == count, (status, headers)

    async def main() -> None:
        async with asyncio.timeout(WAIT_S), meshed() as mesh:
            await scenario(mesh)

    asyncio.run(main())


def test_a_gateway_that_stops_asks_no_other_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(WAIT_S),
            served(tmp_path) as other,
            served(tmp_path, peer_url="http://127.0.0.1:1") as asked,
        ):
            brokers = other.gateway.brokers
            await asyncio.to_thread(wait_until, lambda: len(brokers.living()) == 2, "both live")
            record = brokers.other(asked.gateway.brokers.id)
            assert record is not None
            peers = Peers(brokers, None)
            await peers.close()
            with pytest.raises(Unreachable, match="this gateway stops"):
                await peers.forward(record, "GET", "/", {}, b"")
            assert not await peers.ping(record)

    asyncio.run(main())


def test_a_gateway_that_is_alone_loads_no_client_of_http() -> None:
    program = "import sys, api.process.server, api.kafka.listener; print('aiohttp' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


@pytest.mark.torture
def test_an_answer_counts_from_a_gateway_that_was_trusted_when_it_was_asked(tmp_path: Path) -> None:
    """The cluster is secured while an open gateway still appends what it was sent: were that called
    unreachable, a client would send its record once more.
    """
    root = Secured(tmp_path)
    key = bearer(root.key())

    async def scenario() -> None:
        async with (
            asyncio.timeout(WAIT_S),
            served(tmp_path, authentication_methods=("api-key",)) as asking,
            served(tmp_path, linger_ms=LINGER_MS) as asked,
        ):
            _, number = await led_by(asked, asking)
            path, kind = f"/topics/t/partitions/{number}", {"Content-Type": JSON}
            sent = {"records": [{"value": 1}]}
            sending = asyncio.create_task(asking.client.post(path, json=sent, headers=key | kind))
            buffer = asked.gateway.buffer
            await asyncio.to_thread(wait_until, lambda: buffer.used > 0, "the other one has the record")
            await asyncio.to_thread(root.secure)
            await asyncio.to_thread(asking.gateway.cluster.refresh)
            assert not sending.done()
            answer = await sending
            await asyncio.to_thread(root.secure, False)  # so that the open one is let go in order
            for each in (asking, asked):
                await asyncio.to_thread(each.gateway.cluster.refresh)
            assert answer.status_code == 200, answer.text
            assert answer.json()["offsets"][0]["offset"] == 1, "it is there twice"

    asyncio.run(scenario())
