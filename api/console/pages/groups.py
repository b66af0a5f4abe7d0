"""The consumer groups, with Spark queries that report their progress, and one of them."""

from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote

import msgspec
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from api.console.cluster_index import ClusterState, PartitionState, behind_of
from api.console.command import group_commands
from api.console.gateways import told_by
from api.console.page import curve, moment, number, paged, render
from api.console.page_route import PageRoute
from api.console.pages.change import Change, ChangedValue, planned
from api.console.state import console
from api.gateway import Gateway
from api.requests.access import Asked
from api.requests.heads import TARGETED, heads
from api.requests.route_gateway import Here
from api.requests.strict import StrictRoute
from api.samples import GroupLags
from coordinator.access.caller import Caller
from coordinator.groups.classic.classic_group import ClassicState
from coordinator.groups.classic.consumer_protocol import CONSUMER, subscribed_topics
from coordinator.groups.events import Undo
from coordinator.groups.state.group import Group
from coordinator.groups.state.member import GroupMember
from coordinator.groups.state.undo import UndoPlan
from coordinator.groups.state.undo import undo as undo_step
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.group_log import SPARK_METADATA, OffsetValue, check_group_name
from log_tables.counts import counted
from log_tables.errors import LakelogError
from log_tables.limits import TOPIC_NAME_MAX_CHARS
from log_tables.sql.lag import Lag
from log_tables.topic_partition import TopicPartition

router = APIRouter(prefix="/console/groups", include_in_schema=False, route_class=PageRoute)
histories = APIRouter(prefix="/console/groups", include_in_schema=False, route_class=StrictRoute)

Kind = Literal["consumers", "Kafka clients", "Spark query", "offsets only", "transactions"]

_Order = Literal["name", "kind", "members", "lag", "seconds", "bytes", "committed"]


DELETED_SHOWN = 20
"""Deleted groups that the list shows, the newest."""

NO_LAGS = GroupLags([], [], [], [])


async def lag_history(request: Request, here: Gateway, asked: Caller, group: Group) -> GroupLags:
    """The samples of the group; none if its coordinator does not answer, or if the caller may not know of
    one of its topics: they are of all its partitions together.
    """
    if TARGETED in heads(request.scope):  # another gateway asks, which has looked at that
        return console(request).figures.lags(group.id)
    if not all(asked.describes(topic) for topic in {at.topic for at in group.offsets}):
        return NO_LAGS
    topic, partition = await here.shard_manager.partition_for(group.id)
    broker = here.brokers.other(here.leadership.leader_id(topic, partition))
    if broker is None:
        return console(request).figures.lags(group.id)
    path = f"/console/groups/{quote(group.id, safe='')}/history"
    return await told_by(here, broker, path, asked.context, GroupLags) or NO_LAGS


class GroupView(NamedTuple):
    """A group as a list shows it: the lag in the topics that the reader may know of."""

    group: Group
    kind: Kind
    state: str
    topics: Sequence[str]
    lag: Lag
    committed_ms: int


class PartitionView(NamedTuple):
    """The committed offset of a group in a partition, and how far it is behind there."""

    at: TopicPartition
    committed: OffsetValue
    state: PartitionState | None
    lag: Lag
    owner: str


_ORDERS: dict[str, Callable[[GroupView], Any]] = {
    "name": lambda each: each.group.id,
    "kind": lambda each: (each.kind, each.group.id),
    "members": lambda each: -each.group.size,
    "lag": lambda each: -each.lag.records,
    "seconds": lambda each: -each.lag.seconds,
    "bytes": lambda each: -each.lag.size_bytes,
    "committed": lambda each: -each.committed_ms,
}


@router.get("")
async def groups(
    request: Request,
    here: Here,
    asked: Asked,
    search: Annotated[str, Query(max_length=TOPIC_NAME_MAX_CHARS)] = "",
    order: Annotated[_Order, Query()] = "name",
    page: Annotated[int, Query(ge=1)] = 1,
) -> Response:
    """The list."""
    look = await console(request).index.look()
    views = [
        _view(look, group, asked)
        for name, group in look.groups.items()
        if search.lower() in name.lower() and asked.allows(Operation.DESCRIBE, ResourceType.GROUP, name)
    ]
    views.sort(key=_ORDERS[order])
    values = {
        "rows": paged(views, page),
        "search": search,
        "order": order,
        "deleted": await _deleted(here, asked),
    }
    return render(request, "groups.html", values, asked)


