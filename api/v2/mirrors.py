"""Mirrors: topics that are copied from a Kafka cluster, at the same offsets."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from api import mirror_changes
from api.client_topics import PublicName
from api.errors import error_responses
from api.mirror_changes import GroupLeft, SeenMirror, seen_mirror, seen_mirrors, shown_mirror
from api.requests.access import Asked
from api.requests.child_process import commands
from api.requests.envelope import V2_MEDIA_TYPE, V2Response
from api.requests.route_gateway import Here
from api.requests.rules import MIRROR
from api.requests.strict import Listed, StrictBody, StrictRoute
from log_tables.cluster.admin.mirror_admin import EVERY_GROUP
from log_tables.cluster.admin.mirror_progress import Progress
from log_tables.cluster.admin.mirror_view import MirrorView, state_of
from log_tables.cluster.mirror_report import MirrorReport

router = APIRouter(
    prefix="/mirrors", tags=["mirrors"], default_response_class=V2Response, route_class=StrictRoute
)

SOURCE_LIMIT_S = 60.0
"""How long the command may take that asks a source."""

VERIFY_LIMIT_S = 600.0
"""How long a comparison may take: of more, one of each topic, or of a sample."""

WAIT_MAX_MS = 300_000
WAIT_MS = 30_000

MirrorName = Annotated[str, Path(examples=["shop"])]


class MirrorSummary(BaseModel):
    """A mirror in a list."""

    mirror: str
    source: str | None = Field(description="Brokers of the Kafka; null without DESCRIBE on the cluster.")
    state: str = Field(description="`active` or `paused`.")
    topics: int = Field(description="How many copies there are that the caller may describe.")
    stopped: int = Field(description="How many of them have stopped.")
    processes: int = Field(description="How many processes were seen to copy, at this gateway.")
    lag: int | None = Field(
        description="Records that the copies lack; null where no process says what the source has."
    )
    lag_seconds: float | None = Field(description="For how long the one that lags most has.")
    lag_bytes: int | None = Field(description="About how many bytes they will take here.")


class MirrorPartition(BaseModel):
    topic: str
    partition: int
    log_start: int
    position: int = Field(description="The high watermark: up to where the source is copied.")
    source_start: int | None = Field(description="The source's first offset; null where no process says.")
    source_end: int | None = Field(description="Its last stable offset.")
    lag: int | None
    lag_seconds: float | None
    lag_bytes: int | None
    state: str = Field(description="`active`, `paused` or `stopped`.")
    reason: str = Field(description="Why its topic has stopped.")


class MirrorProcess(BaseModel):
    """A process that was seen to live. `trouble` says why it copies nothing now."""

    process: str
    host: str
    pid: int
    partitions: int
    trouble: str
    offsets_behind: int = Field(description="Committed offsets of groups that are not here yet.")


class MirrorDescription(BaseModel):
    """A mirror, with those of its copies that the caller may describe. Where the source is, what is copied of
    it, and by which processes, is null without DESCRIBE on the cluster.
    """

    mirror: str
    source: str | None
    cluster_id: str | None
    topics: list[str] | None = Field(description="Names, or patterns with `^` before them.")
    groups: list[str] | None = Field(description="The groups whose offsets are copied, likewise.")
    on_gap: str
    state: str
    lag: int | None
    lag_seconds: float | None
    lag_bytes: int | None
    processes: list[MirrorProcess] | None
    partitions: list[MirrorPartition]


class NewMirror(StrictBody):
    """A mirror to create."""

    mirror: str = Field(description="Its name.", examples=["shop"])
    source: str = Field(description="Brokers of the Kafka, with commas.", examples=["kafka1:9092"])
    topics: Listed[PublicName] = Field(
        description="Names of topics, or `^` and patterns of whole names.", examples=[["orders"]]
    )
    groups: Listed[str] = Field(
        default_factory=lambda: [EVERY_GROUP],
        description="Groups whose offsets are copied, named as topics are; by default all.",
    )
    on_gap: str = Field(
        "stop", description="If the source has deleted what was not copied: `stop`, or `record` a gap."
    )


class CopiedTopic(BaseModel):
    topic: str
    partitions: int
    configs: dict[str, str] = Field(description="The settings that the copy gets.")


class CreatedMirror(BaseModel):
    mirror: str
    cluster_id: str = Field(description="The id that the source gives itself.")
    topics: list[CopiedTopic]
    missing: list[str] = Field(description="Names that the source lacks: copied from when they are there.")


class Resumed(BaseModel):
    mirror: str
    resumed: list[str] = Field(description="The topics that had stopped, and go on.")


class Promotion(StrictBody):
    topics: Listed[PublicName] = Field(default_factory=list, description="By default all of the mirror.")
    now: bool = Field(False, description="Do not wait for the source's end, nor ask the source.")
    wait_ms: int = Field(
        WAIT_MS, ge=0, le=WAIT_MAX_MS, description="How long the copies may take to get there."
    )


class LeftOffset(BaseModel):
    group: str
    topic: str = Field(description="Empty where it is about the whole group.")
    partition: int
    source: int | None
    here: int | None
    state: str = Field(description="As `lakelog mirror groups` names it.")
    reason: str


class Promoted(BaseModel):
    mirror: str
    promoted: list[str]
    groups: list[LeftOffset] = Field(
        description="Offsets of groups that are others here than at the source; not known with `now`."
    )


class Comparison(StrictBody):
    topics: Listed[PublicName] = Field(default_factory=list, description="By default all of the mirror.")
    sample: int | None = Field(None, ge=1, description="As --sample of the command; by default everything.")


@router.get("", summary="List mirrors", responses=error_responses(503))
def list_mirrors(here: Here, asked: Asked) -> list[MirrorSummary]:
    """A caller sees the mirrors of which it may describe a topic; all with DESCRIBE on the cluster."""
    here.cluster.refresh()
    return [_summary(each, shown_mirror(here, asked, each)) for each in seen_mirrors(here, asked)]


@router.get("/{mirror}", summary="Describe a mirror", responses=error_responses(404, 503))
def get_mirror(here: Here, asked: Asked, mirror: MirrorName) -> MirrorDescription:
    """How far each partition is: its copy by its table, its source as the mirror's processes report it.

    A process counts once its report was seen to change, and no longer than 12 s after the last change.
    """
    seen = seen_mirror(here, asked, mirror)
    return _description(seen, shown_mirror(here, asked, seen))


@router.post(
    "",
    status_code=201,
    summary="Create a mirror",
    responses=error_responses(400, 422, 503),
)
async def create_mirror(request: Request, here: Here, asked: Asked, new: NewMirror) -> CreatedMirror:
    """Asks the source, from this gateway, and notes the mirror; `lakelog mirror run` copies it.

    A source that needs a credential is noted with the command, where its file is: no request can name a file
    of the gateway's machine.
    """
    words = new.mirror, new.source, new.topics, new.on_gap, new.groups
    with asked.changing("CreateMirror", MIRROR, new.mirror, source=new.source, topics=new.topics):
        made = await run_in_threadpool(mirror_changes.new_mirror, here, *words)
        asking = mirror_changes.asked_source(made)
        output = (await commands(request).run(request, asking, SOURCE_LIMIT_S)).checked()
        found = mirror_changes.found_source(output)
        await run_in_threadpool(mirror_changes.create, here, made, found)
    topics = [CopiedTopic(topic=t.topic, partitions=t.partitions, configs=t.configs) for t in found.topics]
    return CreatedMirror(
        mirror=new.mirror, cluster_id=found.cluster_id, topics=topics, missing=[*found.missing]
    )


@router.post(
    "/{mirror}/pause", status_code=204, summary="Pause a mirror", responses=error_responses(404, 503)
)
def pause_mirror(here: Here, mirror: MirrorName) -> None:
    """It copies nothing until it is resumed."""
    mirror_changes.pause(here, mirror)


@router.post("/{mirror}/resume", summary="Resume a mirror", responses=error_responses(404, 503))
def resume_mirror(here: Here, asked: Asked, mirror: MirrorName) -> Resumed:
    """It goes on, also with topics that have stopped: if the cause is still there, they stop again."""
    again = mirror_changes.resume(here, mirror)
    asked.note_change("ResumeMirror", MIRROR, mirror, topics=again)
    return Resumed(mirror=mirror, resumed=again)


@router.post(
    "/{mirror}/promote", summary="Promote topics of a mirror", responses=error_responses(400, 404, 422, 503)
)
async def promote_mirror(
    request: Request, here: Here, asked: Asked, mirror: MirrorName, body: Promotion
) -> Promoted:
    """Makes its topics, or some, topics of this root: written here from now on, copied no more.

    Stop the producers of the source first. It is waited for, up to `wait_ms`, until the copies have the ends
    that the source has now, and offsets of groups are brought over; 503 if they are not there in time, and
    nothing is promoted. With `now` the source is not asked.
    """
    left: Sequence[GroupLeft] = ()
    with asked.changing("PromoteMirror", MIRROR, mirror, topics=body.topics, now=body.now):
        if not body.now:
            await run_in_threadpool(mirror_changes.check_copies, here, mirror, body.topics, unstopped=True)
            wait_s = body.wait_ms / 1_000
            words = mirror_changes.preparation(mirror, body.topics, wait_s)
            done = await commands(request).run(request, words, SOURCE_LIMIT_S + 2 * wait_s)
            left = mirror_changes.groups_left(done.checked())
        promoted = await run_in_threadpool(mirror_changes.promote, here, mirror, body.topics)
    others = [LeftOffset(**msgspec.structs.asdict(each)) for each in left]
    return Promoted(mirror=mirror, promoted=promoted, groups=others)


@router.post(
    "/{mirror}/verify",
    summary="Compare a mirror with its source",
    response_model=dict[str, Any],
    responses=error_responses(400, 404, 422, 503),
)
async def verify_mirror(request: Request, here: Here, mirror: MirrorName, body: Comparison) -> Response:
    """The answer is what `lakelog mirror verify --json` prints, also if the sides differ."""
    await run_in_threadpool(mirror_changes.check_copies, here, mirror, body.topics)
    words = mirror_changes.compared(mirror, body.topics, body.sample)
    result = await commands(request).run(request, words, VERIFY_LIMIT_S)
    return Response(result.checked(), media_type=V2_MEDIA_TYPE)


@router.delete(
    "/{mirror}", status_code=204, summary="Delete a mirror", responses=error_responses(400, 404, 503)
)
def delete_mirror(here: Here, mirror: MirrorName) -> None:
    """One without topics: promote them first."""
    mirror_changes.delete(here, mirror)


def _summary(seen: SeenMirror, view: MirrorView) -> MirrorSummary:
    return MirrorSummary(
        mirror=seen.record.name,
        source=seen.record.source if seen.whole else None,
        state=state_of("", seen.record.paused),
        topics=len(view.copies),
        stopped=len(view.stopped),
        processes=len(view.processes),
        **_lag(view),
    )


def _lag(view: MirrorView) -> dict[str, Any]:
    records, seconds, size_bytes = view.lag or (None, None, None)
    return {"lag": records, "lag_seconds": seconds, "lag_bytes": size_bytes}


def _description(seen: SeenMirror, view: MirrorView) -> MirrorDescription:
    record = seen.record
    return MirrorDescription(
        mirror=record.name,
        source=record.source if seen.whole else None,
        cluster_id=record.cluster_id if seen.whole else None,
        topics=[*record.topics] if seen.whole else None,
        groups=[*record.groups] if seen.whole else None,
        on_gap="record" if record.records_gaps else "stop",
        state=state_of("", record.paused),
        processes=[_process(each) for each in view.processes] if seen.whole else None,
        partitions=[_partition(each, record.paused) for each in view.partitions],
        **_lag(view),
    )


def _partition(each: Progress, paused: bool) -> MirrorPartition:
    start, end = (None, None) if each.source is None else each.source[:2]
    return MirrorPartition(
        topic=each.topic,
        partition=each.partition,
        log_start=each.log_start,
        position=each.position,
        source_start=start,
        source_end=end,
        lag=each.lag,
        lag_seconds=each.lag_seconds,
        lag_bytes=each.lag_bytes,
        state=state_of(each.stopped, paused),
        reason=each.stopped,
    )


def _process(report: MirrorReport) -> MirrorProcess:
    return MirrorProcess(
        process=report.process,
        host=report.host,
        pid=report.pid,
        partitions=sum(map(len, report.topics.values())),
        trouble=report.trouble,
        offsets_behind=report.offsets_behind,
    )
