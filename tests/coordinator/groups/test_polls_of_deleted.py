"""Polls of a member of several topics, of which one is deleted or brought back meanwhile."""

import asyncio
from pathlib import Path

from api.client_topics import known_topic_to_read
from coordinator.groups.sessions.consumer_session import ConsumerSession, PollResult
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store
from tests.coordinator.groups.test_group_coordinator import MANY_BYTES, Running, never, run
from tests.kit.groups import any_topic


async def two_topics(root: Path) -> Running:
    """A member of "t" and "other", with three records in "t"."""
    setup = await Running.at(root)
    for name in ("t", "other"):
        create_topic(setup.gateway.cluster, name, 1)
    await setup.put(3)
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
