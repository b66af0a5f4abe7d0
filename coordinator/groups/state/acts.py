"""The acts of operators on a group's offsets, by which these can be had again.

The append that changes offsets also says which there were before, under a key of its own: the log of groups
is compacted by key, so nothing older can be relied on. A member's commits are no acts.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from enum import StrEnum

from coordinator.access.principal import RequestContext
from coordinator.groups.events import OffsetAndMetadata
from coordinator.groups.state.group import Group
from log_tables.cluster.group_log import SPARK_METADATA, Act, Records, UndoKey, UndoValue
from log_tables.limits import UNDO_ACTS_MAX, UNDO_OFFSETS_MAX
from log_tables.topic_partition import TopicPartition


class Done(StrEnum):
    """The acts that can be undone."""

    DELETE = "delete"
    """The group was deleted."""
    RESET = "reset"
    """Offsets were set from outside the group."""
    DELETE_OFFSETS = "delete-offsets"
    """Offsets of some topics were deleted."""
    UNDO = "undo"
    """Acts were undone."""


_DELETIONS = (Done.DELETE, Done.DELETE_OFFSETS)


def is_act(group: Group, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> bool:
    """Whether `offsets`, which a client sets that is no member, count as what an operator has done.

    Such a client may be a program that keeps its own positions and commits again and again: it is taken for
    one where the group never had members, and no offset goes back. A Spark query says that it is one.
    """
    if offsets and all(place.metadata == SPARK_METADATA for place in offsets.values()):
        return False
    if group.generation or group.classic.generation:
        return True
    known = ((place, group.committed(at)) for at, place in offsets.items())
    return any(now is not None and place.offset < now.offset for place, now in known)


def known_acts(group: Group, since_ms: int) -> tuple[Act, ...]:
    """The acts that can be undone, the newest first: those since `since_ms`, milliseconds since 1970."""
    return tuple(act for act in group.acts if act.at_ms >= since_ms)


def with_act(
    group: Group,
    done: str,
    at_ms: int,
    context: RequestContext | None,
    partitions: Collection[TopicPartition],
) -> tuple[Group, Records]:
    """`group` with an act that changes the offsets of `partitions`, which are as before it.

    No two acts have one time, so an act can be named by it. An act of too many offsets cannot be undone, and
    what was done before it neither.
    """
    if not partitions or (done in _DELETIONS and not any(at in group.offsets for at in partitions)):
        return group, []  # nothing is lost
    by = "" if context is None else context.principal.name
    acts: tuple[Act, ...] = ()
    if len(partitions) <= UNDO_OFFSETS_MAX:
        before = tuple((*at, group.offsets.get(at)) for at in sorted(partitions))
        at_ms = max(at_ms, group.acts[0].at_ms + 1 if group.acts else 0)
        acts = _bounded([Act(done, at_ms, before, by), *group.acts])
    return _with_acts(group, acts)


def without_acts(group: Group, before_ms: int) -> tuple[Group, Records]:
    """`group` without the acts before `before_ms`, milliseconds since 1970."""
    return _with_acts(group, known_acts(group, before_ms))


def _with_acts(group: Group, acts: tuple[Act, ...]) -> tuple[Group, Records]:
    if acts == group.acts:
        return group, []
    return replace(group, acts=acts), [(UndoKey(group.id), UndoValue(acts) if acts else None)]


def _bounded(acts: Iterable[Act]) -> tuple[Act, ...]:
    """The newest of `acts` that may be kept."""
    kept, room = list[Act](), UNDO_OFFSETS_MAX
    for act in acts:
        room -= len(act.offsets)
        if room < 0 or len(kept) == UNDO_ACTS_MAX:
            break
        kept.append(act)
    return tuple(kept)
