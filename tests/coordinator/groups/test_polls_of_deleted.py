"""Polls of a member of several topics, of which one is deleted or brought back meanwhile."""

import asyncio
from pathlib import Path

import pytest

from api.client_topics import known_topic_to_read
from coordinator.groups.sessions.consumer_session import ConsumerSession, PollResult
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.admin.undelete import undelete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store
from log_tables.testing import Crash, Fault, FaultyStore, crash_before
from tests.coordinator.groups.test_group_coordinator import MANY_BYTES, Running, never, run
from tests.kit.groups import any_topic


async def two_topics(root: Path) -> Running:
    """A member of "t" and "other", with three records in "t" that another gateway has appended."""
    setup, other = await Running.at(root), await Running.at(root)
    for name in ("t", "other"):
        create_topic(setup.gateway.cluster, name, 1)
    await asyncio.to_thread(other.gateway.cluster.refresh)
    await other.put(3)
    await setup.join("m")
    await setup.subscribe("m", "t", "other")
    return setup


def test_a_topic_that_goes_between_a_poll_and_its_answer_leaves_the_others(tmp_path: Path) -> None:
    async def scenario(root: Path) -> None:
        setup = await two_topics(root)
        here = setup.gateway
        tries = 0

        async def give(_: ConsumerSession, polled: PollResult) -> list[str]:
            nonlocal tries
            tries += 1
            names = [reading.at.topic for reading in polled.reads]
            if tries == 1:
                assert names == ["t"]
                delete_topic(Cluster.open(open_store(root), here.clock), "t")
                await asyncio.to_thread(here.cluster.refresh)
            return [known_topic_to_read(here, name).name for name in names]

        answer = await setup.coordinator.poll("g", "m", None, MANY_BYTES, 0, never, any_topic, give)
        assert (answer, tries) == ([], 2)

    run(scenario, tmp_path)


def test_a_poll_lets_a_topic_go_on_whose_undelete_died_before_its_tables(tmp_path: Path) -> None:
    async def scenario(root: Path) -> None:
        setup = await two_topics(root)
        assert await setup.given() == [(0, 3)]
        clock = setup.gateway.clock
        delete_topic(Cluster.open(open_store(root), clock), "t")
        dies = FaultyStore(open_store(root), [Fault(1, crash_before, path="topics/t/")])
        with pytest.raises(Crash):
            undelete_topic(Cluster.open(dies, clock), "t")
        before = Cluster.open(open_store(root), clock).topic("t").partition(0)
        assert before.snapshot.deleted
        for _ in range(3):  # the first ones hear that it went, and came back
            await setup.poll()
        after = Cluster.open(open_store(root), clock).topic("t").partition(0)
        assert not after.snapshot.deleted

    run(scenario, tmp_path)
