"""Refreshes of the partitions where readers wait: one serves all readers of this process that wait there."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from weakref import WeakKeyDictionary

from ingest.loop_share import LoopShare, batched
from log_tables.clock import Backoff, Clock
from log_tables.errors import LakelogError, StoreUnavailable
from log_tables.partition.reader import PartitionReader

WAITS = Backoff(0.02, max_s=0.2, factor=1.5)
"""Commits of this process wake a reader at once; another gateway's are looked for, ever less often."""

WAIT_LED_S = 1.0
"""The longest wait of a poll before it looks at the group, its client, and partitions led here again."""

Troubles = Mapping[PartitionReader, LakelogError]


class TailFollower:
    """The last refresh of each partition, and those under way. Used on the event loop.

    New records wake the readers that wait by `PartitionReader.on_commit`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun: WeakKeyDictionary[PartitionReader, float] = WeakKeyDictionary()
        self._under_way: dict[PartitionReader, asyncio.Task[Troubles]] = {}

    def due_s(self, partitions: Iterable[PartitionReader], pause_s: float) -> float:
        """Seconds until the oldest refresh of one of `partitions` is `pause_s` old; 0 and less if it
        did, infinite where there are none.
        """
        began = (self._begun.get(partition, -math.inf) for partition in partitions)
        return min(began, default=math.inf) + pause_s - self._clock.boottime()

    async def follow(self, partitions: Sequence[PartitionReader], pause_s: float) -> list[LakelogError]:
        """`refresh` for a reader that looks every `pause_s`: one of the last half of that time will do.

        Half, so that readers that began to wait at different times soon share their refreshes.
        """
        return await self.refresh(partitions, self._clock.boottime() - pause_s / 2)

    async def refresh(self, partitions: Sequence[PartitionReader], since: float) -> list[LakelogError]:
        """Return after refreshes of all `partitions` that began after `since` (`Clock.boottime`), by any
        caller; and the errors: TopicDeleted, StoreUnavailable, Damaged.
        """
        troubles: list[LakelogError] = []
        for some in batched(partitions):
            late = [each for each in some if self._begun.get(each, -math.inf) <= since]
            looks = {self._under_way[each] for each in {*some}.difference(late) if each in self._under_way}
            if late:
                looks.add(self._begin(late))
            if looks:
                await asyncio.wait(looks)
            found = [look.result() for look in looks]
            troubles += [each[at] for each in found for at in some if at in each]
        return troubles

    async def wait_until(
        self,
        ready: Callable[[Sequence[LakelogError]], Awaitable[bool]],
        partitions: Sequence[PartitionReader],
        deadline: float,
        share: LoopShare,
    ) -> bool:
        """Return when a reader of `partitions` is `ready`, or at `deadline` (`Clock.monotonic`); returns
        whether it waited. `ready` is asked first, and after each commit of this process and each refresh,
        whose errors it is given.
        """
        loop, arrived, waited = asyncio.get_running_loop(), asyncio.Event(), False
        pause_s, look, troubles = WAITS.first_s, None, list[LakelogError]()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(arrived.set)

        with ExitStack() as subscribed:
            async for partition in share.each(partitions):
                subscribed.callback(partition.on_commit(wake))
            while not await ready(troubles) and (left_s := deadline - self._clock.monotonic()) > 0:
                due_s = self.due_s(partitions, pause_s)
                if look is None and due_s <= 0:
                    # Not waited for by itself: a commit of this process is to wake the reader meanwhile.
                    look = asyncio.create_task(self.follow(partitions, pause_s))
                    look.add_done_callback(lambda _: arrived.set())
                    pause_s = WAITS.after(pause_s)
                waited = True
                with suppress(TimeoutError):
                    await asyncio.wait_for(
                        arrived.wait(), min(left_s, due_s if look is None else WAITS.max_s)
                    )
                arrived.clear()
                troubles = []
                if look is not None and look.done():
                    troubles, look = look.result(), None
        return waited

    def _begin(self, partitions: Sequence[PartitionReader]) -> "asyncio.Task[Troubles]":
        look = asyncio.create_task(asyncio.to_thread(_refresh, partitions))
        now = self._clock.boottime()
        for partition in partitions:
            self._begun[partition], self._under_way[partition] = now, look
        look.add_done_callback(partial(self._ended, partitions))
        return look

    def _ended(self, partitions: Sequence[PartitionReader], look: "asyncio.Task[Troubles]") -> None:
        for partition in partitions:
            if self._under_way.get(partition) is look:
                del self._under_way[partition]


def _refresh(partitions: Sequence[PartitionReader]) -> Troubles:
    """Refresh `partitions`; returns the errors by partition. An unavailable store is asked once."""
    troubles: dict[PartitionReader, LakelogError] = {}
    for index, partition in enumerate(partitions):
        try:
            partition.refresh()
        except StoreUnavailable as error:
            return troubles | dict.fromkeys(partitions[index:], error)
        except LakelogError as error:
            troubles[partition] = error
    return troubles
