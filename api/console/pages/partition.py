"""The pages of a partition: its segments, its commits, one record's way into a file, and what fsck finds."""

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Depends, Query
from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from api.client_topics import describe_topic, listed_topic, with_partition
from api.console import segment_layout
from api.console.cluster_index import ClusterState
from api.console.command_results import MaintenancePlan, PlannedStep, fsck_report, maintenance_plan
from api.console.page import ItemPage, paged, render
from api.console.page_route import PageRoute
from api.console.segment_layout import KINDS, NotedOffset, PlannedRange
from api.console.state import console
from api.console.table_commits import FoundCommit, commit_layout, commit_of, commit_page
from api.gateway import Gateway
from api.requests.access import Asked
from api.requests.child_process import commands
from api.requests.route_gateway import Here
from coordinator.access.caller import Caller
from log_tables.cluster.acl import CLUSTER_NAME, Operation, ResourceType
from log_tables.cluster.admin.audit_writes import WrittenRange, writer_of
from log_tables.cluster.group_log import SPARK_METADATA
from log_tables.cluster.merge_plan import merge_debt
from log_tables.errors import LakelogError, UnknownPartition
from log_tables.partition.partition import Partition
from log_tables.segments.segment import RowGroup
from log_tables.table.snapshot import Segment, Snapshot
from log_tables.topic_partition import TopicPartition

router = APIRouter(
    prefix="/console/topics/{topic}/partitions/{partition}", include_in_schema=False, route_class=PageRoute
)

PLAN_LIMIT_S = 60.0
FSCK_LIMIT_S = 300.0
GROUPS_DRAWN = 6
GROUPS_LISTED = 200
ROW_GROUPS_LISTED = 200
EVENTS_SCANNED = 20_000
"""The newest events of the audit log that are looked through for who wrote a record."""


class GroupPosition(NamedTuple):
    """The place of a group: the offset that it reads next, and who has committed that."""

    name: str
    offset: int
    lag: int
    committed_ms: int
    by: str


class PartitionQuery(NamedTuple):
    """The selection of an address: a range of offsets, a segment by its first offset, a record by its offset;
    and the page of the list.
    """

    first: int | None
    last: int | None
    segment: int | None
    offset: int | None
    page: int


class RecordLocation(NamedTuple):
    """Where one record is: its commit, if the log still has that, and why it is nowhere if `said`. `writer`
    is who wrote it, if the newest events of the audit log say it, and the reader may see them.
    """

    offset: int
    commit: FoundCommit | None
    said: str = ""
    writer: WrittenRange | None = None


class SegmentDescription(NamedTuple):
    """A segment and what its footer says; `failed` says why that cannot be read."""

    segment: Segment
    kind: str
    row_groups: Sequence[RowGroup]
    failed: str
    row_group: int | None


class _Found(NamedTuple):
    """The state of a partition that a page shows, all of one moment. Merges would remove `unmerged` segments
    now.
    """

    here: Snapshot
    whole: Snapshot
    away: str
    leader: int
    selected: SegmentDescription | None
    record: RecordLocation | None
    unmerged: int


def _place(
    first: Annotated[int | None, Query(alias="from", ge=0)] = None,
    last: Annotated[int | None, Query(alias="to", ge=0)] = None,
    segment: Annotated[int | None, Query(ge=0)] = None,
    offset: Annotated[int | None, Query(ge=0)] = None,
    page: Annotated[int, Query(ge=1)] = 1,
) -> PartitionQuery:
    return PartitionQuery(first, last, segment, offset, page)


@router.get("")
async def partition(
    request: Request,
    here: Here,
    asked: Asked,
    topic: str,
    partition: int,
    place: Annotated[PartitionQuery, Depends(_place)],
    plan: Annotated[int, Query(ge=0, le=1)] = 0,
) -> Response:
    """The segments, drawn. With `offset` where that record is, with `plan` what maintenance would do."""
    look = await console(request).index.look()
    found = await run_in_threadpool(_find, here, topic, partition, place, _sees_cluster(asked))
    due = await _plan(request, asked, topic) if plan else None

    def made() -> Response:
        groups = _groups(look, asked, TopicPartition(topic, partition), found.whole)
        steps = () if due is None else [step for step in due.steps if step.partition == partition]
        values = {
            "topic": topic,
            "partition": partition,
            "groups": groups[:GROUPS_LISTED],
            "groups_left": max(0, len(groups) - GROUPS_LISTED),
            "plan": due,
            "steps": steps,
            "sees_cluster": _sees_cluster(asked),
            "events_scanned": EVENTS_SCANNED,
            "unmerged": found.unmerged,
            "gather": here.settings.unmerged_segments_gather,
            "most_unmerged": here.settings.unmerged_segments_max,
            **_drawn(found, place, [*_points(found.whole, groups, place)], steps, here.clock.now_ms()),
        }
        return render(request, "partition.html", values, asked)

    return await run_in_threadpool(made)  # it may draw thousands of segments


