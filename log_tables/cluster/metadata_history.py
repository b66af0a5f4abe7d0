"""The versions of a topic and of the rules of access, as the metadata log still has them.

A version is the offset of the record that made it. Compaction by key leaves alone what is younger than
METADATA_HISTORY_MS, so from a known moment on every version is there.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import groupby
from typing import Protocol, TypeVar

from log_tables.cluster.access_record import (
    ACCESS_KEY,
    AccessRules,
    AccessTable,
    Quota,
    Rule,
    RuleRecord,
    SecurityRecord,
    rule_name,
)
from log_tables.cluster.acl import Acl
from log_tables.cluster.metadata_log import TopicRecord, decode
from log_tables.cluster.topic_settings import COMPACT
from log_tables.errors import NotFound, OffsetOutOfRange
from log_tables.limits import BATCH_MAX_BYTES, METADATA_HISTORY_BYTES, METADATA_HISTORY_MS, METADATA_WINDOW_MS
from log_tables.partition.reader import PartitionReader
from log_tables.record import Record, timestamp_us, to_records
from log_tables.table.snapshot import Snapshot


def metadata_configs(snapshot: Snapshot, now_ms: int) -> Mapping[str, str]:
    """The settings by which the metadata log is merged and compacted, with `snapshot` at `now_ms` (since
    1970). Merges keep days apart, so that a segment becomes old as a whole.

    Compaction leaves alone what is younger than METADATA_HISTORY_MS, unless that is too large to be read at
    each start: then less.
    """
    lag_ms, room = METADATA_HISTORY_MS, METADATA_HISTORY_BYTES
    for segment in reversed(snapshot.segments):
        room -= segment.raw_bytes or segment.size
        if room < 0 and segment.last_offset >= snapshot.cleaned:
            lag_ms = min(lag_ms, max(0, now_ms - timestamp_us(segment.max_timestamp) // 1_000))
            break
    return {
        "cleanup.policy": COMPACT,
        "min.compaction.lag.ms": str(lag_ms),
        "segment.ms": str(METADATA_WINDOW_MS),
    }


class TopicEvent(StrEnum):
    """The kinds of changes of a topic."""

    CREATED = "created"
    ALTERED = "altered"
    GROWN = "grown"
    MIRRORED = "mirrored"
    DELETED = "deleted"
    UNDELETED = "undeleted"
    KEPT = "kept"
    """Nobody knows: the version before is compacted away."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting or a rule as it was and as it is: None for a setting at its default, and where there is no
    rule.
    """

    name: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class TopicVersion:
    """A topic from `version` on, at `at_ms` (milliseconds since 1970)."""

    version: int
    at_ms: int
    event: TopicEvent
    record: TopicRecord
    changes: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class AccessVersion:
    """The rules of access from `version` on: `changes` are those of one append.

    The first version stands for all before it, without `changes`.
    """

    version: int
    at_ms: int
    changes: tuple[Difference, ...] = ()


class _Version(Protocol):
    @property
    def version(self) -> int: ...
    @property
    def at_ms(self) -> int: ...


_V = TypeVar("_V", bound=_Version)


@dataclass(frozen=True, slots=True)
class TopicHistory:
    """The versions of a topic, the oldest first. All since `since_ms` are there; 0: all that there were."""

    name: str
    versions: tuple[TopicVersion, ...]
    since_ms: int

    def find(self, version: int | None, time_ms: int | None) -> TopicVersion:
        """The version `version`, or the one at `time_ms`. Raises NotFound, OffsetOutOfRange.

        Of an earlier topic of the name there is none: its settings may be those of something else.
        """
        newest = self.versions[-1]
        found = _found(self.versions, version, time_ms, self.since_ms, f"topic {self.name!r}")
        if found.record.topic_id != newest.record.topic_id:
            raise NotFound(
                f"version {found.version} is of an earlier topic {self.name!r}, which was deleted; see "
                f"`lakelog topic history {self.name}`"
            )
        return found


@dataclass(frozen=True, slots=True)
class AccessHistory:
    """The versions of the rules of access, the oldest first; `since_ms` is as in TopicHistory."""

    versions: tuple[AccessVersion, ...]
    since_ms: int
    _records: tuple[tuple[int, RuleRecord], ...] = ()

    def find(self, version: int | None, time_ms: int | None) -> AccessVersion:
        """The version `version`, or the one at `time_ms`. Raises NotFound, OffsetOutOfRange."""
        return _found(self.versions, version, time_ms, self.since_ms, "the rules of access")

    def rules(self, version: AccessVersion) -> AccessRules:
        """All rules as of one of the versions."""
        table = AccessTable()
        for offset, record in self._records:
            if offset <= version.version:
                table.take(record)
        return table.rules()


def _found(versions: Sequence[_V], version: int | None, time_ms: int | None, since_ms: int, what: str) -> _V:
    if version is not None:
        found = next((each for each in versions if each.version == version), None)
        if found is None:
            raise NotFound(f"there is no version {version} of {what}; see its history")
        return found
    assert time_ms is not None
    known = [each for each in versions if each.at_ms <= time_ms]
    if not known:
        first = versions[0].at_ms if versions else 0
        if versions and not since_ms:
            raise OffsetOutOfRange(
                f"at {_iso(time_ms)} there was nothing of {what} yet: its history is complete, and begins at "
                f"{_iso(first)}; name a later time"
            )
        raise OffsetOutOfRange(
            f"the history of {what} does not reach back to {_iso(time_ms)}: its oldest version is of "
            f"{_iso(first)}, and it is complete since {_iso(since_ms)}"
        )
    return known[-1]


def _iso(at_ms: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)).isoformat(timespec="seconds")


def topic_history(log: PartitionReader, name: str) -> TopicHistory:
    """The versions of the topic `name` in the metadata log as last refreshed; blocking: it reads all of it.

    Raises NotFound when there never was one, CorruptLog, CorruptSegment, StoreUnavailable.
    """
    versions: list[TopicVersion] = []
    before: TopicRecord | None = None
    cleaned, since_ms = log.snapshot.cleaned, 0
    for record in _records(log):
        if (record.offset or 0) < cleaned:
            since_ms = _ms(record)
        if record.key != name.encode():
            continue
        found = decode(record)
        assert isinstance(found, TopicRecord)
        event = _event(before, found, is_first_known=(record.offset or 0) < cleaned)
        if event is not None:
            changes = differences(
                {} if before is None or _is_new(before, found) else before.configs, found.configs
            )
            versions.append(TopicVersion(record.offset or 0, _ms(record), event, found, tuple(changes)))
        before = found
    if not versions:
        raise NotFound(f"there is no history of a topic {name!r}; check its name")
    return TopicHistory(name, tuple(versions), since_ms)


def _is_new(before: TopicRecord, now: TopicRecord) -> bool:
    return before.topic_id != now.topic_id


def _event(before: TopicRecord | None, now: TopicRecord, *, is_first_known: bool) -> TopicEvent | None:
    """The change between two records; None where only files of earlier topics were removed."""
    is_new = before is None or _is_new(before, now)
    if not now.live:
        return TopicEvent.DELETED if is_new or (before and before.live) else None
    if before is None or is_new:
        return TopicEvent.KEPT if before is None and is_first_known else TopicEvent.CREATED
    changed = {
        TopicEvent.UNDELETED: not before.live,
        TopicEvent.GROWN: before.partitions != now.partitions,
        TopicEvent.ALTERED: before.configs != now.configs,
        TopicEvent.MIRRORED: before.mirrored != now.mirrored,
    }
    return next((event for event, is_so in changed.items() if is_so), None)


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Difference]:
    """The settings that differ, by name."""
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield Difference(name, old.get(name), new.get(name))


def access_history(log: PartitionReader) -> AccessHistory:
    """The versions of the rules of access, as `topic_history`. Before the first change there is the version
    -1, without rules, or the newest one that compaction has kept.
    """
    cleaned, since_ms, known = log.snapshot.cleaned, 0, dict[bytes, Rule]()
    records: list[tuple[int, RuleRecord]] = []
    base = AccessVersion(-1, 0)
    versions: list[AccessVersion] = []
    for (at_us, is_old), several in groupby(
        _rules(log), key=lambda each: (each[0].timestamp_us, _old(each[0], cleaned))
    ):
        changes: list[Difference] = []
        for record, rule in several:
            records.append((record.offset or 0, rule))
            changes += _difference(rule.key, known.pop(rule.key, None), rule.rule)
            if rule.rule is not None:
                known[rule.key] = rule.rule
        at_ms = (at_us or 0) // 1_000
        if is_old:
            base = AccessVersion(records[-1][0], at_ms)
        else:
            versions.append(AccessVersion(records[-1][0], at_ms, tuple(changes)))
    for record in _records(log, end=cleaned):
        since_ms = _ms(record)
    return AccessHistory((base, *versions), since_ms, tuple(records))


def acls_at_deletion(log: PartitionReader, name: str, topic_id: str) -> frozenset[Acl] | None:
    """The ACLs that there were when the topic with the id was deleted last; None where the log, as last
    refreshed, does not say so any more. Blocking: it reads all of it.
    """
    table, found, was_live = AccessTable(), None, False
    for record in _records(log):
        read = decode(record)
        if isinstance(read, RuleRecord):
            table.take(read)
        elif isinstance(read, TopicRecord) and read.name == name:
            is_live = read.live and read.topic_id == topic_id
            if was_live and not is_live:
                found = table.rules().acls
            was_live = is_live
    return found


def _difference(key: bytes, before: Rule | None, now: Rule | None) -> list[Difference]:
    """A change of one rule, none for a repeat."""
    rule = now or before
    if rule is None or now == before:
        return []
    if isinstance(rule, Acl):
        return [Difference(str(rule), *(None if each is None else "there" for each in (before, now)))]
    return [Difference(rule_name(key), _text(before), _text(now))]


def acl_changes(added: Iterable[Acl], removed: Iterable[Acl]) -> list[Difference]:
    """ACLs that come and go."""
    come = [Difference(str(acl), None, "there") for acl in added]
    return come + [Difference(str(acl), "there", None) for acl in removed]


def quota_changes(changed: Mapping[str, tuple[Quota | None, Quota | None]]) -> list[Difference]:
    """Quotas now and then, by entity."""
    return [
        Difference(entity, *(None if each is None else quota_text(each) for each in pair))
        for entity, pair in changed.items()
    ]


def _text(rule: Rule | None) -> str | None:
    if isinstance(rule, Quota):
        return quota_text(rule)
    if isinstance(rule, SecurityRecord):
        return "on" if rule.secured else "off"
    return None if rule is None else "there"


def quota_text(quota: Quota) -> str:
    """Its rates, such as `producer_byte_rate=1000, request_rate=5`."""
    rates = ((name, getattr(quota, name)) for name in Quota.__struct_fields__)
    return ", ".join(f"{name}={rate:.15g}" for name, rate in rates if rate is not None)


def _rules(log: PartitionReader) -> Iterator[tuple[Record, RuleRecord]]:
    for record in _records(log):
        if (record.key or b"").startswith(ACCESS_KEY):
            found = decode(record)
            assert isinstance(found, RuleRecord)
            yield record, found


def _old(record: Record, cleaned: int) -> bool:
    return (record.offset or 0) < cleaned


def _records(log: PartitionReader, end: int | None = None) -> Iterator[Record]:
    """The records of the log in order, below offset `end`."""
    at, end = log.log_start, log.high_watermark if end is None else end
    while at < end:
        plan = log.plan_read(at, BATCH_MAX_BYTES)
        for batch in log.read(plan):
            for record in to_records(batch):
                if (record.offset or 0) < end:
                    yield record
        at = plan.end


def _ms(record: Record) -> int:
    return (record.timestamp_us or 0) // 1_000
