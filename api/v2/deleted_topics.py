"""Deleted topics while they can be brought back: listed, undeleted, purged; and deleted records."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field

from api import topic_changes
from api.client_topics import describe_topic, held_by
from api.errors import error_responses
from api.requests.access import Asked
from api.requests.envelope import V2Response
from api.requests.route_gateway import Here
from api.requests.strict import StrictBody, StrictRoute
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.admin.undelete import Deletion
from log_tables.cluster.topic import check_writable

router = APIRouter(tags=["undo"], default_response_class=V2Response, route_class=StrictRoute)

TopicName = Annotated[str, Path(examples=["flights"])]
TopicId = Annotated[
    str | None, Query(alias="id", description="Its id, where several topics of the name were deleted.")
]


class DeletedTopic(BaseModel):
    """A deleted topic that can be brought back."""

    topic: str
    id: str
    partitions: int
    records: int = Field(description="How many it had here when it was deleted.")
    bytes: int = Field(description="How many its files take until then.")
    deleted_ms: int = Field(description="When it was deleted, milliseconds since 1970.")
    until_ms: int = Field(description="Until when it can be brought back; its files go after that.")


class Doomed(BaseModel):
    """A topic whose deletion is looked at before it is done, with all that it would take."""

    topic: str
    id: str
    partitions: int
    records: int
    bytes: int
    groups: list[str] = Field(description="Groups with offsets in it, as far as the caller may see them.")
    kept_ms: int = Field(description="For how long it could be brought back; 0: not at all.")


class Undelete(StrictBody):
    """Which deleted topic comes back, and under which name."""

    id: str | None = Field(None, description="Its id; the newest of its name without one.")
    topic_name: str | None = Field(None, description="Its name from then on, if another one.")


class Undeleted(BaseModel):
    topic: str
    id: str
    partitions: int


@router.get("/deleted-topics", summary="List deleted topics", responses=error_responses(503))
def list_deleted(here: Here, asked: Asked) -> list[DeletedTopic]:
    """By name, as far as they can be brought back and the caller may describe them."""
    return [_deleted(each) for each in topic_changes.deletions(here, asked)]


@router.post(
    "/deleted-topics/{topic}/undelete",
    summary="Bring a deleted topic back",
    responses=error_responses(400, 404, 409, 422, 429, 503),
)
def undelete(here: Here, asked: Asked, topic: TopicName, which: Undelete) -> Undeleted:
    """With its records, settings, id, and the offsets of groups. 400 with 40002 if a topic has the name."""
    found = topic_changes.undelete_topic(here, asked, topic, which.id, which.topic_name)
    return Undeleted(topic=found.name, id=found.topic_id, partitions=found.partition_count)


@router.delete(
    "/deleted-topics/{topic}",
    summary="Free the space of a deleted topic at once",
    responses=error_responses(404, 429, 503),
)
def purge(here: Here, asked: Asked, topic: TopicName, topic_id: TopicId = None) -> DeletedTopic:
    """It cannot be brought back any more. Answers what it was."""
    return _deleted(topic_changes.purge_topic(here, asked, topic, topic_id))


@router.get(
    "/topics/{topic}/deletion",
    summary="What the deletion of a topic would take",
    responses=error_responses(404, 409, 503),
)
async def plan_deletion(here: Here, asked: Asked, topic: TopicName) -> Doomed:
    """Nothing is changed."""
    check_writable(topic)
    found = await run_in_threadpool(describe_topic, here, topic)
    found.check_own()
    records, size = await run_in_threadpool(held_by, here, topic)
    groups = [
        group.id
        async for group in here.loop_share.each(await here.shard_manager.groups())
        if asked.allows(Operation.DESCRIBE, ResourceType.GROUP, group.id)
        and any(at.topic == topic and group.committed(at) for at in group.offsets)
    ]
    return Doomed(
        topic=topic,
        id=found.topic_id,
        partitions=found.partition_count,
        records=records,
        bytes=size,
        groups=groups,
        kept_ms=found.config.deleted_kept_ms,
    )


class Restore(StrictBody):
    """The state to which the log starts of a topic go back: of a version of a table, or of a time."""

    version: int | None = Field(None, description="A version of the table; only with `partition`.", ge=0)
    time: str | None = Field(None, description="Milliseconds since 1970 UTC, or ISO 8601.")
    partition: int | None = Field(None, description="Only this partition.", ge=0)
    dry_run: bool = Field(False, description="Only say what would come back.")


class Restored(BaseModel):
    partition: int
    log_start_before: int
    log_start: int
    records: int = Field(description="How many come back.")
    bytes: int
    oldest_version: int = Field(description="How far back the log reaches.")
    oldest_ms: int = Field(description="When that was, milliseconds since 1970.")


@router.post(
    "/topics/{topic}/restore",
    summary="Bring back records that were deleted",
    responses=error_responses(400, 404, 409, 422, 503),
)
def restore(here: Here, asked: Asked, topic: TopicName, state: Restore) -> list[Restored]:
    """By DeleteRecords or retention. 409 where a file is gone, or retention would delete them again."""
    is_before = topic_changes.state_wanted(state.version, state.time, state.partition)
    found = topic_changes.restore_topic(here, asked, topic, is_before, state.partition, state.dry_run)
    return [
        Restored(
            partition=each.partition,
            log_start_before=each.log_start,
            log_start=min(each.log_start, each.past.log_start),
            records=each.past.records,
            bytes=each.past.bytes,
            oldest_version=each.past.reach[0],
            oldest_ms=each.past.reach[1],
        )
        for each in found
    ]


def _deleted(found: Deletion) -> DeletedTopic:
    return DeletedTopic(
        topic=found.name,
        id=found.topic_id,
        partitions=found.partitions,
        records=found.records,
        bytes=found.bytes,
        deleted_ms=found.deleted_ms,
        until_ms=found.until_ms,
    )
