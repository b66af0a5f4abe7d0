"""The partitions that a mirror has to copy, as source and metadata log say, and what stops a topic."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar, TypeVarTuple, Unpack

from msgspec.structs import replace

from jobs.mirror.columns import NO_RECORDS
from jobs.mirror.copier import Copy, LogReplaced, last_record
from jobs.mirror.same_source import AnotherCluster, check_same_cluster, check_same_topic
from jobs.mirror.sharing import Sharing
from jobs.mirror.source import Source, UnknownAtSource
from log_tables.clock import Clock
from log_tables.cluster.admin.mirror_admin import (
    change_copy,
    change_mirror,
    changed_settings,
    check_other,
    copies_of,
    create_copy,
    matching,
    stop_copy,
)
from log_tables.cluster.admin.mirror_gaps import MirrorGap, note_gaps
from log_tables.cluster.admin.mirror_progress import SourceRange
from log_tables.cluster.admin.topic_admin import add_partitions, alter_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import MirroredFrom, MirrorRecord, TopicRecord
from log_tables.cluster.topic import Topic
from log_tables.errors import (
    AuthorizationFailed,
    Conflict,
    InvalidArgument,
    InvalidRecord,
    InvalidRequest,
    LakelogError,
    NotLeader,
    OutcomeUnknown,
    Retriable,
    StoreFull,
    TopicExists,
    UnknownTopic,
)
from log_tables.partition.partition import Partition
from log_tables.store.disk_room import DiskRoom
from log_tables.topic_partition import TopicPartition

_log = logging.getLogger(__name__)
_Given = TypeVarTuple("_Given")
_Result = TypeVar("_Result")

_CLAIMERS = 8
_CLEAN_S = 600.0
"""How often old files of a log are looked for."""

_CREATED_MAX = 100
"""So many topics are made at one look; the next one is at once, if there are more."""

_AGAIN_S = 30.0
"""How long a topic that cannot be made, or not be read, is left alone."""

_SETTINGS_S, _SETTINGS_MAX = 30.0, 20
"""How often the settings of a topic are compared with its source's, and of how many at one look."""

_STOPPING = (AuthorizationFailed, InvalidRecord, LogReplaced)
"""Failures of a partition that stop its topic."""


@dataclass(frozen=True)
class Look:
    """A look: the partitions that are to be read on, and those that are begun; and whether there is more to
    begin, so that the next look is due now.
    """

    stay: frozenset[TopicPartition]
    begin: list[Copy]
    more: bool = False


@dataclass(frozen=True)
class _Going:
    """A topic that is copied, which has as many partitions here as at the source, and its id there."""

    topic: Topic
    topic_id: str

    def places(self) -> list[TopicPartition]:
        return [TopicPartition(self.topic.name, number) for number in range(self.topic.partition_count)]


class _Claimed(NamedTuple):
    """A partition that this process leads from now on, and where its source starts."""

    place: TopicPartition
    of: _Going
    log: Partition
    start: int

    @property
    def has_gap(self) -> bool:
        """Whether the source has deleted what comes next in the copy."""
        return 0 < self.log.high_watermark < self.start


