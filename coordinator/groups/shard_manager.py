"""The groups of this process as coordinators and doors ask for them: each part does what it says."""

from coordinator.access.access import Access
from coordinator.brokers.leadership import Leadership
from coordinator.groups.classic.classic_group import ClassicLimits
from coordinator.groups.group_bounds import GroupBounds
from coordinator.groups.group_reader import GroupReader
from coordinator.groups.group_topics import GroupTopics
from coordinator.groups.offsets_topic import OffsetsTopic
from coordinator.groups.sessions.session_manager import SessionManager
from coordinator.groups.shard_duties import ShardDuties
from coordinator.groups.shards import Shards
from coordinator.groups.transactions.transaction_coordinator import TransactionCoordinator
from ingest.periodic_task import FailureLog
from ingest.settings import Settings
from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster


class ShardManager:
    """The shards of one process, and the groups of all processes to read. Used on the event loop."""

    def __init__(
        self,
        cluster: Cluster,
        leadership: Leadership,
        consumers: SessionManager,
        transactions: TransactionCoordinator,
        access: Access,
        settings: Settings,
        clock: Clock,
        failures: FailureLog,
    ) -> None:
        limits = ClassicLimits(
            settings.group_initial_rebalance_delay_ms,
            settings.group_min_session_timeout_ms,
            settings.group_max_session_timeout_ms,
            settings.group_max_size,
            settings.group_consumer_assignment_interval_ms,
        )
        offsets = OffsetsTopic(cluster, settings)
        self._topics = topics = GroupTopics(cluster, access, consumers.topics)
        shards = Shards(cluster, leadership, offsets, topics, transactions, limits, clock)
        self.shards = shards
        bounds = GroupBounds(shards, settings)
        reader = GroupReader(shards, leadership, topics, clock)
        self.duties = ShardDuties(
            shards, reader, leadership, consumers, transactions, settings, clock, failures
        )
        self.has_groups, self.partition_for = offsets.exists, offsets.partition_for
        self.match, self.refresh_topics = topics.match, shards.refresh_topics
        self.shard, self.with_shard, self.wake = shards.shard, shards.with_shard, shards.wake
        self.coordinator_of, self.at_coordinator = shards.coordinator_of, shards.at_coordinator
        self.check_quota, self.make_way = bounds.check_quota, bounds.make_way
        self.session_timeout_ms = bounds.session_timeout_ms
        self.heartbeat_interval_ms = bounds.heartbeat_interval_ms
        self.group, self.stored_group = reader.group, reader.stored_group
        self.groups, self.named_groups = reader.groups, reader.named_groups
        self.groups_here, self.coordinated_groups = reader.groups_here, reader.coordinated_groups
        self.start, self.close = self.duties.start, self.duties.close

    @property
    def topics_version(self) -> int:
        """It grows when the groups hear of created and deleted topics."""
        return self._topics.version
