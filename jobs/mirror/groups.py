"""The offsets of a mirror's groups, as at the source: compared with what is committed here, and brought over.

Nothing is kept but in memory: what has to be set follows from both sides. An offset is set through a gateway,
which coordinates the group, and only if nobody here has committed one of its topic for the group.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeVar

from jobs.mirror.groups_here import Committed, GroupsHere
from jobs.mirror.source import INTERNAL, GroupOffset, Source, UnknownAtSource
from log_tables.cluster.admin.mirror_admin import copies_of, matching, matching_groups, mirror_named
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import check_group_name, mirror_member
from log_tables.cluster.metadata_log import MirrorRecord, TopicRecord
from log_tables.errors import (
    AccessDenied,
    GroupNotEmpty,
    InvalidConsumer,
    InvalidRequest,
    LakelogError,
    NotFound,
    Unreachable,
)
from log_tables.limits import OFFSETS_AT_ONCE
from log_tables.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

ROUND_S = 3.0
"""How often the source is asked for its groups."""

ASKED_AT_ONCE = 200
"""Groups whose offsets are asked for in a round: first those that move, and of the others a part in turn."""

_IN_TURN = 50
_SENDERS = 8
_ALL_S = 30.0
"""How often is looked whether others have changed offsets here."""


_Item = TypeVar("_Item")


class NewOffset(NamedTuple):
    """An offset that is to be a group's, in the place of `before`; None for none."""

    topic: str
    partition: int
    offset: int
    metadata: str
    before: int | None


class SetOffsets(Protocol):
    """Sets offsets of a group through its coordinator, all or none, for a mirror."""

    def __call__(self, group: str, mirror: str, offsets: Sequence[NewOffset]) -> None:
        """Raises Conflict, Retriable, InvalidRequest, AccessDenied, NotFound, OutcomeUnknown."""


class GroupState(StrEnum):
    """How an offset here is to that of the source."""

    EQUAL = "equal"
    BEHIND = "not set yet"
    AHEAD = "waits for records"
    MEMBERS = "has members here"
    USED = "used here"
    STOPPED = "copy has stopped"
    REFUSED = "refused"


WAITING = (GroupState.BEHIND, GroupState.AHEAD)
"""The states that end by themselves."""


class GroupProgress(NamedTuple):
    """A committed offset of the source, the one here, and why they differ. Without a topic: the group as a
    whole could not be asked for, or have its offsets set.
    """

    group: str
    topic: str
    partition: int
    source: int | None
    here: int | None
    state: GroupState
    reason: str = ""
    metadata: str = ""

    @property
    def place(self) -> TopicPartition:
        """Its partition."""
        return TopicPartition(self.topic, self.partition)


class _Copies(NamedTuple):
    """The topics of the mirror that are copied now, those that are yet to be, and those that have stopped."""

    going: Mapping[str, TopicRecord]
    coming: Collection[str]
    stopped: Collection[str]


