"""An undo while the coordinator of a group changes, a member comes, and somebody else undoes, too."""

import asyncio
from pathlib import Path

import pytest

from coordinator.groups.events import OffsetAndMetadata
from log_tables.clock import SystemClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import Conflict, GroupNotEmpty, LakelogError, NotLeader
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.coordinator.groups.test_group_coordinator import AT, Running


async def deleted(root: Path) -> Running:
    """A gateway that has deleted the group `g`, which was at offset 3."""
    create_topic(Cluster.open(open_store(root), SystemClock()), "t", 1)
    here = await Running.at(root)
    await here.put(5)
    await here.coordinator.reset("g", {AT: OffsetAndMetadata(3)}, False)
    await here.coordinator.delete("g", False)
    return here


async def offset_of(here: Running) -> int:
    return (await here.shard_manager.group("g")).offsets[AT].offset


def test_another_coordinator_undoes_what_a_dead_one_has_done(tmp_path: Path) -> None:
    async def scenario() -> None:
        first = await deleted(tmp_path)
        second = await Running.at(tmp_path)  # the first does not hear of it
        await second.coordinator.undo("g")
        assert await offset_of(second) == 3
        with pytest.raises((NotLeader, Conflict)):
            await first.coordinator.undo("g", newest_ms=(await first.coordinator.acts("g"))[-1].at_ms)
        assert await offset_of(second) == 3

    asyncio.run(scenario())
    assert check(open_store(tmp_path)).problems == []


def test_of_two_who_undo_the_same_one_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        here = await deleted(tmp_path)
        newest = (await here.coordinator.acts("g"))[0].at_ms
        both = [here.coordinator.undo("g", newest_ms=newest) for _ in range(2)]
        done = await asyncio.gather(*both, return_exceptions=True)
        assert sorted(isinstance(each, Conflict) for each in done) == [False, True]
        assert await offset_of(here) == 3

    asyncio.run(scenario())


def test_a_member_that_comes_at_the_same_time_goes_on_from_there_or_the_undo_is_refused(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        here = await deleted(tmp_path)

        async def undo() -> bool:
            try:
                await here.coordinator.undo("g")
            except GroupNotEmpty:
                return False
            return True

        _, undone = await asyncio.gather(here.join("m"), undo())
        first, _ = (await here.given())[0]
        assert first == (3 if undone else 0), "what the member is given is what the group has"

    asyncio.run(scenario())


def test_a_group_of_a_gateway_that_cannot_write_is_as_it_was(tmp_path: Path) -> None:
    async def scenario() -> None:
        first = await deleted(tmp_path)
        second = await Running.at(tmp_path)
        await second.coordinator.reset("g", {AT: OffsetAndMetadata(1)}, False)  # it takes over
        try:
            await first.coordinator.undo("g")
        except LakelogError:
            assert await offset_of(second) == 1
        else:
            assert await offset_of(first) == 3, "it has taken over again, and knows of the reset"
            assert (await first.coordinator.acts("g"))[0].done == "undo"

    asyncio.run(scenario())
    assert check(open_store(tmp_path)).problems == []
