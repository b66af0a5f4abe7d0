"""How many groups and members there may be, and how often Kafka's clients say that they are alive."""

from contextlib import suppress

from coordinator.access.principal import RequestContext
from coordinator.groups.shard import Shard
from coordinator.groups.shards import Shards
from coordinator.groups.state.group import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS, Group
from ingest.buffer import RETRY_AFTER_S
from ingest.settings import Settings
from log_tables.errors import NotLeader, QuotaReached

HEARTBEATS_PER_S = 200
"""Heartbeats of all Kafka clients together whose partitions a gateway assigns, where there are very many."""


class GroupBounds:
    """The bounds of all shards of one process. Used on the event loop."""

    def __init__(self, shards: Shards, settings: Settings) -> None:
        self._shards, self._settings = shards, settings

    def check_quota(
        self, shard: Shard, group_id: str, context: RequestContext | None, joins: bool = False
    ) -> None:
        """Raise QuotaReached when a new group `group_id`, or a member that `joins` it, is one too many, for
        all clients or for that of `context`.
        """
        group, name = shard.group(group_id), "" if context is None else context.principal.name
        if not group.exists:
            self._check_groups(name, is_counted=bool(group.configs))
        if joins:
            self._check_members(name)

    def _check_groups(self, name: str, is_counted: bool) -> None:
        """For one more group of the principal `name`. One that is counted already has settings."""
        bounds = self._settings
        if not is_counted:
            groups = sum(each.size for each in self._shards)
            _check_below("consumer groups", groups, "groups_max", bounds.groups_max)
        most = bounds.principal_groups_max
        if name and most:
            groups = sum(each.groups_of(name) for each in self._shards)
            _check_below(f"consumer groups of {name[:200]}", groups, "principal_groups_max", most)

    def _check_members(self, name: str) -> None:
        """For one more member of the principal `name`; the shard bounds those of one group."""
        bounds = self._settings
        members, most = sum(each.members for each in self._shards), bounds.consumer_instances_max
        _check_below("consumer instances", members, "consumer_instances_max", most)
        most = bounds.principal_consumer_instances_max
        if name and most:
            members = sum(each.members_of(name) for each in self._shards)
            what = f"consumer instances of {name[:200]}"
            _check_below(what, members, "principal_consumer_instances_max", most)

    def session_timeout_ms(self, group: Group) -> int:
        """How long a Kafka client of a group may be silent."""
        return int(group.configs.get(SESSION_TIMEOUT_MS, self._settings.group_consumer_session_timeout_ms))

    def heartbeat_interval_ms(self, group: Group) -> int:
        """How often a Kafka client of a group is to say that it is alive: less often where there are very
        many.
        """
        default = self._settings.group_consumer_heartbeat_interval_ms
        setting = int(group.configs.get(HEARTBEAT_INTERVAL_MS, default))
        members = sum(each.members for each in self._shards)
        slowest = max(setting, self.session_timeout_ms(group) // 4)
        return min(max(setting, members * 1_000 // HEARTBEATS_PER_S), slowest)

    def make_way(self) -> None:
        """Have an older member id that nobody has joined with give way to a new one, if there are as many of
        them as consumer instances may be. They are no members: a client that only asks for ids must not keep
        others out.
        """
        if sum(each.pending for each in self._shards) >= self._settings.consumer_instances_max:
            with suppress(NotLeader):
                max(self._shards, key=lambda each: each.pending).forget_pending()


def _check_below(what: str, count: int, setting: str, most: int) -> None:
    """Raise QuotaReached when `count` is the most that `setting` allows."""
    if count >= most:
        raise QuotaReached(
            f"there are {count} {what} here, as many as {setting} allows; delete some, or repeat the request "
            "later",
            retry_after_s=RETRY_AFTER_S,
        )
