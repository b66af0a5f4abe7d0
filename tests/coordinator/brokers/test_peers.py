"""coordinator/brokers/peers.py: what another gateway has done is never said to be undone."""

import asyncio
from pathlib import Path

import pytest

from coordinator.brokers.leadership import preferred_leaders
from tests.kit.secured import Secured, bearer
from tests.kit.served import JSON, served
from tests.kit.support import WAIT_S, wait_until

PARTITIONS = 8
LINGER_MS = 2_000
"""For so long the other gateway has the record, and has not answered."""


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
            wanted = {"topic_name": "t", "partitions_count": PARTITIONS}
            (await asked.client.post("/topics", json=wanted)).raise_for_status()
            topic, ids = (
                asked.gateway.cluster.topic("t"),
                [each.gateway.brokers.id for each in (asking, asked)],
            )
            leaders = preferred_leaders(topic.topic_id, PARTITIONS, tuple(sorted(ids)))
            number = leaders.index(asked.gateway.brokers.id)
            (await asked.produce("t", {"value": 0}, partition=number)).raise_for_status()
            writer = asked.gateway.writer
            await asyncio.to_thread(wait_until, lambda: writer.leads(topic, number), "it leads its partition")
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
