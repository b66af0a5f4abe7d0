"""The sessions of all members whose groups this process coordinates."""

from collections.abc import Iterable

from coordinator.groups.sessions.consumer_session import ConsumerSession
from coordinator.groups.sessions.tail_follower import TailFollower
from coordinator.groups.shard import Shard
from ingest.loop_share import Wide
from ingest.pending_tasks import SharedRefresh
from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster
from log_tables.errors import UnknownMember
from log_tables.limits import LOOKS_AT_ONCE


class SessionManager:
    """Used on the event loop. `topics` refreshes the metadata log, shared by all polls and requests."""

    def __init__(self, cluster: Cluster, tails: TailFollower, clock: Clock) -> None:
        self._cluster, self._tails, self._clock = cluster, tails, clock
        self.topics, self._opens = SharedRefresh(cluster.refresh), Wide(LOOKS_AT_ONCE)
        self._sessions: dict[tuple[str, str], ConsumerSession] = {}

    def session_for(self, shard: Shard, group_id: str, member_id: str) -> ConsumerSession:
        """The session of a member of the group `group_id`. Raises UnknownMember."""
        try:
            shard.group(group_id).member(member_id)
        except UnknownMember:
            self.forget(group_id, member_id)
            raise
        consumer = self._sessions.get((group_id, member_id))
        if consumer is None or consumer.shard is not shard:
            consumer = ConsumerSession(
                *(self._cluster, self.topics, self._tails, self._opens),
                *(shard, self._clock, group_id, member_id),
            )
            self._sessions[group_id, member_id] = consumer
        return consumer

    def existing(self, group_id: str, members: Iterable[str]) -> list[ConsumerSession]:
        """The sessions of those of these members that have one."""
        found = (self._sessions.get((group_id, member_id)) for member_id in members)
        return [consumer for consumer in found if consumer is not None]

    def forget(self, group_id: str, member_id: str) -> None:
        """Drop the session of a member."""
        self._sessions.pop((group_id, member_id), None)

    def forget_group(self, group_id: str) -> None:
        """Drop the sessions of the group's members."""
        for key in [key for key in self._sessions if key[0] == group_id]:
            del self._sessions[key]

    def note_positions(self, shard: Shard) -> None:
        """Have the groups of `shard` note the positions of their members."""
        for (group_id, member_id), consumer in [*self._sessions.items()]:
            if consumer.shard is shard and member_id in shard.group(group_id).members:
                consumer.note_positions()

    def tidy(self, shard: Shard) -> None:
        """Drop the sessions of members that the groups of `shard` no longer have; all when it has ended."""
        if shard.leading and not shard.have_left:
            return
        shard.have_left = False
        for (group_id, member_id), consumer in [*self._sessions.items()]:
            if consumer.shard is shard and not (shard.leading and member_id in shard.group(group_id).members):
                del self._sessions[group_id, member_id]