class Upkeep:
    """Keeps the tables short that this process leads, as a gateway does for those that it leads."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._cleaned_s = clock, dict[str, float]()

    def look_after(self, log: Partition) -> None:
        """Write a checkpoint that is due, take what maintenance offers, delete log files that are old."""
        try:
            if log.table.checkpoint_due():
                log.checkpoint()
            if log.offer_due and log.has_offer():
                log.take_offer()
            now = self._clock.monotonic()
            if now >= self._cleaned_s.get(log.directory, 0) + _CLEAN_S and not log.table.is_clean:
                self._cleaned_s[log.directory] = now
                log.table.delete_expired_log()
        except LakelogError as error:
            _log.warning("%s is not kept short now: %s", log.directory, error)


_Found = Mapping[TopicPartition, tuple[Partition, int, SourceRange]]
"""Of partitions of the source: the log here, its high watermark before the source was asked, and the offsets
of the source. Without those of which it says none now.
"""


class Control:
    """Looks at source and metadata log. Blocking; of one thread at a time."""

    def __init__(self, cluster: Cluster, name: str, source: Source, sharing: Sharing, room: DiskRoom) -> None:
        self._room, self._cluster, self._name, self._source, self._sharing = (
            room,
            cluster,
            name,
            source,
            sharing,
        )
        self._upkeep = Upkeep(cluster.clock)
        self._refused: dict[str, float] = {}
        self._missing: set[str] = set()
        self._is_full = False
        self._compared: dict[str, float] = {}

    def look(
        self, held: Collection[TopicPartition], failed: Mapping[TopicPartition, Exception]
    ) -> Look | None:
        """Find what is to be copied; `held` are the partitions that are, and `failed` those that were let go,
        with the reasons.

        Makes topics and partitions that are missing, moves log starts, notes what has stopped, and reports.
        Returns None if the mirror was deleted. Raises Unreachable, AuthorizationFailed, AnotherCluster, and
        what the store raises.
        """
        self._cluster.refresh()
        mirror = self._cluster.metadata_log.mirrors.get(self._name)
        if mirror is None:
            return None
        self._sharing.look()
        try:
            return self._look(mirror, held, failed)
        except LakelogError as error:
            self._sharing.report_trouble(str(error))
            raise

    def _look(
        self,
        mirror: MirrorRecord,
        held: Collection[TopicPartition],
        failed: Mapping[TopicPartition, Exception],
    ) -> Look:
        if mirror.paused:
            self._take_note(failed)
            self._sharing.report({}, {})
            return Look(frozenset(), [])
        self._check_cluster(mirror)
        there = self._source.topics()
        more = self._create(mirror, there)
        self._take_note(failed)
        stay: set[TopicPartition] = set()
        begin: list[tuple[TopicPartition, _Going, int]] = []
        going = [*self._going(there)]
        self._follow_settings([each.topic.name for each in going])
        lack = self._lack_of_room()
        ranges, positions = dict[TopicPartition, SourceRange](), dict[TopicPartition, int]()
        for each, found in self._ranges(going, held):
            reason = _reason(found, held, mirror.records_gaps)
            if reason:
                self._stop(each.topic.name, reason)
                continue
            if not lack:
                stay.update(place for place in self._mine(each) if place in held)
                begin += [(place, each, at.start) for place, (_, _, at) in found.items() if place not in held]
            for place, (log, before, at) in found.items():
                if log.log_start < at.start <= before:
                    _alone(place, log.truncate, at.start)
                if log.leading:
                    self._upkeep.look_after(log)
                ranges[place], positions[place] = at, log.high_watermark
        with ThreadPoolExecutor(_CLAIMERS, thread_name_prefix="claim") as pool:
            claims = pool.map(lambda each: _alone(each[0], self._claim, *each), begin)
            claimed = self._over_gaps(mirror, [each for each in claims if each is not None])
            copies = pool.map(lambda each: _alone(each.place, _begin, each), claimed)
            begun = [each for each in copies if each is not None]
        self._sharing.report(ranges, positions, lack)
        return Look(frozenset(stay), begun, more)

    def _check_cluster(self, mirror: MirrorRecord) -> None:
        found = check_same_cluster(mirror, self._source)
        if found and not mirror.cluster_id:
            try:
                check_other(self._cluster, mirror.source, found)
            except InvalidArgument as error:
                raise AnotherCluster(str(error)) from None
            change_mirror(self._cluster, self._name, lambda known: replace(known, cluster_id=found))

    def _create(self, mirror: MirrorRecord, there: Mapping[str, int]) -> bool:
        """Make topics of the source that are not here yet: some at a look, so that these are copied soon.
        Returns whether more are to be made.
        """
        wanted = [name for name in matching(mirror, there) if self._is_absent(name)]
        names = [name for name in wanted if self._sharing.owns(TopicPartition(name, 0))]
        some = names[:_CREATED_MAX]
        ids, settings = self._source.ids(some), self._source.settings(some)
        for name in some:
            topic_id, found = ids[name], settings.get(name)
            if isinstance(topic_id, UnknownAtSource) or found is None:
                continue  # it has gone meanwhile
            try:
                if isinstance(topic_id, AuthorizationFailed):
                    raise topic_id
                if isinstance(found, AuthorizationFailed):
                    raise found
                create_copy(self._cluster, self._name, name, topic_id, there[name], found)
                _log.info("the topic %s is created, and copied from now on", name)
            except TopicExists:
                continue  # the next look says whose it is
            except (InvalidRequest, AuthorizationFailed) as error:
                self._refuse(name, str(error))
        return len(names) > len(some)

    def _is_absent(self, name: str) -> bool:
        known = self._cluster.cached_topic(name)
        if known is not None and known.mirror != self._name:
            self._refuse(name, "there is such a topic here, which is no copy of this mirror")
        if known is not None:
            return False
        return self._cluster.clock.monotonic() >= self._refused.get(name, -_AGAIN_S) + _AGAIN_S

    def _refuse(self, name: str, why: str) -> None:
        if name not in self._refused:
            _log.warning("the topic %s is not copied: %s", name, why)
        self._refused[name] = self._cluster.clock.monotonic()

    def _take_note(self, failed: Mapping[TopicPartition, Exception]) -> None:
        """Stop the topics of partitions that failed for good; others are taken again."""
        copies = {each.name for each in self._unstopped()}
        for place, error in failed.items():
            if place.topic not in copies:
                continue  # it was promoted, or has stopped
            if isinstance(error, NotLeader):
                _log.info("%s is copied by another process now", place)
                continue
            if isinstance(error, _STOPPING):
                self._stop(place.topic, f"{place} cannot be copied: {error}")
                copies.discard(place.topic)
            elif isinstance(error, StoreFull):
                self._room.refused(error)
            else:
                _log.warning("%s is read again from its high watermark: %s", place, error)

    def _lack_of_room(self) -> str:
        """Why nothing is copied now: there is no room. Else it is empty. Claims would take of the reserve."""
        try:
            self._room.look()
        except StoreFull as error:
            if not self._is_full:
                _log.warning("the mirror %s has no room, and copies nothing: %s", self._name, error)
            self._is_full = True
            return str(error)
        if self._is_full:
            _log.warning("the mirror %s has room again", self._name)
        self._is_full = False
        return ""

    def _unstopped(self) -> list[TopicRecord]:
        copies = copies_of(self._cluster, self._name)
        return [each for each in copies if not _mirrored(each).stopped]

    def _stop(self, name: str, reason: str) -> None:
        reason = f"{reason}; {_advice(self._name, name)}"
        _log.error("the copy of the topic %s has stopped: %s", name, reason)
        stop_copy(self._cluster, self._name, name, reason)

    def _going(self, there: Mapping[str, int]) -> Iterator[_Going]:
        """The topics whose copy goes on."""
        copies = self._unstopped()
        ids, missing = self._source.ids([each.name for each in copies]), set[str]()
        for each in copies:
            if isinstance(ids[each.name], UnknownAtSource):
                missing.add(each.name)
                if each.name in self._missing:  # a broker that has just started may not know it yet
                    self._stop(each.name, "the source has no such topic any more")
                continue
            try:
                found = check_same_topic(each, ids[each.name])
            except (AuthorizationFailed, UnknownAtSource) as error:
                self._stop(each.name, str(error))
                continue
            if each.name in there:
                if found and not _mirrored(each).topic_id:
                    change_copy(self._cluster, self._name, each.name, partial(_with_id, found))
                if there[each.name] > each.partitions and not self._grow(each.name, there[each.name]):
                    continue
                yield _Going(self._cluster.topic(each.name), found)
        self._missing = missing

    def _grow(self, name: str, partitions: int) -> bool:
        """Give a topic as many partitions as its source has, or stop it; returns whether it has them."""
        try:
            add_partitions(self._cluster, name, partitions, mirror=self._name)
        except InvalidArgument as error:
            if self._cluster.topic(name).partition_count < partitions:
                self._stop(name, str(error))
                return False  # else another process was faster
        return True

    def _follow_settings(self, names: Sequence[str]) -> None:
        """Give topics the settings that their sources have now: some at each look, the longest ago first."""
        now = self._cluster.clock.monotonic()
        mine = [name for name in names if self._sharing.owns(TopicPartition(name, 0))]
        self._compared = {name: self._compared.get(name, now) for name in mine}
        due = sorted((since, name) for name, since in self._compared.items() if now >= since + _SETTINGS_S)
        chosen = [name for _, name in due[:_SETTINGS_MAX]]
        for name, settings in self._source.settings(chosen).items():
            self._compared[name] = now
            if isinstance(settings, AuthorizationFailed):
                _log.warning("the settings of the topic %s are not followed: %s", name, settings)
                continue
            changes = changed_settings(self._cluster.topic(name).config, settings)
            if changes:
                _log.info("the topic %s gets the settings of its source: %s", name, changes)
                try:
                    alter_topic(self._cluster, name, changes, mirror=self._name)
                except InvalidRequest as error:
                    _log.warning("the settings of the topic %s are not followed: %s", name, error)

    def _ranges(
        self, topics: Sequence[_Going], held: Collection[TopicPartition]
    ) -> Iterator[tuple[_Going, _Found]]:
        logs: dict[TopicPartition, tuple[Partition, int]] = {}
        for each in topics:
            for place in self._mine(each):
                log = each.topic.partition(place.partition)
                if place not in held:
                    log.refresh()
                logs[place] = log, log.high_watermark
        ranges = self._source.ranges([*logs])
        for each in topics:
            yield each, {place: (*logs[place], ranges[place]) for place in each.places() if place in ranges}

    def _mine(self, of: _Going) -> list[TopicPartition]:
        """The partitions of a topic that this process copies."""
        return [*filter(self._sharing.owns, of.places())]

    def _claim(self, place: TopicPartition, of: _Going, start: int) -> _Claimed:
        return _Claimed(place, of, self._cluster.claim(of.topic, place.partition, mirror=self._name), start)

    def _over_gaps(self, mirror: MirrorRecord, claimed: Sequence[_Claimed]) -> list[_Claimed]:
        """Leave out those whose copy may not go on at the start of the source; note what the others miss."""
        if not mirror.records_gaps:
            return [each for each in claimed if not each.has_gap]  # the next look stops them
        now_ms, noted = self._cluster.clock.now_ms(), list[MirrorGap]()
        for each in claimed:
            if not each.has_gap:
                continue
            first, last = each.log.high_watermark, each.start - 1
            _log.warning("%s has a gap: the source has deleted the offsets %s to %s", each.place, first, last)
            noted.append(
                MirrorGap(
                    mirror=self._name,
                    topic=each.place.topic,
                    topic_id=each.of.topic.topic_id,
                    partition=each.place.partition,
                    first_offset=first,
                    last_offset=last,
                    noted_ms=now_ms,
                    reason="the source had deleted them before they were copied",
                )
            )
        note_gaps(self._cluster, noted)
        return [*claimed]


def _begin(claimed: _Claimed) -> Copy:
    """The copy of a partition, whose source has nothing below its start."""
    place, of, log, start = claimed
    if log.high_watermark < start:
        log.mirror(NO_RECORDS, start)
    if log.log_start < start:
        log.truncate(start)
    last = last_record(log)
    return Copy(place, log, of.topic_id, log.high_watermark, last)


def _alone(
    place: TopicPartition, act: Callable[[Unpack[_Given]], _Result], *given: *_Given
) -> _Result | None:
    """Act on one partition; None where that fails now, so that it holds up no other. The next look tries it
    again.
    """
    try:
        return act(*given)
    except (Retriable, Conflict, OutcomeUnknown, UnknownTopic) as error:
        _log.warning("%s is not copied now: %s", place, error)
        return None


def _mirrored(copy: TopicRecord) -> MirroredFrom:
    assert copy.mirrored is not None
    return copy.mirrored


def _advice(mirror: str, topic: str) -> str:
    return (
        f"run `lakelog mirror resume {mirror}` once that is mended, or `lakelog mirror promote {mirror} "
        f"--topic {topic} --now` to keep what was copied"
    )


def _with_id(topic_id: str, known: MirroredFrom) -> MirroredFrom:
    return replace(known, topic_id=topic_id)


def _reason(found: _Found, held: Collection[TopicPartition], records_gaps: bool) -> str:
    """Why the copy of a topic cannot go on; empty if it can. Of a partition that is `held` more was read than
    its high watermark says, so a start beyond that is no gap.
    """
    for place, (_, before, at) in found.items():
        if at.end < before:
            return (
                f"the source of {place} ends at offset {at.end}, and the copy at {before}: the source lost "
                "records"
            )
        if 0 < before < at.start and place not in held and not records_gaps:
            return (
                f"the source of {place} begins at offset {at.start}, and the copy ends at {before}: the "
                "source deleted what is between before it was copied"
            )
    return ""
