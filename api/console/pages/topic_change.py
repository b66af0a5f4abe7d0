"""Changes of topics, shown before they are made: a new one, other settings, more partitions, deletions."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from api.console.cluster_index import behind_of
from api.console.page import NEW_TOPIC, duration, number, render, size
from api.console.page_route import PageRoute
from api.console.pages.change import Change, ChangedValue, changed_values, planned
from api.console.pages.topic import TopicHead, head_of, lacking, topic_path
from api.console.state import console
from api.gateway import Gateway
from api.requests.access import Asked
from api.requests.route_gateway import gateway
from api.scalars import decimal
from api.topic_changes import plan_creation, plan_growth, restore_topic, state_wanted
from coordinator.access.caller import Caller
from log_tables.cluster.acl import CLUSTER_NAME, Operation, ResourceType
from log_tables.cluster.admin.restore_admin import Restoration
from log_tables.cluster.admin.topic_admin import check_alteration
from log_tables.cluster.config import TopicConfig
from log_tables.cluster.topic_settings import SETTINGS
from log_tables.errors import InvalidArgument, LakelogError, OffsetOutOfRange, UnknownPartition
from log_tables.limits import PARTITIONS_MAX
from log_tables.units import plain

router = APIRouter(prefix="/console/topics/{topic}", include_in_schema=False, route_class=PageRoute)

GROUPS_NAMED = 10
PARTITIONS_NAMED = 10

new_topics = APIRouter(prefix=NEW_TOPIC, include_in_schema=False, route_class=PageRoute)


@router.get("/alter")
async def alter(
    request: Request,
    asked: Asked,
    topic: str,
    name: Annotated[str, Query()],
    value: Annotated[str, Query()] = "",
    reset: Annotated[bool, Query()] = False,
) -> Response:
    """The dry run of another value of a setting, or of its default."""
    here, head = gateway(request), await head_of(request, asked, topic)
    configs = {name: None if reset else plain(name, value)}
    refused = lacking(asked, Operation.ALTER_CONFIGS, topic)
    facts: Sequence[ChangedValue] = ()
    try:
        then = await run_in_threadpool(check_alteration, here.cluster, topic, configs)
        facts = _altered(head.description.config, then)
    except LakelogError as error:
        refused = refused or error.message
    entry = {"name": name, "operation": "DELETE"} if reset else {"name": name, "value": value}
    change = Change(
        title=f"Alter {name[:100]} of {topic}",
        method="POST",
        url=f"{_v3(here, topic)}/configs:alter",
        body={"data": [entry]},
        facts=facts,
        following=f"{head.path}/settings",
        back=f"{head.path}/settings",
        button="Alter the setting",
        refused=refused,
    )
    return planned(request, asked, change)


def _altered(now: TopicConfig, then: TopicConfig) -> list[ChangedValue]:
    facts = changed_values(now.as_dict(), then.as_dict())
    if now.key_hash != then.key_hash:
        moved = f"by {then.key_hash}: from then on the records of a key may go to another partition"
        facts.append(ChangedValue("Records with a key", f"by {now.key_hash}", moved))
    return facts


@router.get("/grow")
async def grow(request: Request, asked: Asked, topic: str, count: Annotated[int, Query()]) -> Response:
    """The dry run of more partitions."""
    here, head = gateway(request), await head_of(request, asked, topic)
    now, refused = head.state.partition_count, lacking(asked, Operation.ALTER, topic)
    try:
        await run_in_threadpool(plan_growth, here, topic, count)
    except LakelogError as error:
        refused = refused or error.message
    change = Change(
        title=f"Add partitions to {topic}",
        method="PATCH",
        url=_v3(here, topic),
        body={"partitions_count": count},
        facts=[
            ChangedValue("Partitions", number(now), number(count)),
            ChangedValue(
                "Records with a key",
                f"one of {number(now)}",
                f"one of {number(count)}: from then on the records of a key may go to another partition",
            ),
        ],
        following=f"{head.path}/partitions",
        back=f"{head.path}/partitions",
        button="Add partitions",
        danger="Partitions cannot be taken away again.",
        refused=refused,
    )
    return planned(request, asked, change)


@router.get("/delete-records")
async def delete_records(
    request: Request,
    asked: Asked,
    topic: str,
    partition: Annotated[int, Query()],
    before: Annotated[int, Query()],
) -> Response:
    """The dry run of deleting the records of a partition below an offset."""
    head = await head_of(request, asked, topic)
    facts: Sequence[ChangedValue] = ()
    refused = lacking(asked, Operation.DELETE, topic)
    try:
        head.description.check_own()
        facts = _fewer(head, partition, before)
    except LakelogError as error:
        refused = refused or error.message
    change = Change(
        title=f"Delete records of {topic}, partition {partition}",
        method="DELETE",
        url=f"/topics/{topic}/partitions/{partition}/records?before={before}",
        body=None,
        facts=facts,
        following=f"{head.path}/partitions",
        back=f"{head.path}/partitions",
        button="Delete the records",
        danger="Nobody can read them then. They can be brought back for a day." if facts else "",
        refused=refused,
    )
    return planned(request, asked, change)


@router.get("/restore")
async def restore(
    request: Request,
    asked: Asked,
    topic: str,
    time: Annotated[str, Query()] = "",
    version: Annotated[str, Query()] = "",
    partition: Annotated[str, Query()] = "",
) -> Response:
    """The dry run of bringing deleted records back: to a time, or to a version of a partition's table."""
    here, head = gateway(request), await head_of(request, asked, topic)
    facts, body = list[ChangedValue](), dict[str, object]()
    refused = lacking(asked, Operation.DELETE, topic)
    try:
        at, only = _whole("version", version), _whole("partition", partition)
        body = {"version": at, "time": time or None, "partition": only}
        is_before = state_wanted(at, time or None, only)
        if not refused:
            found = await run_in_threadpool(restore_topic, here, asked, topic, is_before, only, True)
            facts = _more(found)
    except LakelogError as error:
        refused = refused or error.message
    change = Change(
        title=f"Bring back deleted records of {topic}",
        method="POST",
        url=f"/topics/{topic}/restore",
        body=body,
        facts=facts,
        following=f"{head.path}/partitions",
        back=f"{head.path}/partitions",
        button="Bring them back",
        refused=refused,
    )
    return planned(request, asked, change)


