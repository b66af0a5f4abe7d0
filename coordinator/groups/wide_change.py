"""A change of more offsets than are changed in one go: others have turns meanwhile, and it is whole."""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from coordinator.groups.shard import Shard
from coordinator.groups.state.group import Group
from ingest.loop_share import LoopShare, batched
from ingest.pending_tasks import PendingTasks, retrieve
from log_tables.limits import OFFSETS_AT_ONCE
from log_tables.topic_partition import TopicPartition

Some = Sequence[TopicPartition]


class WideChange:
    """The wide changes of one gateway. Used on the event loop."""

    def __init__(self, loop_share: LoopShare) -> None:
        self.share, self._going_on = loop_share, PendingTasks()

    async def set(
        self,
        shard: Shard,
        group_id: str,
        partitions: Iterable[TopicPartition],
        change: Callable[[Some, bool], Group],
        over_commits: bool = False,
    ) -> None:
        """Set the offsets of `partitions` by calls of `change`, and return when all are durable.

        It is given some of them, and whether they are the rest of a change whose right was looked at in the
        first call; it returns the group. With `over_commits` it is given also those that others commit
        meanwhile: a member may, by a poll, commit what it was given before it seeks.
        """
        first, *rest = _pieces(partitions)
        begun = change(first, False)

        def go_on(some: Some) -> None:
            if shard.group(group_id).exists or not begun.exists:  # else it was deleted, after this change
                change(some, True)

        await self._whole(shard, begun, rest, go_on, over_commits)

    async def delete(
        self,
        shard: Shard,
        before: Group,
        partitions: Iterable[TopicPartition],
        delete: Callable[[Some], object],
    ) -> None:
        """Delete the offsets of `partitions`, which the group `before` may do without, by calls of `delete`,
        and return when that is durable.
        """
        first, *rest = _pieces(partitions)
        delete(first)
        await self._whole(shard, before, rest, delete)

    async def _whole(
        self,
        shard: Shard,
        before: Group,
        rest: Sequence[Some],
        change: Callable[[Some], object],
        over_commits: bool = False,
    ) -> None:
        """Go on with a change that was begun in the group `before`, and return when all of it is durable.
        Others have their turns between the pieces of `rest`, so it goes on where its client has left, or is
        no member any longer.
        """

        async def go_on() -> None:
            for some in rest:
                await self.share.give_way()
                now = shard.group(before.id)
                # The newer commits of others came after this change.
                old = [at for at in some if now.offsets.get(at) is before.offsets.get(at)]
                change(some if over_commits else old)

        if rest:
            task = self._going_on.start(go_on())
            task.add_done_callback(retrieve)
            await asyncio.shield(task)
        await shard.wait_durable(before.id)


def _pieces(partitions: Iterable[TopicPartition]) -> list[Some]:
    return [*batched([*partitions], OFFSETS_AT_ONCE)] or [[]]
