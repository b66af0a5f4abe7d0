"""Version 3: consumer groups, their members, assignments and lags (Confluent REST API v3)."""

from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field

from api.client_topics import with_partition
from api.errors import error_responses
from api.gateway import Gateway
from api.requests.access import Asked
from api.requests.envelope import Collection, Link, ListMetadata, ResourceMetadata, resource, url
from api.requests.route_gateway import Here, gateway
from api.requests.strict import StrictRoute
from api.v3.clusters import ClusterId
from coordinator.groups.classic.classic_group import ClassicState
from coordinator.groups.state.group import Group
from coordinator.groups.state.member import GroupMember
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.errors import UnknownPartition, UnknownTopic
from log_tables.sql.lag import Lag, lag
from log_tables.table.snapshot import Snapshot
from log_tables.topic_partition import TopicPartition

router = APIRouter(
    prefix="/v3/clusters/{cluster_id}/consumer-groups", tags=["v3 consumer groups"], route_class=StrictRoute
)

_STATES = {
    ClassicState.EMPTY: "EMPTY",
    ClassicState.PREPARING_REBALANCE: "PREPARING_REBALANCE",
    ClassicState.COMPLETING_REBALANCE: "COMPLETING_REBALANCE",
    ClassicState.STABLE: "STABLE",
    ClassicState.DEAD: "DEAD",
}

GroupId = Annotated[str, Path(examples=["readers"])]
ConsumerId = Annotated[str, Path(examples=["reader-1"])]


class GroupView(BaseModel):
    kind: str = "KafkaConsumerGroup"
    metadata: ResourceMetadata
    cluster_id: str
    consumer_group_id: str
    is_simple: bool = Field(description="Whether the group has offsets only: no member ever subscribed.")
    partition_assignor: str = Field(description="sticky, range, roundrobin, or one of Kafka's clients.")
    protocol_type: str = Field(
        description="The kind of its members: consumer, or another of Kafka's; empty if none ever came."
    )
    state: str = Field(
        description="EMPTY, STABLE, or PREPARING_REBALANCE while partitions change owners; of Kafka's "
        "clients also COMPLETING_REBALANCE."
    )
    coordinator: Link
    consumers: Link
    lag_summary: Link


class ConsumerView(BaseModel):
    kind: str = "KafkaConsumer"
    metadata: ResourceMetadata
    cluster_id: str
    consumer_group_id: str
    consumer_id: str
    instance_id: str | None = Field(description="Of Kafka's clients, that of a static member.")
    client_id: str
    host: str = Field(description="The address of its client, if it is known.")
    assignments: Link


class AssignmentView(BaseModel):
    kind: str = "KafkaConsumerAssignment"
    metadata: ResourceMetadata
    cluster_id: str
    consumer_group_id: str
    consumer_id: str
    topic_name: str
    partition_id: int
    partition: Link
    lag: Link


class LagView(BaseModel):
    kind: str = "KafkaConsumerLag"
    metadata: ResourceMetadata
    cluster_id: str
    consumer_group_id: str
    topic_name: str
    partition_id: int
    current_offset: int = Field(description="The committed offset: that of the next record to read.")
    log_end_offset: int
    lag: int = Field(description="Unread records, without deleted ones.")
    lag_seconds: float = Field(description="How long the oldest unread record has been in the log.")
    lag_bytes: int = Field(description="The size of the unread records in storage.")
    consumer_id: str = Field(description="The owner of the partition; empty if there is none.")
    instance_id: str | None
    client_id: str


class LagSummaryView(BaseModel):
    kind: str = "KafkaConsumerGroupLagSummary"
    metadata: ResourceMetadata
    cluster_id: str
    consumer_group_id: str
    max_lag_consumer_id: str
    max_lag_instance_id: str | None
    max_lag_client_id: str
    max_lag_topic_name: str | None
    max_lag_partition_id: int | None
    max_lag: int
    total_lag: int
    max_lag_consumer: Link | None
    max_lag_partition: Link | None


@router.get("", summary="List groups", responses=error_responses(404, 503))
async def list_groups(
    here: Here, asked: Asked, request: Request, cluster: ClusterId
) -> Collection[GroupView]:
    return Collection(
        kind="KafkaConsumerGroupList",
        metadata=ListMetadata(self=url(request, cluster, "consumer-groups")),
        data=[
            await _group_view(here, request, group)
            for group in await here.shard_manager.groups()
            if asked.allows(Operation.DESCRIBE, ResourceType.GROUP, group.id)
        ],
    )


