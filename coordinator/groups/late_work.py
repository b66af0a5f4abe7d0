"""Work on groups that takes too long for a step: targets of large ones, and the topics of their expressions.

It is done in threads, and the groups hear of it by events.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice

from coordinator.groups.events import Event, TopicsChanged, TopicState
from coordinator.groups.state.group import Group
from coordinator.groups.state.target import aim, is_wide
from coordinator.groups.topic_filter import Follower, TopicFilter, resolved
from ingest.pending_tasks import PendingTasks
from log_tables.clock import Clock
from log_tables.errors import NotLeader

MATCHED_AT_ONCE = 8
"""Expressions that are looked at in one go, before their groups hear of them."""

# One thread: each of those that compute makes the event loop wait for the interpreter's lock.
computing = ThreadPoolExecutor(1, thread_name_prefix="lakelog-targets")


class LateWork:
    """The late work of one shard. Used on the event loop."""

    def __init__(
        self,
        group: Callable[[str], Group],
        groups: Callable[[], Iterable[Group]],
        apply: Callable[[str, Event], Group],
        clock: Clock,
    ) -> None:
        """`group` is one of the shard's `groups`, or an empty one; `apply` raises NotLeader."""
        self._group, self._groups, self._apply, self._clock = group, groups, apply, clock
        self._tasks = PendingTasks()
        self._aiming: dict[str, asyncio.TimerHandle | None] = {}  # None: a thread computes
        self._topics: Mapping[str, TopicState] = {}
        self._readable: TopicFilter | None = None
        self._held: frozenset[str] = frozenset()
        self._matches: dict[Follower, frozenset[str]] = {}
        self._unmatched: dict[Follower, None] = {}
        self._is_matching = self._has_ended = False

    def end(self) -> None:
        """Begin nothing any more. What a thread does is left to end."""
        self._has_ended = True
        for timer in self._aiming.values():
            if timer is not None:
                timer.cancel()
        self._unmatched = {}

    # Targets.

    def note(self, group: Group) -> None:
        """Have the target of `group` computed when it is due."""
        # While its expressions are not known, it is: the group hears of them, and is noted again.
        if group.due_ms is None or group.id in self._aiming or not group.is_resolved or self._has_ended:
            return
        wait_s = max(0.0, group.due_ms - self._clock.monotonic() * 1_000) / 1_000
        self._aiming[group.id] = asyncio.get_running_loop().call_later(wait_s, self._aim, group.id)

    def _aim(self, group_id: str) -> None:
        del self._aiming[group_id]
        group = self._group(group_id)
        if group.due_ms is None:
            return
        if self._clock.monotonic() * 1_000 < group.due_ms or not group.is_resolved:
            self.note(group)
        elif is_wide(group):
            self._aiming[group_id] = None
            self._tasks.start(self._aim_in_thread(group))
        else:
            self._tell(group_id, aim(group))

    async def _aim_in_thread(self, group: Group) -> None:
        try:
            event = await asyncio.get_running_loop().run_in_executor(computing, aim, group)
        finally:
            del self._aiming[group.id]
        self._tell(group.id, event)

    # Expressions.

    def follow(
        self, topics: Mapping[str, TopicState], readable: TopicFilter | None, held: frozenset[str]
    ) -> None:
        """These are the topics now, who may read which, and the ids of deleted ones that may come back."""
        self._held = held
        if topics is not self._topics or readable is not self._readable:
            self._topics, self._readable = topics, readable
            self._matches, self._unmatched = {}, {}

    def tell(self, group_id: str) -> None:
        """Tell a group of the topics, and of what its expressions match as soon as that is known. Raises
        NotLeader.
        """
        group = self._apply(group_id, self._changed())
        unmatched = group.followers - self._matches.keys()
        self._unmatched |= dict.fromkeys(unmatched)
        if self._unmatched and not self._is_matching:
            self._is_matching = True
            self._tasks.start(self._match())

    def _changed(self) -> TopicsChanged:
        now_ms = self._clock.now_ms()
        return TopicsChanged(self._topics, self._readable, now_ms, self._matches, self._held)

    async def _match(self) -> None:
        try:
            await self._match_all()
        finally:
            self._is_matching = False

    async def _match_all(self) -> None:
        while self._unmatched:
            some, topics, readable = [*islice(self._unmatched, MATCHED_AT_ONCE)], self._topics, self._readable
            known = [*self._matches.values()]
            found = await asyncio.to_thread(resolved, some, topics, readable, known)
            if topics is not self._topics or readable is not self._readable:
                continue
            self._matches |= found
            for each in some:
                self._unmatched.pop(each, None)
            for group in self._groups():
                if not group.followers.isdisjoint(some):
                    self._tell(group.id, self._changed())
                    await asyncio.sleep(0)

    def _tell(self, group_id: str, event: Event) -> None:
        with suppress(NotLeader):
            self._apply(group_id, event)
