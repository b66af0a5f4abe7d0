"""The places of all members whose groups this process coordinates."""

from collections.abc import Iterable

from coordinator.groups.consumer_session import ConsumerSession
from coordinator.groups.shard import Shard
from coordinator.groups.shared_refresh import SharedRefresh
from coordinator.groups.tail_follower import TailFollower
from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster
from log_tables.errors import UnknownMember


class SessionManager:
    """Used on the event loop. `topics` is the look at the metadata log that all polls and requests share."""

    def __init__(self, cluster: Cluster, tails: TailFollower, clock: Clock) -> None:
        self._cluster, self._tails, self._clock = cluster, tails, clock
        self.topics = SharedRefresh(cluster.refresh)
        self._consumers: dict[tuple[str, str], ConsumerSession] = {}

    def of(self, shard: Shard, name: str, member: str) -> ConsumerSession:
        """The places of a member of the group `name`. Raises UnknownMember."""
        try:
            shard.group(name).member(member)
        except UnknownMember:
            self.forget(name, member)
            raise
        consumer = self._consumers.get((name, member))
        if consumer is None or consumer.shard is not shard:
            consumer = ConsumerSession(
                self._cluster, self.topics, self._tails, shard, self._clock, name, member
            )
            self._consumers[name, member] = consumer
        return consumer

    def known(self, name: str, members: Iterable[str]) -> list[ConsumerSession]:
        """The places of those of these members that have any."""
        found = (self._consumers.get((name, member)) for member in members)
        return [consumer for consumer in found if consumer is not None]

    def forget(self, name: str, member: str) -> None:
        """The places of a member are void."""
        self._consumers.pop((name, member), None)

    def forget_group(self, name: str) -> None:
        """The places of the group's members are void."""
        for key in [key for key in self._consumers if key[0] == name]:
            del self._consumers[key]

    def note_places(self, shard: Shard) -> None:
        """Note where the members of the groups of `shard` go on."""
        for (name, member), consumer in [*self._consumers.items()]:
            if consumer.shard is shard and member in shard.group(name).members:
                consumer.note_places()

    def tidy(self, shard: Shard) -> None:
        """Forget the members that the groups of `shard` do not have any more; all, when it is over."""
        for (name, member), consumer in [*self._consumers.items()]:
            if consumer.shard is shard and not (shard.leading and member in shard.group(name).members):
                del self._consumers[name, member]