@router.get("/{group}")
async def group_page(
    request: Request, here: Here, asked: Asked, group: str, page: Annotated[int, Query(ge=1)] = 1
) -> Response:
    """One group: its members, and where it is in each partition."""
    look = await console(request).index.look()
    found = await here.shard_manager.group(group)
    history = await lag_history(request, here, asked, found)
    rows = _partitions(look, found, asked)
    broker = here.leadership.leader_id(*await here.shard_manager.partition_for(group))
    values = {
        "view": _view(look, found, asked),
        "members": _members(found, asked),
        "rows": paged(rows, page),
        "hidden": len(found.offsets) - len(rows),
        "broker": broker,
        "curves": (
            (
                "Lag in records",
                curve([*zip(history.at_ms, history.records, strict=True)], "Lag in records", "number"),
            ),
            (
                "Lag in time",
                curve([*zip(history.at_ms, history.seconds, strict=True)], "Lag in time", "duration"),
            ),
        ),
        "commands": group_commands(group),
        "history_url": f"/console/groups/{quote(group, safe='')}/history",
    }
    return render(request, "group.html", values, asked)


@histories.get("/{group}/history")
async def history(request: Request, here: Here, asked: Asked, group: str) -> Response:
    """The lag of the last hour, for a curve that zooms, and for the gateway that shows it."""
    found = await lag_history(request, here, asked, await here.shard_manager.group(group))
    return Response(msgspec.json.encode(found), media_type="application/json")


@router.get("/{group}/delete")
async def delete(request: Request, here: Here, asked: Asked, group: str) -> Response:
    """The dry run of deleting a group."""
    found = await here.shard_manager.group(group)
    url = f"/consumers/{quote(group, safe='')}"
    shown = [at for at in sorted(found.offsets) if asked.describes(at.topic)]
    facts = [ChangedValue("members", number(found.size), "0")] if found.size else []
    facts += [ChangedValue(f"committed in {at}", number(found.offsets[at].offset), "–") for at in shown[:100]]
    if len(shown) > 100:
        facts.append(ChangedValue(f"committed in {counted(len(shown) - 100, 'other partition')}", "…", "–"))
    change = Change(
        f"Delete the group {group}",
        "DELETE",
        f"{url}?force=true" if found.size else url,
        None,
        facts or [ChangedValue("the group", "is there", "–")],
        "/console/groups",
        f"/console/groups/{quote(group, safe='')}",
        "Delete the group",
        "Consumers that join it again go by their auto.offset.reset, until an undo brings its offsets back."
        + (" Its members are thrown out." if found.size else ""),
    )
    return planned(request, asked, change)


@router.get("/{group}/undo")
async def undo(
    request: Request, here: Here, asked: Asked, group: str, acts: Annotated[int, Query(ge=1)] = 1
) -> Response:
    """The dry run of an undo of what operators have done to the group's offsets."""
    check_group_name(group)
    found, refused = await here.coordinator.kept_group(group), ""
    facts, plan = list[ChangedValue](), UndoPlan(())
    try:
        plan = await here.coordinator.undo_plan(group, acts)
        facts = _undone(found, plan, asked)
        undo_step(found, Undo(acts, here.clock.now_ms(), 0), 0)
    except LakelogError as error:
        refused = error.message
    if not asked.allows(Operation.READ, ResourceType.GROUP, group):
        refused = "you may not READ this group"
    path = quote(group, safe="")
    done = ", ".join(f"{act.done} of {moment(act.at_ms)}" for act in plan.acts)
    change = Change(
        f"Undo for the group {group}: {done}" if done else f"Undo for the group {group}",
        "POST",
        f"/consumers/{path}/undo?acts={acts}" + (f"&newest={plan.acts[0].at_ms}" if plan.acts else ""),
        None,
        facts,
        f"/console/groups/{path}" if found.exists or plan.set else "/console/groups",
        f"/console/groups/{path}" if found.exists else "/console/groups",
        "Undo it",
        refused=refused,
    )
    return planned(request, asked, change)


