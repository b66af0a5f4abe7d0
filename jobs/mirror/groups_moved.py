"""Waiting until the groups of a mirror are here as at the source, before a consumer moves or a topic does."""

from collections.abc import Collection

from jobs.mirror.groups import WAITING, GroupProgress, GroupState, GroupSync
from log_tables.clock import Clock
from log_tables.errors import Conflict, InvalidArgument, Retriable
from log_tables.spelling import meant

_LOOK_S = 0.2


class GroupsBehind(Retriable):
    """The offsets of a group are not here yet as they are at the source."""


class GroupDiffers(Conflict):
    """The offsets of a group will not be here as they are at the source."""


def chosen_groups(sync: GroupSync, named: Collection[str]) -> dict[str, bool]:
    """The groups `named`, or all of the mirror, and whether each has members at the source.

    Raises InvalidArgument, and as `GroupSync.groups`.
    """
    there = sync.groups()
    for name in named:
        if name not in there:
            hint = meant(name, [*there]) or "`lakelog mirror groups` lists those that there are"
            raise InvalidArgument(
                f"the source has no group {name!r} that this mirror copies and may see; {hint}"
            )
    return {name: has for name, has in there.items() if not named or name in named}


def await_groups(sync: GroupSync, named: Collection[str], wait_s: float, clock: Clock) -> list[GroupProgress]:
    """Bring the groups `named`, or all, over, and wait until they are as at the source; returns how they are.

    Of those `named` is also waited for their members to leave at the source: until then they may commit more.
    Raises GroupsBehind, InvalidArgument, as `GroupSync.look`; GroupDiffers if one that is `named` goes its
    own way here.
    """
    waited_s, done = 0.0, list[GroupProgress]()
    left = chosen_groups(sync, named)
    while left:
        found = sync.look(left)
        for each in found:
            if named and each.state not in (GroupState.EQUAL, *WAITING):
                raise GroupDiffers(_differs(each))
        waiting = {each.group: each for each in found if each.state in WAITING}
        running = [name for name in left if named and left[name]]
        done += [each for each in found if each.group not in waiting and each.group not in running]
        left = {name: has for name, has in left.items() if name in waiting or name in running}
        if left and waited_s >= wait_s:
            raise GroupsBehind(_runs(running[0]) if running else _waits(waiting))
        if left:
            clock.pause(_LOOK_S)
            waited_s += _LOOK_S
            left = chosen_groups(sync, left)
    return sorted(done)


def bring_over(sync: GroupSync, topics: Collection[str], wait_s: float, clock: Clock) -> list[GroupProgress]:
    """Bring the offsets of all groups in `topics` over, as they are at the source now, up to the ends of the
    copies; returns those that are others here. Raises GroupsBehind, and as `GroupSync.look`.
    """
    waited_s, differ = 0.0, list[GroupProgress]()
    left: Collection[str] = sync.groups()
    while left:
        found = [each for each in sync.look(left) if not each.topic or each.topic in topics]
        waiting = {each.group: each for each in found if each.state is GroupState.BEHIND}
        differ += [each for each in found if each.group not in waiting and each.state is not GroupState.EQUAL]
        left = [*waiting]
        if left and waited_s >= wait_s:
            raise GroupsBehind(f"{_waits(waiting)}; or add --now to promote without the groups")
        if left:
            clock.pause(_LOOK_S)
            waited_s += _LOOK_S
    return differ


def _place(each: GroupProgress) -> str:
    if not each.topic:
        return f"the group {each.group}"
    here = "no offset" if each.here is None else f"offset {each.here}"
    return f"the group {each.group} has {here} of {each.place} here, and {each.source} at the source"


def _differs(each: GroupProgress) -> str:
    how = {
        GroupState.USED: "it was used here, and goes on from there; to have the source's offsets, delete it "
        f"here with `lakelog group delete {each.group}` and repeat this",
        GroupState.MEMBERS: "it has members here; stop them first",
        GroupState.STOPPED: "the copy has stopped; `lakelog mirror describe` says why",
    }
    return f"{_place(each)}: {how.get(each.state, each.reason)}"


def _waits(waiting: dict[str, GroupProgress]) -> str:
    each = next(iter(waiting.values()))
    more = f", as {len(waiting) - 1} more" if len(waiting) > 1 else ""
    why = each.reason or (
        "its records are not here yet" if each.state is GroupState.AHEAD else "it was not set yet"
    )
    return f"{_place(each)}{more}: {why}; see that the mirror and a gateway run, and repeat the command"


def _runs(name: str) -> str:
    return f"the group {name} has members at the source, which may commit more; stop them, and repeat this"