@router.get("/{group}", summary="Describe a group", responses=error_responses(404, 503))
async def get_group(here: Here, request: Request, cluster: ClusterId, group: GroupId) -> GroupView:
    return await _group_view(here, request, await here.shard_manager.group(group))


@router.get("/{group}/consumers", summary="List a group's members", responses=error_responses(404, 503))
async def list_consumers(
    here: Here, request: Request, cluster: ClusterId, group: GroupId
) -> Collection[ConsumerView]:
    found = await here.shard_manager.group(group)
    return Collection(
        kind="KafkaConsumerList",
        metadata=ListMetadata(self=url(request, cluster, "consumer-groups", group, "consumers")),
        data=[_consumer_view(request, cluster, found, member) for member in found.group_members],
    )


@router.get("/{group}/consumers/{consumer}", summary="Describe a member", responses=error_responses(404, 503))
async def get_consumer(
    here: Here, request: Request, cluster: ClusterId, group: GroupId, consumer: ConsumerId
) -> ConsumerView:
    found = await here.shard_manager.group(group)
    return _consumer_view(request, cluster, found, found.group_member(consumer))


@router.get(
    "/{group}/consumers/{consumer}/assignments",
    summary="List a member's partitions",
    responses=error_responses(404, 503),
)
async def list_assignments(
    here: Here, asked: Asked, request: Request, cluster: ClusterId, group: GroupId, consumer: ConsumerId
) -> Collection[AssignmentView]:
    found = await here.shard_manager.group(group)
    member = found.group_member(consumer)
    path = (cluster, "consumer-groups", group, "consumers", consumer, "assignments")
    return Collection(
        kind="KafkaConsumerAssignmentList",
        metadata=ListMetadata(self=url(request, *path)),
        data=[
            _assignment_view(request, cluster, found, member, at)
            for at in sorted(member.owned or ())
            if asked.describes(at.topic)
        ],
    )


@router.get("/{group}/lags", summary="List a group's lags", responses=error_responses(404, 503))
async def list_lags(
    here: Here, asked: Asked, request: Request, cluster: ClusterId, group: GroupId
) -> Collection[LagView]:
    """One lag for each partition in which the group has committed an offset."""
    found = await here.shard_manager.group(group)

    def views() -> list[LagView]:
        owners = _owners(found)
        return [
            _lag_view(request, found, owners.get(at), at, *place)
            for at, place in _lags(here, found).items()
            if asked.describes(at.topic)
        ]

    return Collection(
        kind="KafkaConsumerLagList",
        metadata=ListMetadata(self=url(request, cluster, "consumer-groups", group, "lags")),
        data=await run_in_threadpool(views),
    )


@router.get(
    "/{group}/lags/{topic}/partitions/{partition}",
    summary="Get the lag in a partition",
    responses=error_responses(404, 503),
)
async def get_lag(
    here: Here, request: Request, cluster: ClusterId, group: GroupId, topic: str, partition: int
) -> LagView:
    found = await here.shard_manager.group(group)
    at = TopicPartition(topic, partition)
    found.check(at)
    lags = await run_in_threadpool(_lags, here, found, at)
    if at not in lags:
        raise UnknownPartition(
            f"the group {group!r} has no committed offset in {at}, and so no lag; commit one, or see its lags"
        )
    return _lag_view(request, found, _owners(found).get(at), at, *lags[at])


@router.get(
    "/{group}/lag-summary", summary="Get a group's largest and total lag", responses=error_responses(404, 503)
)
async def get_lag_summary(
    here: Here, asked: Asked, request: Request, cluster: ClusterId, group: GroupId
) -> LagSummaryView:
    """The lag of a group in the topics that the caller may describe."""
    found = await here.shard_manager.group(group)
    lags = await run_in_threadpool(_lags, here, found)
    records = {at: behind.records for at, (_, behind) in lags.items() if asked.describes(at.topic)}
    worst = max(records, key=lambda at: records[at], default=None)
    owner = None if worst is None else _owners(found).get(worst)
    path = (cluster, "consumer-groups", group)
    crn = f"kafka={cluster}/consumer-group={group}/lag-summary"
    return LagSummaryView(
        metadata=resource(request, *path, "lag-summary", name=crn),
        cluster_id=cluster,
        consumer_group_id=group,
        max_lag_consumer_id="" if owner is None else owner.id,
        max_lag_instance_id=None if owner is None else owner.instance_id,
        max_lag_client_id="" if owner is None else owner.client_id,
        max_lag_topic_name=None if worst is None else worst.topic,
        max_lag_partition_id=None if worst is None else worst.partition,
        max_lag=0 if worst is None else records[worst],
        total_lag=sum(records.values()),
        max_lag_consumer=Link(related=url(request, *path, "consumers", owner.id)) if owner else None,
        max_lag_partition=None
        if worst is None
        else Link(related=url(request, cluster, "topics", worst.topic, "partitions", str(worst.partition))),
    )