@router.get("/commits")
async def commits(
    request: Request,
    here: Here,
    asked: Asked,
    topic: str,
    partition: int,
    before: Annotated[int | None, Query(ge=0)] = None,
) -> Response:
    """The commits of its table, newest first, from version `before` on."""

    def made() -> Response:
        found, newest = with_partition(
            here, topic, partition, lambda log: (commit_page(log, before), log.snapshot.version)
        )
        values = {
            "topic": topic,
            "partition": partition,
            "found": found,
            "table_version": newest,
            "drawing": commit_layout(found.commits),
            "with_urls": _sees_cluster(asked),
            "oldest": found.commits[-1].version if found.commits else None,
        }
        return render(request, "partition_commits.html", values, asked)

    return await run_in_threadpool(made)


@router.get("/fsck")
async def fsck(request: Request, here: Here, asked: Asked, topic: str, partition: int) -> Response:
    """The findings of `lakelog fsck` in its table."""
    await run_in_threadpool(_check_exists, here, topic, partition)
    words = ["fsck", "--json", f"--topic={topic}", f"--partition={partition}"]
    result = await commands(request).run(request, words, FSCK_LIMIT_S)
    report, failed = fsck_report(result)
    values = {
        "topic": topic,
        "partition": partition,
        "report": report,
        "failed": failed,
        "seconds": result.seconds,
        "command": " ".join(("lakelog", *words)),
    }
    return render(request, "fsck.html", values, asked)


def _check_exists(here: Gateway, topic: str, number: int) -> None:
    """Look at no table: that is asked of fsck. Raises UnknownTopic, InvalidTopicName, UnknownPartition."""
    count = listed_topic(here, topic).partition_count
    if not 0 <= number < count:
        raise UnknownPartition(f"topic {topic} has no partition {number}; it has 0 to {count - 1}")


async def _plan(request: Request, asked: Caller, topic: str) -> MaintenancePlan:
    asked.check(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    words = ["maintain", "--dry-run", "--json", f"--topic={topic}"]
    return maintenance_plan(await commands(request).run(request, words, PLAN_LIMIT_S))


def _sees_cluster(asked: Caller) -> bool:
    return asked.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)


def _find(here: Gateway, topic: str, number: int, place: PartitionQuery, sees_audit: bool) -> _Found:
    """Blocking. Raises UnknownTopic, UnknownPartition, StoreUnavailable."""

    def read(log: Partition) -> _Found:
        snapshot = log.snapshot
        whole, away = _joined(log, snapshot)
        selected = _selected(here, log, whole, place)
        record = None if place.offset is None else _record(log, whole, place.offset)
        described = describe_topic(here, topic)
        if record is not None and not record.said and sees_audit:
            at = topic, described.topic_id, number, record.offset
            record = record._replace(writer=writer_of(here.cluster, *at, most=EVENTS_SCANNED))
        unmerged = merge_debt(snapshot, described.config, here.clock.now_ms())
        return _Found(snapshot, whole, away, described.leader(number), selected, record, unmerged)

    return with_partition(here, topic, number, read)


def _joined(log: Partition, snapshot: Snapshot) -> tuple[Snapshot, str]:
    """The log with its part in the remote root, or without it and the reason."""
    try:
        return log.log_from(snapshot.log_start), ""
    except LakelogError as error:
        return snapshot, error.message


def _selected(
    here: Gateway, log: Partition, whole: Snapshot, place: PartitionQuery
) -> SegmentDescription | None:
    """The segment that the address names, or that has the record of the address."""
    wanted = place.segment if place.offset is None else place.offset
    if wanted is None:
        return None
    index = whole.first_segment(wanted)
    if index == len(whole.segments) or whole.segments[index].base_offset > wanted:
        return None
    segment = whole.segments[index]
    kind = segment_layout.kinds_of(whole, here.clock.now_ms())[segment.base_offset]
    try:
        groups, failed = log.row_groups(segment), ""
    except LakelogError as error:
        groups, failed = [], error.message
    holds = (at for at, each in enumerate(groups) if each.first_offset <= wanted <= each.last_offset)
    return SegmentDescription(
        segment, kind, groups, failed, None if place.offset is None else next(holds, None)
    )


