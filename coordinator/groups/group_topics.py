"""The topics that groups know, which are never internal ones, and who may read which."""

import asyncio
from collections.abc import Mapping
from functools import partial
from operator import attrgetter

from coordinator.access.access import Access
from coordinator.access.authorizer import Authorizer
from coordinator.access.principal import RequestContext
from coordinator.groups.events import TopicsChanged, TopicState
from coordinator.groups.shard import Shard
from coordinator.groups.topic_filter import TopicFilter, check_pattern, matched, public_names
from ingest.pending_tasks import SharedRefresh
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import is_internal


class GroupTopics:
    """The topics as this process knows them. Used on the event loop."""

    def __init__(self, cluster: Cluster, access: Access, refreshes: SharedRefresh) -> None:
        """`refreshes` are those of the metadata log."""
        self._cluster, self._access, self._refreshes = cluster, access, refreshes
        self._topics: Mapping[str, TopicState] = {}
        self._readable: TopicFilter | None = None
        self._held: frozenset[str] = frozenset()
        self._authorizer: Authorizer | None = None
        self._version = -1

    @property
    def version(self) -> int:
        """It grows when the groups hear of created and deleted topics."""
        return self._version

    @property
    def known(self) -> Mapping[str, TopicState]:
        """Topics by name."""
        return self._topics

    @property
    def state(self) -> tuple[int, TopicFilter | None]:
        """A value that changes when a group would hear of something."""
        return self._version, self._readable

    async def refresh(self) -> None:
        """Read the metadata log, whose topics `look` takes over."""
        await self._refreshes.refresh()

    def look(self) -> bool:
        """Take over created and deleted topics, and changed ACLs; returns whether there are any."""
        version, authorizer = self._cluster.version, self._access.authorizer
        if version == self._version and authorizer is self._authorizer:
            return False
        if version != self._version:
            # Both of one moment: offsets in a topic that is neither there nor held would be forgotten.
            records = self._cluster.metadata_log.topics()
            self._topics = {
                record.name: TopicState(record.topic_id, record.partitions)
                for record in sorted(records, key=attrgetter("name"))
                if record.live and not is_internal(record.name)
            }
            self._held = frozenset(kept.topic_id for record in records for kept in record.kept.values())
        if authorizer is not self._authorizer and not self._access.is_open:
            self._readable = TopicFilter(partial(_reads, authorizer))
        self._version, self._authorizer = version, authorizer
        return True

    def tell(self, shard: Shard) -> None:
        """Set the topics of a shard, whose groups hear of them later."""
        shard.follow(self._topics, self._readable, self._held)

    def changed(self, now_ms: int) -> TopicsChanged:
        """The event by which a group hears of them."""
        return TopicsChanged(self._topics, self._readable, now_ms, held=self._held)

    async def match(self, pattern: str) -> None:
        """Look which topics `pattern` matches, in a thread: the steps of groups then find it done. Raises
        InvalidSubscription.
        """

        def match(topics: Mapping[str, TopicState]) -> None:
            check_pattern(pattern)
            matched(pattern, public_names(topics))

        await asyncio.to_thread(match, self._topics)


def _reads(authorizer: Authorizer, context: RequestContext, topic: str) -> bool:
    return authorizer.authorize(context, Operation.READ, ResourceType.TOPIC, topic)