def _whole(name: str, text: str) -> int | None:
    """The number in a field of a form; None for an empty one. Raises InvalidArgument."""
    found = decimal(text) if text else None
    if text and (found is None or found < 0):
        raise InvalidArgument(f"the {name} {text[:40]!r} is no number; write one such as 12")
    return found


def _more(found: Sequence[Restoration]) -> list[ChangedValue]:
    back = [each for each in found if each.past.log_start < each.log_start]
    facts = [
        ChangedValue(
            f"Log start of partition {each.partition}", number(each.log_start), number(each.past.log_start)
        )
        for each in back[:PARTITIONS_NAMED]
    ]
    records, held = sum(each.past.records for each in back), sum(each.past.bytes for each in back)
    if len(back) > PARTITIONS_NAMED:
        facts.append(ChangedValue("Other partitions", "–", f"{len(back) - PARTITIONS_NAMED} more"))
    if back:
        facts.append(ChangedValue("Records that come back", "–", f"{number(records)}, {size(held)}"))
    return facts


@router.get("/delete")
async def delete(request: Request, asked: Asked, topic: str) -> Response:
    """The dry run of deleting the topic."""
    head = await head_of(request, asked, topic)
    look = await console(request).index.look()
    groups = sorted(
        each.group
        for each in look.of_topic.get(topic, ())
        if asked.allows(Operation.DESCRIBE, ResourceType.GROUP, each.group)
    )
    named = ", ".join(groups[:GROUPS_NAMED])
    if len(groups) > GROUPS_NAMED:
        named += f" and {len(groups) - GROUPS_NAMED} more"
    config = head.description.config
    kept_s, files_s = config.deleted_kept_ms / 1000, config.file_delete_delay_ms / 1000
    back = f"for {duration(kept_s)}, with all of this" if kept_s else "no"
    refused = lacking(asked, Operation.DELETE, topic)
    try:
        head.description.check_own()
    except LakelogError as error:
        refused = refused or error.message
    change = Change(
        title=f"Delete the topic {topic}",
        method="DELETE",
        url=f"/topics/{topic}",
        body=None,
        facts=[
            ChangedValue("Records", number(head.state.records), "none"),
            ChangedValue("Bytes", size(head.state.size_bytes), f"none, after {duration(kept_s or files_s)}"),
            ChangedValue("Partitions", number(head.state.partition_count), "none"),
            ChangedValue("Groups whose offsets here end", named or "none", "none"),
            ChangedValue("It can be brought back", "–", back),
        ],
        following="/console/deleted-topics" if kept_s else "/console/topics",
        back=f"{head.path}/partitions",
        button=f"Delete {topic}",
        danger="The topic and its records are gone at once, for all who read them."
        + ("" if kept_s else " They cannot be brought back."),
        refused=refused,
    )
    return planned(request, asked, change)