def _record(log: Partition, whole: Snapshot, offset: int) -> RecordLocation:
    if offset >= whole.high_watermark:
        said = f"there is no record at offset {offset:,} yet; the next record gets {whole.high_watermark:,}"
        return RecordLocation(offset, None, said)
    if offset < whole.log_start:
        said = f"the record at offset {offset:,} is deleted; the log begins at {whole.log_start:,}"
        return RecordLocation(offset, None, said)
    return RecordLocation(offset, commit_of(log, offset))


def _drawn(
    found: _Found,
    place: PartitionQuery,
    points: Sequence[NotedOffset],
    steps: Sequence[PlannedStep],
    now_ms: int,
) -> dict[str, object]:
    """The values of the template that are of segments."""
    whole = found.whole
    segments = _in_range(whole, place)
    kinds = segment_layout.kinds_of(whole, now_ms)
    selected = None if found.selected is None else found.selected.segment.base_offset
    rows: ItemPage[Segment] = paged(segments, place.page)
    return {
        "found": found,
        "place": place,
        "segments": segments,
        "rows": rows,
        "drawing": segment_layout.layout(segments, kinds, points, _spans(steps), selected),
        "kinds": kinds,
        "kind_names": KINDS,
        "seen_kinds": _seen(segments, kinds),
        "zoomed": len(segments) < len(whole.segments),
        "records": _records(whole),
        "size_bytes": sum(item.size for item in whole.segments),
        "row_groups_listed": ROW_GROUPS_LISTED,
    }


def _records(whole: Snapshot) -> int:
    """The records that may be read. A first segment with gaps may have some less below the log start."""
    below = 0 if not whole.segments else whole.log_start - whole.segments[0].base_offset
    return max(0, sum(item.records for item in whole.segments) - max(0, below))


def _in_range(whole: Snapshot, place: PartitionQuery) -> Sequence[Segment]:
    if place.first is None and place.last is None:
        return whole.segments
    last = whole.high_watermark if place.last is None else place.last + 1
    return whole.between(place.first or 0, last)


def _seen(segments: Sequence[Segment], kinds: Mapping[int, str]) -> list[str]:
    """The kinds that the drawing has, in the order of the legend."""
    seen = {kinds[item.base_offset] for item in segments}
    return [kind for kind in KINDS if kind in seen]


def _groups(
    look: ClusterState, asked: Caller, at: TopicPartition, whole: Snapshot
) -> Sequence[GroupPosition]:
    """The groups that have committed an offset here and that the reader may see, furthest behind first."""
    found = []
    for name, group in look.groups.items():
        committed = group.committed(at)
        if committed is None or not asked.allows(Operation.DESCRIBE, ResourceType.GROUP, name):
            continue
        lag = max(0, whole.high_watermark - max(committed.offset, whole.log_start))
        by = committed.member or ("a Spark query" if committed.metadata == SPARK_METADATA else "a tool")
        found.append(GroupPosition(name, committed.offset, lag, committed.committed_ms, by))
    return sorted(found, key=lambda group: (-group.lag, group.name))


def _points(whole: Snapshot, groups: Sequence[GroupPosition], place: PartitionQuery) -> list[NotedOffset]:
    points = [
        NotedOffset(whole.log_start, f"log start {whole.log_start:,}"),
        NotedOffset(whole.high_watermark, f"high watermark {whole.high_watermark:,}"),
    ]
    if whole.tiered > whole.log_start:
        points.append(NotedOffset(whole.tiered, f"remote below {whole.tiered:,}", "tiered"))
    if whole.cleaned > whole.log_start:
        points.append(NotedOffset(whole.cleaned, f"compacted below {whole.cleaned:,}", "compacted"))
    points += [
        NotedOffset(group.offset, f"{_cut(group.name)} {group.offset:,}", "group")
        for group in groups[:GROUPS_DRAWN]
    ]
    if place.offset is not None:
        points.append(NotedOffset(place.offset, f"record {place.offset:,}", "record"))
    return points


def _cut(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:23]}…"


def _spans(steps: Sequence[PlannedStep]) -> Sequence[PlannedRange]:
    return [
        PlannedRange(*step.offsets, f"{step.job}: {step.what}", step.job) for step in steps if step.offsets
    ]
