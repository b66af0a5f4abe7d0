"""`__consumer_offsets`: as in Kafka, a group belongs to a partition, whose leader coordinates it."""

import asyncio
from contextlib import suppress

from ingest.settings import Settings
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import check_group_name
from log_tables.cluster.topic import Topic
from log_tables.cluster.topic_settings import COMPACT
from log_tables.errors import TopicExists
from log_tables.key_hash import MURMUR3, partition_for_key
from log_tables.layout import CONSUMER_OFFSETS


class OffsetsTopic:
    """Used on the event loop."""

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self._cluster, self._settings, self._making = cluster, settings, asyncio.Lock()

    async def exists(self) -> bool:
        """Whether there was ever a group on this root."""
        if self._cluster.cached_topic(CONSUMER_OFFSETS) is None:
            await asyncio.to_thread(self._cluster.refresh)
        return self._cluster.cached_topic(CONSUMER_OFFSETS) is not None

    async def topic(self) -> Topic:
        """The topic, created at its first use."""
        found = self._cluster.cached_topic(CONSUMER_OFFSETS)
        if found is None:
            async with self._making:
                found = await asyncio.to_thread(self._make)
        return found

    async def partition_for(self, group_id: str) -> tuple[Topic, int]:
        """The partition whose leader coordinates the group `group_id`. Raises InvalidConsumer for a name that
        no group can have.
        """
        check_group_name(group_id)
        return await self.topic(), await self.partition_of_key(group_id)

    async def partition_of_key(self, key: str) -> int:
        """The partition whose leader coordinates the group or the transactional id `key`."""
        return partition_for_key(key.encode(), (await self.topic()).partition_count, MURMUR3)

    def _make(self) -> Topic:
        self._cluster.refresh()
        found = self._cluster.cached_topic(CONSUMER_OFFSETS)
        if found is not None:
            return found
        with suppress(TopicExists):
            partitions = self._settings.offsets_topic_num_partitions
            configs = {"cleanup.policy": COMPACT}
            create_topic(self._cluster, CONSUMER_OFFSETS, partitions, configs, internal=True)
        return self._cluster.topic(CONSUMER_OFFSETS)