class GroupSync:
    """Brings the offsets of one mirror's groups over. Blocking; of one thread, but for `behind` and
    `trouble`.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        source: Source,
        set_offsets: SetOffsets | None = None,
        owns: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Without `set_offsets` it compares, and sets nothing. Its rounds are of groups that it `owns`."""
        self._cluster, self._name, self._source, self._set_offsets = cluster, name, source, set_offsets
        self._owns = owns
        self._here = GroupsHere(cluster)
        self._followed_s = -_ALL_S
        self._asked_s: dict[str, float] = {}
        self._states: dict[str, bool] = {}
        self._last: dict[str, int] = {}
        self._behind: dict[str, int] = {}
        self._said: dict[str, str] = {}
        self.behind = 0
        """How many offsets were not here yet as at the source, when they were compared last."""
        self.trouble = ""
        """Why nothing was set in the last round; empty if it was."""

    def groups(self, whole: bool = True) -> dict[str, bool]:
        """The groups of the source that the mirror names, and whether each has members there; unless `whole`,
        those of the brokers that answer.

        Raises InvalidArgument without the mirror, Unreachable, AuthorizationFailed.
        """
        self._cluster.refresh()
        mirror = mirror_named(self._cluster, self._name)
        found = self._source.groups(whole) if mirror.groups else {}
        return {name: found[name] for name in matching_groups(mirror, found)}

    def look(self, groups: Collection[str]) -> list[GroupProgress]:
        """Bring these groups over as far as their records are here; returns how far each offset is then.

        Raises as `groups`, and what the store raises.
        """
        self._cluster.refresh()
        mirror = mirror_named(self._cluster, self._name)
        found: list[GroupProgress] = []
        for some in _pieces(sorted(groups), ASKED_AT_ONCE):
            found += self._sync(mirror, some, stable=True)
        return found

    def round(self) -> None:
        """Ask for the groups, compare those that have moved and a part of the others, and set what differs.

        Raises as `look`.
        """
        self._cluster.refresh()
        mirror = self._cluster.metadata_log.mirrors.get(self._name)
        if mirror is None or mirror.paused or not mirror.groups:
            self._behind, self.behind, self.trouble = {}, 0, ""
            return
        there = {name: has for name, has in self.groups(whole=False).items() if self._owns(name)}
        for known in (self._asked_s, self._states, self._last, self._behind, self._said):
            for name in known.keys() - there.keys():
                del known[name]
        due, now = self._due(there), self._cluster.clock.monotonic()
        self._asked_s.update(dict.fromkeys(due, now))
        self._states = there
        self._sync(mirror, due, stable=False)

    def follow(self, ended: threading.Event, every_s: float = ROUND_S) -> None:
        """Go on with rounds until `ended` is set."""
        before = ""
        while not ended.is_set():
            try:
                self.round()
                said = self.trouble
            except LakelogError as error:
                said = self.trouble = str(error)
            if said != before:
                _log.warning("the mirror %s: %s", self._name, said or "offsets of groups are set again")
            before = said
            ended.wait(every_s)

    def _due(self, there: Mapping[str, bool]) -> list[str]:
        def is_urgent(name: str) -> bool:
            return bool(self._behind.get(name, 1)) or self._states.get(name) is not there[name]

        waits = sorted(there, key=lambda name: self._asked_s.get(name, 0.0))
        urgent = [name for name in waits if is_urgent(name)]
        others = [name for name in waits if not is_urgent(name)]
        first = urgent[: ASKED_AT_ONCE - min(_IN_TURN, len(others))]
        return [*first, *others[: ASKED_AT_ONCE - len(first)]]

    def _sync(self, mirror: MirrorRecord, groups: Sequence[str], stable: bool) -> list[GroupProgress]:
        """Read what is here before the source is asked: whoever has set an offset since has a newer one,
        and the gateway refuses ours.
        """
        now = self._cluster.clock.monotonic()
        is_due = now >= self._followed_s + _ALL_S
        self._here.refresh(None if is_due else groups)
        if is_due:
            self._followed_s = now
        asked = self._source.group_offsets(groups, stable)
        named = {at.topic for each in asked.values() if isinstance(each, dict) for at in each}
        copies, found = self._copies(mirror, named), list[GroupProgress]()
        for name in groups:
            offsets = asked[name]
            if isinstance(offsets, LakelogError):
                if not isinstance(offsets, UnknownAtSource):
                    found.append(_whole(name, offsets))
            else:
                found += self._compared(name, offsets, copies)
        found = self._set(self._still_there(found, copies))
        self._note(groups, found)
        return found

    def _copies(self, mirror: MirrorRecord, named: Collection[str]) -> _Copies:
        """Among the topics that offsets are of."""
        copies = [each for each in copies_of(self._cluster, self._name) if each.name in named]
        stopped = {each.name for each in copies if each.mirrored and each.mirrored.stopped}
        going = {each.name: each for each in copies if each.name not in stopped}
        absent = [
            name
            for name in named
            if not name.startswith(INTERNAL) and self._cluster.cached_topic(name) is None
        ]
        return _Copies(going, {*matching(mirror, absent)}, stopped)

    def _compared(
        self, group: str, offsets: Mapping[TopicPartition, GroupOffset], copies: _Copies
    ) -> Iterator[GroupProgress]:
        try:
            check_group_name(group)
        except InvalidConsumer as error:
            yield _whole(group, error)
            return
        here = {
            at: each
            for at, each in self._here.offsets(group).items()
            if at.topic in copies.going and copies.going[at.topic].topic_id == each.topic_id
        }
        used = {at.topic for at, each in here.items() if each.member != mirror_member(self._name)}
        has_members = self._here.has_members(group)
        for at, there in sorted(offsets.items()):
            now, state = here.get(at), None
            if at.topic in copies.stopped:
                state = GroupState.STOPPED
            elif at.topic in copies.coming:
                state = GroupState.AHEAD
            elif at.topic in copies.going:
                state = self._state(at, there, now, has_members, at.topic in used)
            if state is not None:
                before = None if now is None else now.offset
                yield GroupProgress(group, *at, there.offset, before, state, metadata=there.metadata)

    def _state(
        self, at: TopicPartition, there: GroupOffset, here: Committed | None, has_members: bool, is_used: bool
    ) -> GroupState:
        if here is not None and (here.offset, here.metadata) == there:
            return GroupState.EQUAL
        if is_used:
            return GroupState.USED
        if has_members:
            return GroupState.MEMBERS
        return GroupState.BEHIND if self._has_records(at, there.offset) else GroupState.AHEAD

    def _has_records(self, at: TopicPartition, offset: int) -> bool:
        topic = self._cluster.topic(at.topic)
        if at.partition >= topic.partition_count:
            return False
        log = topic.partition(at.partition)
        if log.high_watermark < offset:
            log.refresh()
        return log.high_watermark >= offset

    def _still_there(self, found: list[GroupProgress], copies: _Copies) -> list[GroupProgress]:
        """Without the offsets of topics that were re-created before the source was asked for them."""
        topics = {each.topic for each in found if each.state is GroupState.BEHIND and each.topic}
        ids = self._source.ids(topics)

        def has_changed(name: str) -> bool:
            mirrored = copies.going[name].mirrored
            known = "" if mirrored is None else mirrored.topic_id
            return bool(known) and ids[name] != known

        changed = {name for name in topics if has_changed(name)}
        return [
            each._replace(state=GroupState.STOPPED)
            if each.topic in changed and each.state is GroupState.BEHIND
            else each
            for each in found
        ]

    def _set(self, found: list[GroupProgress]) -> list[GroupProgress]:
        """Set what is behind; returns `found` with the states that follow."""
        wanted: dict[str, list[GroupProgress]] = {}
        for each in found:
            if each.state is GroupState.BEHIND and each.topic:
                wanted.setdefault(each.group, []).append(each)
        self.trouble = ""
        if not wanted:
            return found
        with ThreadPoolExecutor(_SENDERS, thread_name_prefix="offsets") as pool:
            sent = [*pool.map(self._send, wanted.values())]
        states = {(each.group, each.place): each for some in sent for each in some}
        return [states.get((each.group, each.place), each) for each in found]

    def _send(self, places: Sequence[GroupProgress]) -> list[GroupProgress]:
        """Set offsets of one group; returns how they are then. Of any thread."""
        done: list[GroupProgress] = []
        for some in _pieces(places, OFFSETS_AT_ONCE):
            state, reason = self._send_some(some)
            done += [
                each._replace(state=state, here=each.source, reason=reason)
                if state is GroupState.EQUAL
                else each._replace(state=state, reason=reason)
                for each in some
            ]
        return done

    def _send_some(self, some: Sequence[GroupProgress]) -> tuple[GroupState, str]:
        if self._set_offsets is None or self.trouble:  # one request has waited for a gateway, in vain
            return GroupState.BEHIND, self.trouble
        offsets = [NewOffset(*each.place, each.source or 0, each.metadata, each.here) for each in some]
        try:
            self._set_offsets(some[0].group, self._name, offsets)
        except LakelogError as error:
            if isinstance(error, Unreachable):
                self.trouble = str(error)
            return _refused(error), str(error)
        return GroupState.EQUAL, ""

    def _note(self, groups: Sequence[str], found: Collection[GroupProgress]) -> None:
        behind, last = dict.fromkeys(groups, 0), dict[str, list[int]]()
        for each in found:
            last.setdefault(each.group, []).append(hash(each.place) ^ (each.source or 0))
            behind[each.group] += each.state in WAITING
            if each.state is GroupState.REFUSED and self._said.get(each.group) != each.reason:
                _log.warning("the group %s is not brought over: %s", each.group, each.reason)
                self._said[each.group] = each.reason
        for name in groups:
            digest = hash(tuple(last.get(name, ())))
            moved = self._last.get(name) != digest
            self._last[name] = digest
            self._behind[name] = behind[name]
            if moved:  # it will again, so it is asked for soon
                self._states.pop(name, None)
        self.behind = sum(self._behind.values())


def _refused(error: LakelogError) -> GroupState:
    match error:
        case GroupNotEmpty():
            return GroupState.MEMBERS
        case AccessDenied() | InvalidRequest() | NotFound():
            return GroupState.REFUSED
        case _:  # it has changed meanwhile, or nobody has time for it
            return GroupState.BEHIND


def _whole(group: str, error: LakelogError) -> GroupProgress:
    return GroupProgress(group, "", -1, None, None, _refused(error), str(error))


def _pieces(items: Sequence[_Item], count: int) -> Iterator[Sequence[_Item]]:
    return (items[at : at + count] for at in range(0, len(items), count))


@contextmanager
def following(sync: GroupSync, every_s: float = ROUND_S) -> Iterator[None]:
    """`GroupSync.follow` in a thread of its own, which ends in order; what has ended it is raised then."""
    ended = threading.Event()
    with ThreadPoolExecutor(1, thread_name_prefix="groups") as pool:
        done = pool.submit(sync.follow, ended, every_s)
        try:
            yield
        finally:
            ended.set()
    done.result()