def _lags(
    here: Gateway, group: Group, only: TopicPartition | None = None
) -> dict[TopicPartition, tuple[Snapshot, Lag]]:
    """The current snapshot of each partition, or of `only` one, and the group's lag in it."""
    found = {}
    now_ms = here.clock.now_ms()
    for at in sorted(group.offsets) if only is None else [only]:
        committed = group.committed(at)
        if committed is not None:
            with suppress(UnknownTopic, UnknownPartition):  # it was deleted just now
                snapshot = with_partition(here, *at, lambda partition: partition.snapshot)
                found[at] = snapshot, lag(snapshot, committed.offset, now_ms)
    return found


def _owners(group: Group) -> dict[TopicPartition, GroupMember]:
    return {at: member for member in group.group_members for at in member.owned or ()}


async def _group_view(here: Gateway, request: Request, group: Group) -> GroupView:
    cluster, path = here.cluster.cluster_id, (here.cluster.cluster_id, "consumer-groups", group.id)
    broker = here.leadership.leader_id(*await here.shard_manager.partition_for(group.id))
    return GroupView(
        metadata=resource(request, *path, name=f"kafka={cluster}/consumer-group={group.id}"),
        cluster_id=cluster,
        consumer_group_id=group.id,
        is_simple=group.newest_generation == 0,
        partition_assignor=group.assignor,
        protocol_type=group.protocol_type,
        state=_STATES[group.state],
        coordinator=Link(related=url(request, cluster, "brokers", str(broker))),
        consumers=Link(related=url(request, *path, "consumers")),
        lag_summary=Link(related=url(request, *path, "lag-summary")),
    )


def _consumer_view(request: Request, cluster: str, group: Group, member: GroupMember) -> ConsumerView:
    path = (cluster, "consumer-groups", group.id, "consumers", member.id)
    crn = f"kafka={cluster}/consumer-group={group.id}/consumer={member.id}"
    return ConsumerView(
        metadata=resource(request, *path, name=crn),
        cluster_id=cluster,
        consumer_group_id=group.id,
        consumer_id=member.id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.host,
        assignments=Link(related=url(request, *path, "assignments")),
    )


def _assignment_view(
    request: Request, cluster: str, group: Group, member: GroupMember, at: TopicPartition
) -> AssignmentView:
    where = (at.topic, "partitions", str(at.partition))
    path = (cluster, "consumer-groups", group.id, "consumers", member.id, "assignments", *where)
    crn = f"kafka={cluster}/consumer-group={group.id}/consumer={member.id}/assignment={at}"
    return AssignmentView(
        metadata=resource(request, *path, name=crn),
        cluster_id=cluster,
        consumer_group_id=group.id,
        consumer_id=member.id,
        topic_name=at.topic,
        partition_id=at.partition,
        partition=Link(related=url(request, cluster, "topics", *where)),
        lag=Link(related=url(request, cluster, "consumer-groups", group.id, "lags", *where)),
    )


def _lag_view(
    request: Request,
    group: Group,
    owner: GroupMember | None,
    at: TopicPartition,
    snapshot: Snapshot,
    behind: Lag,
) -> LagView:
    cluster = gateway(request).cluster.cluster_id
    path = (cluster, "consumer-groups", group.id, "lags", at.topic, "partitions", str(at.partition))
    committed = group.committed(at)
    assert committed is not None
    return LagView(
        metadata=resource(request, *path, name=f"kafka={cluster}/consumer-group={group.id}/lag={at}"),
        cluster_id=cluster,
        consumer_group_id=group.id,
        topic_name=at.topic,
        partition_id=at.partition,
        current_offset=committed.offset,
        log_end_offset=snapshot.high_watermark,
        lag=behind.records,
        lag_seconds=behind.seconds,
        lag_bytes=behind.size_bytes,
        consumer_id="" if owner is None else owner.id,
        instance_id=None if owner is None else owner.instance_id,
        client_id="" if owner is None else owner.client_id,
    )
