"""Setting where a group goes on: where it is, what the log holds, and where it would be, before it is."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NamedTuple
from urllib.parse import quote

from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from api.client_topics import describe_topic, with_partition
from api.console.page import number, render
from api.console.page_route import PageRoute
from api.console.pages.change import Change, ChangedValue, planned
from api.console.record_query import partitions_of
from api.gateway import Gateway
from api.requests.access import Asked
from api.requests.route_gateway import Here
from api.scalars import decimal, microseconds
from coordinator.access.caller import Caller
from coordinator.groups.state.group import Group
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.errors import InvalidArgument, UnknownGroup
from log_tables.partition.reader import PartitionReader
from log_tables.topic_partition import TopicPartition

router = APIRouter(prefix="/console/groups/{group}/reset", include_in_schema=False, route_class=PageRoute)

PARTITIONS_RESET_MAX = 2_000
"""Partitions of one change: its body stays below a megabyte."""

_To = Literal["", "earliest", "latest", "offset", "time", "shift"]


class LogEnds(NamedTuple):
    """The ends of a partition: its first and next offset, and the first at or after the time asked for."""

    start: int
    end: int
    at: int | None


@router.get("")
async def reset(
    request: Request,
    here: Here,
    asked: Asked,
    group: str,
    to: Annotated[_To, Query()] = "",
    value: Annotated[str, Query()] = "",
    topic: Annotated[str, Query()] = "",
    partitions: Annotated[str, Query()] = "",
) -> Response:
    """The form; with `to` the dry run."""
    found = await _group(here, group)
    topics = sorted({at.topic for at in found.offsets if asked.describes(at.topic)})
    if not to:
        values = {"group": group, "topics": topics, "topic": topic, "partitions": partitions}
        return render(request, "offset_reset.html", values, asked)
    chosen = await run_in_threadpool(_chosen, here, asked, found, topic, partitions)
    time_us = microseconds(value) if to == "time" else None
    held = await run_in_threadpool(_held, here, chosen, time_us)
    wanted = {at: target(held[at], to, value, _committed(found, at)) for at in chosen}
    return planned(request, asked, _change(asked, found, held, wanted, request))


def target(held: LogEnds, to: str, value: str, committed: int | None) -> int | None:
    """Where a group goes on in a partition, within what that holds; None where there is nothing to shift.

    Raises InvalidArgument.
    """
    if to == "shift":
        if committed is None:
            return None
        wanted = committed + _number(value, "the number of records to shift by")
    elif to == "time":
        wanted = held.end if held.at is None else held.at
    elif to == "offset":
        wanted = _number(value, "the offset")
    else:
        wanted = held.start if to == "earliest" else held.end
    return min(max(wanted, held.start), held.end)


def _number(text: str, what: str) -> int:
    found = decimal(text.strip().removeprefix("+"))
    if found is None:
        raise InvalidArgument(f"{what} is {text[:40]!r}, which is no whole number; write its digits, as 10")
    return found


async def _group(here: Gateway, name: str) -> Group:
    """The group; one without anything if there is none of the name: a reset makes it."""
    try:
        return await here.shard_manager.group(name)
    except UnknownGroup:
        return Group(name)


def _chosen(
    here: Gateway, asked: Caller, group: Group, topic: str, partitions: str
) -> Sequence[TopicPartition]:
    """The partitions that a form names: of a topic all or some, else all with a committed offset. Blocking.

    Raises InvalidArgument, UnknownTopic, AuthorizationFailed.
    """
    if not topic:
        chosen = [at for at in sorted(group.offsets) if group.committed(at) and asked.describes(at.topic)]
        if not chosen:
            raise InvalidArgument("the group has no committed offset; name a topic")
    else:
        asked.check(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        count = describe_topic(here, topic).partition_count
        chosen = [TopicPartition(topic, each) for each in partitions_of(partitions, count)]
    if len(chosen) > PARTITIONS_RESET_MAX:
        raise InvalidArgument(
            f"these are {len(chosen):,} partitions, of {PARTITIONS_RESET_MAX:,} at most; name a topic"
        )
    return chosen


def _held(
    here: Gateway, chosen: Sequence[TopicPartition], time_us: int | None
) -> Mapping[TopicPartition, LogEnds]:
    def look(partition: PartitionReader) -> LogEnds:
        at = None if time_us is None else partition.position(time_us)
        return LogEnds(partition.log_start, partition.high_watermark, at)

    return {at: with_partition(here, at.topic, at.partition, look) for at in chosen}


def _committed(group: Group, at: TopicPartition) -> int | None:
    found = group.committed(at)
    return None if found is None else found.offset


def _change(
    asked: Caller,
    group: Group,
    held: Mapping[TopicPartition, LogEnds],
    wanted: Mapping[TopicPartition, int | None],
    request: Request,
) -> Change:
    facts, offsets = [], []
    for at, offset in wanted.items():
        old = _committed(group, at)
        now = "nothing committed" if old is None else number(old)
        if offset is None:
            facts.append(ChangedValue(str(at), now, "stays: nothing to shift"))
            continue
        part = held[at]
        moved = "" if old is None or old == offset else f" ({offset - old:+,})"
        facts.append(
            ChangedValue(
                f"{at}, which holds {number(part.start)} to {number(part.end)}",
                now,
                f"{number(offset)}{moved}, {number(part.end - offset)} to read",
            )
        )
        offsets.append({"topic": at.topic, "partition": at.partition, "offset": offset})
    name = quote(group.id, safe="")
    shared = not group.empty
    return Change(
        f"Set where the group {group.id} goes on",
        "PUT",
        f"/consumers/{name}/offsets?keep=true" + ("&force=true" if shared else ""),
        {"offsets": offsets},
        facts if offsets else [],
        f"/console/groups/{name}",
        f"{request.url.path}",
        "Set the offsets",
        "The group has members. They go on from there at once, and what they work at may come again."
        if shared
        else "",
        _refusal(asked, group, {at.topic for at in wanted}) if offsets else "there is nothing to set",
    )


def _refusal(asked: Caller, group: Group, topics: set[str]) -> str:
    """Why the request would be refused; empty if it would not."""
    if not asked.allows(Operation.READ, ResourceType.GROUP, group.id):
        return "you may not READ this group"
    if group.has_kafka_clients:
        return (
            "the group has members that joined by Kafka's protocol, and would not hear of it; stop them first"
        )
    denied = [
        topic for topic in sorted(topics) if not asked.allows(Operation.READ, ResourceType.TOPIC, topic)
    ]
    return f"you may not READ the topic {denied[0]}" if denied else ""
