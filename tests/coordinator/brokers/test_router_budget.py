"""coordinator/brokers/router.py: the budget of commits that counts is that of a partition's leader.

The budgets are those of two gateways of one root. One of them is overdrawn, and stays so.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx

from coordinator.brokers.leadership import preferred_leaders
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store
from tests.kit.budgets import overdraw
from tests.kit.served import Served, served
from tests.kit.support import WAIT_S, wait_until

PARTITIONS = 8


class Pair:
    """Two gateways that share the partitions of the topic "t", each of which has one record."""

    def __init__(self, root: Path, first: Served, second: Served) -> None:
        self.root, self.first, self.second = root, first, second

    def led_by(self, gateway: Served) -> int:
        """A partition that it leads."""
        topic = gateway.gateway.cluster.topic("t")
        return next(index for index in range(PARTITIONS) if gateway.gateway.writer.leads(topic, index))

    def ends(self) -> list[int]:
        """The high watermark of each partition, read by another process."""
        topic = Cluster.open(open_store(self.root), create=False).topic("t")
        return [partition.high_watermark for partition in topic.partitions()]

    async def share(self) -> None:
        """Let each partition have a record, and a leader that keeps it."""
        for index in range(PARTITIONS):
            answer = await self.first.produce("t", {"value": 0}, partition=index)
            assert answer.status_code == 200, answer.text
        await asyncio.to_thread(wait_until, self._is_shared, "each gateway leads its share")

    def _is_shared(self) -> bool:
        pair = [each.gateway for each in (self.first, self.second)]
        ids = [each.brokers.id for each in pair]
        wanted = preferred_leaders(pair[0].cluster.topic("t").topic_id, PARTITIONS, tuple(sorted(ids)))
        return all(each.brokers.living() == tuple(sorted(ids)) for each in pair) and all(
            each.writer.leads(each.cluster.topic("t"), index) == (wanted[index] == each.brokers.id)
            for each in pair
            for index in range(PARTITIONS)
        )

    @staticmethod
    def overdraw(gateway: Served) -> None:
        budget = gateway.gateway.writer.budget
        assert budget is not None
        overdraw(budget)
        assert budget.overdrawn


def run(root: Path, scenario: Callable[[Pair], Awaitable[None]]) -> None:
    async def main() -> None:
        create_topic(Cluster.open(open_store(root)), "t", PARTITIONS)
        async with asyncio.timeout(WAIT_S), served(root) as first, served(root) as second:
            pair = Pair(root, first, second)
            await pair.share()
            await scenario(pair)

    asyncio.run(main())


def assert_refused(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.headers.get("Retry-After")) == (429, "1"), answer.text
    assert answer.json()["error_code"] == 42901
    assert "twice commits_cores_max" in answer.json()["message"]


def test_a_refusal_of_the_leader_is_told_by_the_gateway_that_was_asked(tmp_path: Path) -> None:
    async def scenario(pair: Pair) -> None:
        pair.overdraw(pair.second)
        theirs, before = pair.led_by(pair.second), pair.ends()
        for asked in (pair.first, pair.second):
            assert_refused(await asked.produce("t", {"value": 1}, partition=theirs))
            assert_refused(await asked.produce("t", {"value": 1, "partition": theirs}))
        assert pair.ends() == before, "nothing is appended"

    run(tmp_path, scenario)


def test_what_others_lead_is_appended_by_a_gateway_whose_own_commits_cost_too_much(tmp_path: Path) -> None:
    async def scenario(pair: Pair) -> None:
        pair.overdraw(pair.first)
        mine, theirs, before = pair.led_by(pair.first), pair.led_by(pair.second), pair.ends()
        answer = await pair.first.produce("t", {"value": 1}, partition=theirs)
        assert answer.status_code == 200, answer.text
        assert [each["offset"] for each in answer.json()["offsets"]] == [before[theirs]]
        assert_refused(await pair.first.produce("t", {"value": 1}, partition=mine))
        assert pair.ends()[mine] == before[mine]

    run(tmp_path, scenario)


def test_of_a_request_to_both_the_part_of_the_other_is_refused_and_one_s_own_is_appended(
    tmp_path: Path,
) -> None:
    async def scenario(pair: Pair) -> None:
        pair.overdraw(pair.second)
        mine, theirs, before = pair.led_by(pair.first), pair.led_by(pair.second), pair.ends()
        both = ({"value": 1, "partition": mine}, {"value": 1, "partition": theirs})
        answer = await pair.first.produce("t", *both)
        assert answer.status_code == 200, answer.text
        appended, refused = answer.json()["offsets"]
        assert appended["offset"] == before[mine]
        assert refused["error_code"] == 42901
        assert pair.ends()[theirs] == before[theirs]
        assert_refused(await pair.second.produce("t", *both))
        assert pair.ends()[mine] == before[mine] + 1, "a gateway that refuses appends nothing, anywhere"

    run(tmp_path, scenario)
