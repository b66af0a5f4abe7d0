"""Committed offsets and positions of a consumer instance, and the committed offsets of a group."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, TypeVar

from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool

from api.client_topics import with_partition
from api.errors import error_responses
from api.gateway import Gateway
from api.requests.access import Asked, check_each, check_reads
from api.requests.envelope import V2Response
from api.requests.group_route import GroupRoute
from api.requests.route_gateway import Here
from api.scalars import microseconds
from api.v2.consumer_schema import (
    ActView,
    CommitBody,
    CommittedOffset,
    CommittedOffsets,
    GroupName,
    GroupOffset,
    InstanceName,
    MemberCommitBody,
    OffsetLeft,
    Partitions,
    ProcessedOffset,
    SeekBody,
    UndoneOffset,
    UndoView,
)
from api.wire.long_lists import free
from api.wire.offload import INLINE_MAX_ROWS, maybe_in_thread
from coordinator.access.caller import Caller
from coordinator.groups.events import Heartbeat, OffsetAndMetadata
from coordinator.groups.state.group import Group
from coordinator.groups.state.undo import UndoPlan
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.group_log import Act
from log_tables.errors import InvalidArgument
from log_tables.limits import OFFSETS_AT_ONCE
from log_tables.partition.reader import PartitionReader
from log_tables.topic_partition import TopicPartition

router = APIRouter(
    prefix="/consumers/{group}",
    tags=["v2 consumers"],
    default_response_class=V2Response,
    route_class=GroupRoute,
)

_Sent = TypeVar("_Sent", bound=ProcessedOffset)
_INSTANCE = "/instances/{instance}"
Force = Annotated[bool, Query(description="Act even if the group has members.")]
Keep = Annotated[bool, Query(description="Keep the offsets before for an undo.")]
Acts = Annotated[int, Query(ge=1, description="How many acts to undo, the newest first.")]
Newest = Annotated[
    int, Query(ge=0, description="The at_ms of the newest act: 409 if there is another by now. 0: any.")
]
Mirror = Annotated[str, Query(description="The mirror that sets them, of whose topics they are.")]


@router.post(f"{_INSTANCE}/offsets", summary="Commit offsets", responses=error_responses(404, 409, 422, 503))
async def commit(
    here: Here,
    asked: Asked,
    group: GroupName,
    instance: InstanceName,
    wanted: MemberCommitBody | None = None,
    at_once: Annotated[
        str, Query(alias="async", description="Accepted and without effect, for clients of the REST Proxy.")
    ] = "false",
) -> list[None]:
    """Each `offset` is that of the last record that was *processed*. The group continues after it.

    Without a body, or without `offsets`, the commit covers all records that the instance has received. The
    answer is an empty list, sent when the commit is durable.
    """
    named = None if wanted is None else wanted.offsets
    offsets = None if named is None else await _to_commit(named, step=1)
    await check_reads(here, asked, offsets or ())
    await here.coordinator.commit(group, instance, offsets)
    return []


@router.get(f"{_INSTANCE}/offsets", summary="Get committed offsets", responses=error_responses(404, 422, 503))
async def get_committed(
    here: Here, asked: Asked, group: GroupName, instance: InstanceName, wanted: Partitions
) -> CommittedOffsets:
    """The offsets from which the group continues in the partitions of the body. Partitions without a commit
    are left out.
    """
    named = {at.topic for at in wanted.topic_partitions}
    await check_each(here, asked, Operation.DESCRIBE, ResourceType.TOPIC, sorted(named))
    found = await here.coordinator.apply_event(group, Heartbeat(instance))
    for at in wanted.topic_partitions:
        found.check(at)
    return _committed(found, wanted.topic_partitions)


@router.post(
    f"{_INSTANCE}/positions",
    status_code=204,
    summary="Set positions",
    responses=error_responses(400, 404, 409, 422, 503),
)
async def seek(here: Here, asked: Asked, group: GroupName, instance: InstanceName, wanted: SeekBody) -> None:
    """The next poll continues at these offsets, or at the first record at or after these times. If there is
    no such record, it continues at the end of the partition.
    """

    def places() -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        times = {each.topic_partition: microseconds(str(each.timestamp)) for each in wanted.timestamps}
        return {each.topic_partition: each.offset for each in wanted.offsets}, times

    count = len(wanted.offsets) + len(wanted.timestamps)
    positions, times = await maybe_in_thread(count > INLINE_MAX_ROWS, places)
    await check_reads(here, asked, [*positions, *times])
    found = await here.coordinator.apply_event(group, Heartbeat(instance))
    found.check_owned(found.member(instance), [*positions, *times])
    positions |= await run_in_threadpool(_at_times, here, times)
    await here.coordinator.seek(group, instance, positions)


@router.post(
    f"{_INSTANCE}/positions/beginning",
    status_code=204,
    summary="Seek to the beginning",
    responses=error_responses(404, 409, 422, 503),
)
async def seek_to_beginning(
    here: Here, asked: Asked, group: GroupName, instance: InstanceName, wanted: Partitions
) -> None:
    """The next poll continues at the log start offset of these partitions."""
    await check_reads(here, asked, wanted.topic_partitions)
    await _seek_to(here, group, instance, wanted.topic_partitions, end=False)


@router.post(
    f"{_INSTANCE}/positions/end",
    status_code=204,
    summary="Seek to the end",
    responses=error_responses(404, 409, 422, 503),
)
async def seek_to_end(
    here: Here, asked: Asked, group: GroupName, instance: InstanceName, wanted: Partitions
) -> None:
    """The next poll continues at the high watermark of these partitions."""
    await check_reads(here, asked, wanted.topic_partitions)
    await _seek_to(here, group, instance, wanted.topic_partitions, end=True)


@router.get("/offsets", summary="Get a group's offsets", responses=error_responses(404, 503))
async def get_group_offsets(here: Here, asked: Asked, group: GroupName) -> CommittedOffsets:
    """All offsets that the group has committed in topics that the caller may describe, for clients without a
    consumer instance.
    """
    found = await here.shard_manager.group(group)
    return _committed(found, sorted(at for at in found.offsets if asked.describes(at.topic)))


@router.put(
    "/offsets",
    status_code=204,
    summary="Set a group's offsets",
    responses=error_responses(400, 404, 409, 416, 422, 503),
)
async def put_group_offsets(
    here: Here,
    asked: Asked,
    group: GroupName,
    wanted: CommitBody,
    force: Force = False,
    mirror: Mirror = "",
    keep: Keep = False,
) -> None:
    """For clients that keep their own positions. Each `offset` is that of the *next* record to read, as `GET`
    answers it.

    409 while members share topics, unless `force` is true: then the members continue from there. The offsets
    before are kept for an undo if `keep` is true, and whenever an offset goes back or the group had members.

    A `mirror` brings offsets from its source: 409 for a topic that is no copy of it, or in which the group
    has committed an offset here, or where its offset is not `before`.
    """
    before = _seen(wanted.offsets, force) if mirror else {}
    offsets = await _to_commit(wanted.offsets, step=0)
    await check_reads(here, asked, offsets)
    await here.coordinator.reset(group, offsets, force, asked.identified, mirror, before, keep)


@router.delete("", status_code=204, summary="Delete a group", responses=error_responses(404, 409, 503))
async def delete_group(here: Here, asked: Asked, group: GroupName, force: Force = False) -> None:
    """Deletes the group and its offsets, which an undo brings back. 409 while it has members, unless `force`
    is true: then they are deleted as well.
    """
    await here.coordinator.delete(group, force, asked.identified)


@router.get("/undo", summary="Show what an undo would change", responses=error_responses(400, 404, 503))
async def get_undo(here: Here, asked: Asked, group: GroupName, acts: Acts = 1) -> UndoView:
    """The acts of operators on the group's offsets that can be undone, and the offsets that would change, in
    topics that the caller may describe. The group may be deleted.
    """
    known = await here.coordinator.acts(group)
    plan = await here.coordinator.undo_plan(group, acts) if known else UndoPlan(())
    found = await here.coordinator.kept_group(group)
    return _undone(found, known, plan, asked)


@router.post("/undo", summary="Undo a deletion or a reset", responses=error_responses(400, 404, 409, 503))
async def undo(here: Here, asked: Asked, group: GroupName, acts: Acts = 1, newest: Newest = 0) -> UndoView:
    """Gives the group the offsets that it had before its newest `acts` deletions and resets, all at once. 409
    while it has members. An undo is such an act itself: with `newest`, a repeat does not undo it.
    """

    def check(plan: UndoPlan) -> None:
        for topic in {at.topic for at in plan.changed}:
            asked.check(Operation.READ, ResourceType.TOPIC, topic)

    before, plan = await here.coordinator.undo(group, acts, asked.identified, check, newest)
    return _undone(before, plan.acts, plan, asked)


def _undone(group: Group, acts: Sequence[Act], plan: UndoPlan, asked: Caller) -> UndoView:
    """The view of a plan for the group as it is without it."""
    old = {at: group.committed(at) for at in plan.changed}
    return UndoView(
        group=group.id,
        acts=[
            ActView(done=act.done, at_ms=act.at_ms, principal=act.principal, offsets=len(act.offsets))
            for act in acts
        ],
        offsets=[
            UndoneOffset(
                topic=at.topic,
                partition=at.partition,
                old=None if value is None else value.offset,
                new=plan.set[at].offset if at in plan.set else None,
            )
            for at, value in old.items()
            if asked.describes(at.topic)
        ],
        left=[
            OffsetLeft(topic=at.topic, partition=at.partition, reason=reason)
            for at, reason in plan.left.items()
            if asked.describes(at.topic)
        ],
    )


def _seen(offsets: list[GroupOffset], force: bool) -> dict[TopicPartition, int]:
    """The offsets that a mirror has seen. Raises InvalidArgument."""
    if force or len(offsets) > OFFSETS_AT_ONCE:
        raise InvalidArgument(
            f"a mirror sets {len(offsets)} offsets with force={force}; send at most {OFFSETS_AT_ONCE} in a "
            "request, which are set together, and without force"
        )
    return {each.topic_partition: each.before for each in offsets if each.before is not None}


async def _to_commit(offsets: list[_Sent], step: int) -> dict[TopicPartition, OffsetAndMetadata]:
    def made() -> dict[TopicPartition, OffsetAndMetadata]:
        found = ProcessedOffset.to_commit(offsets, step)
        free(offsets)  # else the event loop does, when the handler ends
        return found

    return await maybe_in_thread(len(offsets) > INLINE_MAX_ROWS, made)


def _committed(group: Group, partitions: list[TopicPartition]) -> CommittedOffsets:
    found = ((at, group.committed(at)) for at in partitions)
    return CommittedOffsets(
        offsets=[
            CommittedOffset(topic=at.topic, partition=at.partition, offset=c.offset, metadata=c.metadata)
            for at, c in found
            if c is not None
        ]
    )


async def _seek_to(
    here: Gateway, group: str, instance: str, partitions: list[TopicPartition], *, end: bool
) -> None:
    found = await here.coordinator.apply_event(group, Heartbeat(instance))
    found.check_owned(found.member(instance), partitions)

    def positions() -> dict[TopicPartition, int]:
        def position(partition: PartitionReader) -> int:
            return partition.high_watermark if end else partition.log_start

        return {at: with_partition(here, *at, position) for at in partitions}

    await here.coordinator.seek(group, instance, await run_in_threadpool(positions))


def _at_times(here: Gateway, times: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    def position(partition: PartitionReader, time_us: int) -> int:
        found = partition.position(time_us)
        return partition.high_watermark if found is None else found

    return {
        at: with_partition(here, *at, partial(position, time_us=time_us)) for at, time_us in times.items()
    }