def _undone(group: Group, plan: UndoPlan, asked: Caller) -> list[ChangedValue]:
    """The changes of an undo, and what it leaves, in the topics that the caller may know of."""
    facts = []
    for at in plan.changed:
        now, then = group.committed(at), plan.set.get(at)
        before = "nothing committed" if now is None else number(now.offset)
        after = "nothing committed" if then is None else number(then.offset)
        facts.append((at, ChangedValue(str(at), before, after)))
    facts += [(at, ChangedValue(str(at), "–", f"stays: {reason}")) for at, reason in plan.left.items()]
    shown = [fact for at, fact in facts if asked.describes(at.topic)]
    more = [ChangedValue(counted(len(shown) - 100, "other partition"), "…", "…")] if len(shown) > 100 else []
    return shown[:100] + more


class KeptGroup(NamedTuple):
    """A group that was deleted, and can be had again; by whom, and when."""

    id: str
    at_ms: int
    principal: str


async def _deleted(here: Gateway, asked: Caller) -> list[KeptGroup]:
    """The newest ones that the caller may know of, the newest first."""
    named = await here.shard_manager.named_groups()
    kept = [group for group in named if group.acts and not group.exists]
    return sorted(
        (
            KeptGroup(group.id, group.acts[0].at_ms, group.acts[0].principal)
            for group in kept
            if asked.allows(Operation.DESCRIBE, ResourceType.GROUP, group.id)
        ),
        key=lambda each: -each.at_ms,
    )[:DELETED_SHOWN]


def _view(look: ClusterState, group: Group, asked: Caller) -> GroupView:
    behind = [each for each in look.of_group.get(group.id, ()) if asked.describes(each.topic)]
    named = {at.topic for at in group.offsets}
    named |= group.subscribed_topics or frozenset()
    return GroupView(
        group,
        kind_of(group),
        state_of(group),
        sorted(topic for topic in named if asked.describes(topic)),
        Lag(
            sum(each.lag.records for each in behind),
            max((each.lag.seconds for each in behind), default=0.0),
            sum(each.lag.size_bytes for each in behind),
        ),
        group.committed_ms,
    )


def kind_of(group: Group) -> Kind:
    """A Spark query says that it is one, in the metadata of its offsets."""
    if group.newest_generation or group.size:
        return "consumers" if group.protocol_type == CONSUMER else "Kafka clients"
    if group.offsets and all(each.metadata == SPARK_METADATA for each in group.offsets.values()):
        return "Spark query"
    return "offsets only" if group.offsets else "transactions"


def state_of(group: Group) -> str:
    """Kafka's word for it, and one for both parts of a rebalance."""
    if not group.size:
        return "empty"
    return "stable" if group.state is ClassicState.STABLE else "rebalancing"


def _partitions(look: ClusterState, group: Group, asked: Caller) -> list[PartitionView]:
    owners = group.owners
    rows = []
    for at in sorted(group.offsets):
        committed = group.committed(at)
        if committed is None or not asked.describes(at.topic):
            continue
        topic = look.topics.get(at.topic)
        state = None if topic is None else topic.partitions.get(at.partition)
        behind = Lag() if state is None else behind_of(state, committed.offset, look.at_ms)
        rows.append(PartitionView(at, committed, state, behind, owners.get(at, "")))
    return sorted(rows, key=lambda row: (-row.lag.records, row.at))


def _members(group: Group, asked: Caller) -> list[dict[str, Any]]:
    return [_member(group, member, asked) for member in group.group_members]


def _member(group: Group, shown: GroupMember, asked: Caller) -> dict[str, Any]:
    """A member of Kafka's clients has no state of its own; its topics and partitions may be unknown."""
    member, classic = group.members.get(shown.id), group.classic.members.get(shown.id)
    topics: Collection[str] = () if member is None else group.subscription(member)
    if classic is not None and group.protocol_type == CONSUMER:
        topics = subscribed_topics(classic.metadata(group.classic.protocol)) or ()
    return {
        "id": shown.id,
        "state": "dormant" if member is not None and member.dormant else "active",
        "principal": "" if shown.context is None else shown.context.principal.name,
        "host": shown.host,
        "pattern": "" if member is None else member.pattern,
        "topics": sorted(each for each in topics if asked.describes(each)),
        "owned": sorted(at for at in shown.owned or () if asked.describes(at.topic)),
        "assigned": member is not None and member.assigned,
    }