def _fewer(head: TopicHead, partition: int, before: int) -> Sequence[ChangedValue]:
    """The facts of a later log start. Raises UnknownPartition, InvalidArgument, OffsetOutOfRange."""
    state = head.state.partitions.get(partition)
    if state is None:
        last = head.state.partition_count - 1
        raise UnknownPartition(f"topic {head.name} has no partition {partition}; it has 0 to {last}")
    if before < 0:
        raise InvalidArgument(f"offset {before} is negative; use one from {state.start} to {state.end}")
    if before > state.end:
        raise OffsetOutOfRange(
            f"offset {before} is beyond the high watermark {state.end}; use one up to that"
        )
    if before <= state.start:
        return ()
    now, then = behind_of(state, state.start, 0), behind_of(state, before, 0)
    return (
        ChangedValue("Log start", number(state.start), number(before)),
        ChangedValue("Offsets", number(now.records), number(then.records)),
        ChangedValue("Bytes, about", size(now.size_bytes), size(then.size_bytes)),
    )


def _v3(here: Gateway, topic: str) -> str:
    return f"/v3/clusters/{here.cluster.cluster_id}/topics/{topic}"


class _Entry(NamedTuple):
    name: str
    value: str


@new_topics.get("")
async def create(
    request: Request,
    asked: Asked,
    name: Annotated[str | None, Query()] = None,
    partitions: Annotated[int | None, Query()] = None,
    settings: Annotated[str, Query()] = "",
) -> Response:
    """The form of a new topic; with a name, the dry run of its creation."""
    here = gateway(request)
    count = here.settings.num_partitions if partitions is None else partitions
    if name is None:
        values = {"partitions": count, "settings": SETTINGS.values(), "most": PARTITIONS_MAX}
        return render(request, "topic_new.html", values, asked)
    entries = _entries(settings)
    refused = await run_in_threadpool(_refused_creation, here, asked, name, count, entries)
    facts = [ChangedValue("Topic", "–", name), ChangedValue("Partitions", "–", number(count))]
    facts += [ChangedValue(entry.name, _default(entry.name), entry.value) for entry in entries]
    change = Change(
        title=f"Create the topic {name}",
        method="POST",
        url=f"/v3/clusters/{here.cluster.cluster_id}/topics",
        body={
            "topic_name": name,
            "partitions_count": count,
            "configs": [entry._asdict() for entry in entries],
        },
        facts=facts,
        following=topic_path(name),
        back="/console/topics",
        button="Create the topic",
        refused=refused,
    )
    return planned(request, asked, change)


def _refused_creation(here: Gateway, asked: Caller, name: str, count: int, entries: Sequence[_Entry]) -> str:
    """Why the topic would not be created; the empty text if it would be. Blocking."""
    in_all = asked.allows(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    if not in_all and not asked.allows(Operation.CREATE, ResourceType.TOPIC, name):
        # Before the name is looked up: it is not said whether a topic has it.
        return f"it needs CREATE on the cluster or on the topic {name[:249]!r}, which you do not have"
    try:
        plan_creation(here, name, count, {entry.name: plain(entry.name, entry.value) for entry in entries})
    except LakelogError as error:
        return error.message
    return ""


def _entries(text: str) -> list[_Entry]:
    """The settings of a form, a line for each. Raises InvalidArgument."""
    entries = []
    for line in filter(str.strip, text.splitlines()):
        name, equals, value = line.partition("=")
        if not equals:
            raise InvalidArgument(f"{line[:60]!r} sets nothing; write name=value, as cleanup.policy=compact")
        entries.append(_Entry(name.strip(), value.strip()))
    return entries


def _default(name: str) -> str:
    return SETTINGS[name].default or "–" if name in SETTINGS else "–"
