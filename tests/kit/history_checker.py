"""Compare a history with what the partitions hold afterwards: what is lost, doubled, reordered, half there?

Every finding is a fault, whatever came of the operations that are unknown: each of them may have happened
once or not at all, at any time after it was begun. A fault that such an operation could excuse is not found.

What is taken for granted: the log is read when nothing is under way any more, and what transactions have
committed is applied; values are unique, and sent with acks=all; logs begin at 0 and nothing is deleted;
groups begin with the earliest record, commit behind what their own members have polled, and a group with
transactions consumes each record in one of them.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, pairwise

from tests.kit.history import At, Commit, Fetch, Operation, Outcome, Placed, Poll, Rows, Span, Write


class Kind(StrEnum):
    LOST = "an acknowledged value is not there"
    DOUBLED = "a value is there more than once"
    UNSENT = "a value is there that nobody has sent"
    FAILED_YET_THERE = "a write that failed is there"
    MISPLACED = "a value is elsewhere than it was sent to, or acknowledged"
    REORDERED = "offsets are not in the order of sending"
    HALF = "a write or transaction is there in part"
    MISREAD = "a read returned what the log does not hold there"
    SKIPPED = "a read passed over records"
    DISORDERED_READ = "a read returned records out of order"
    STALE = "a fetch has nothing of what was acknowledged before it"
    MISSED = "a group has committed beyond a record that none of its members was given"
    COMMIT_LOST = "a committed offset is not what the last commits say"
    REWOUND = "a member was given again what it had committed"
    CONSUMED_TWICE = "two transactions have consumed the same records"


@dataclass(frozen=True)
class Finding:
    kind: StrEnum
    text: str


@dataclass(frozen=True)
class Log:
    """The final state: values by offset, and the committed offsets of groups."""

    records: Mapping[At, Mapping[int, str]]
    committed: Mapping[str, Mapping[At, int]]


@dataclass(frozen=True)
class _There:
    """A part of a write, and the offsets at which its values are, in their order."""

    write: Write
    operation: Operation
    offsets: list[int]
    told: bool


def check(operations: Sequence[Operation], log: Log) -> list[Finding]:
    """All findings about a history and its final log; empty if nothing is wrong."""
    places = _places(log)
    writes = [(op, op.asked) for op in operations if isinstance(op.asked, Write)]
    found = [
        *_strangers(writes, places),
        *(finding for op, write in writes for finding in _fate(op, write, places)),
        *_disorder(writes, places),
        *(finding for op in operations for finding in _misreadings(op, log)),
        *_stale(operations, writes),
        *_missed(operations, log),
        *_lost_commits(operations, log),
        *_rewound(operations),
        *_consumption(operations, log, places),
    ]
    return list(dict.fromkeys(found))


Places = Mapping[str, Sequence[tuple[At, int]]]
Writes = Sequence[tuple[Operation, Write]]


def _places(log: Log) -> Places:
    found: dict[str, list[tuple[At, int]]] = defaultdict(list)
    for at, records in log.records.items():
        for offset, value in sorted(records.items()):
            found[value].append((at, offset))
    return found


def _strangers(writes: Writes, places: Places) -> Iterator[Finding]:
    sent = {value for _, write in writes for part in write.parts for value in part.values}
    for value, found in places.items():
        if value not in sent:
            yield Finding(Kind.UNSENT, f"{value!r} at {_named(found)}")
        if len(found) > 1:
            yield Finding(Kind.DOUBLED, f"{value!r} at {_named(found)}")


def _fate(op: Operation, write: Write, places: Places) -> Iterator[Finding]:
    """Findings about a write: its values must be in the log as its answer says, all of them or none."""
    values = [(part.at, value) for part in write.parts for value in part.values]
    there = [value for _, value in values if value in places]
    missing = [value for _, value in values if value not in places]
    if op.outcome is Outcome.FAILED and there:
        yield Finding(Kind.FAILED_YET_THERE, f"{there} of {write.producer}")
    if op.ok and missing:
        yield Finding(Kind.LOST, f"{missing} of {write.producer}, acknowledged at {_answered(op)}")
    if there and missing:
        yield Finding(Kind.HALF, f"of one write of {write.producer}, {there} are there, {missing} are not")
    for (at, value), told in zip(values, _answered(op) or [None] * len(values), strict=True):
        found = places.get(value, ())
        if found and not any(where == at and told in (None, offset) for where, offset in found):
            wanted = f"{at}" if told is None else f"{at}@{told}"
            yield Finding(Kind.MISPLACED, f"{value!r} is at {_named(found)}, not at {wanted}")


def _answered(op: Operation) -> tuple[int | None, ...]:
    return op.answer.offsets if isinstance(op.answer, Placed) else ()


def _disorder(writes: Writes, places: Places) -> Iterator[Finding]:
    """Three orders in a partition: of one request's values, of a producer's numbers, and of time."""
    for at, parts in _parts_there(writes, places).items():
        for part in parts:
            if part.offsets != sorted(part.offsets):
                yield Finding(Kind.REORDERED, f"within {_titled(at, part)}: offsets {part.offsets}")
        in_order = sorted(parts, key=lambda part: part.offsets[0])
        for lane in _lanes(in_order, lambda write: "" if write.number is None else write.producer):
            for one, two in pairwise(lane):
                if (one.write.number or 0) > (two.write.number or 0):
                    yield Finding(Kind.REORDERED, f"{_titled(at, one)} was sent after {_titled(at, two)}")
        # A transaction whose place was not told may still be on its way there, but behind none of its group.
        yield from _overtaken(at, in_order, untold_count=False)
        for lane in _lanes(in_order, lambda write: write.group):
            yield from _overtaken(at, lane, untold_count=True)


def _lanes(parts: Iterable[_There], name: Callable[[Write], str]) -> Iterable[list[_There]]:
    """The parts by the name that `name` gives their writes; those without one are left out."""
    found: dict[str, list[_There]] = defaultdict(list)
    for part in parts:
        if name(part.write):
            found[name(part.write)].append(part)
    return found.values()


def _parts_there(writes: Writes, places: Places) -> dict[At, list[_There]]:
    found: dict[At, list[_There]] = defaultdict(list)
    for op, write in writes:
        answered = iter(_answered(op))
        for part in write.parts:
            told = [next(answered, None) for _ in part.values]
            offsets = [o for v in part.values for at, o in places.get(v, ())[:1] if at == part.at]
            if offsets:
                known = not write.group or None not in told
                found[part.at].append(_There(write, op, offsets, known))
    return found


def _overtaken(at: At, in_order: Sequence[_There], untold_count: bool) -> Iterator[Finding]:
    """Findings about records that stand before others although their write began only after those were
    acknowledged.
    """
    earliest: _There | None = None
    for part in reversed(in_order):
        if earliest is not None and earliest.operation.end < part.operation.begin:
            text = f"{_titled(at, part)} was begun after {_titled(at, earliest)} was acknowledged"
            yield Finding(Kind.REORDERED, text)
        counts = part.operation.ok and (part.told or untold_count)
        if counts and (earliest is None or part.operation.end < earliest.operation.end):
            earliest = part


def _titled(at: At, part: _There) -> str:
    values = [value for each in part.write.parts if each.at == at for value in each.values]
    return f"{values} of {part.write.producer} at {at}@{part.offsets[0]}"


def _misreadings(op: Operation, log: Log) -> Iterator[Finding]:
    if not isinstance(op.answer, Rows):
        return
    by_partition: dict[At, list[int]] = defaultdict(list)
    for row in op.answer.rows:
        by_partition[row.at].append(row.offset)
        held = log.records.get(row.at, {}).get(row.offset)
        if held != row.value:
            yield Finding(Kind.MISREAD, f"{row.at}@{row.offset} was read as {row.value!r} and is {held!r}")
    for at, offsets in by_partition.items():
        if offsets != sorted(set(offsets)):
            yield Finding(Kind.DISORDERED_READ, f"{at}: {offsets}")
        passed = range(min(offsets), max(offsets))
        yield from _passed_over(Kind.SKIPPED, at, passed, set(offsets), log)
    if isinstance(op.asked, Fetch):
        yield from _strays(op.asked, op.answer, log)


def _strays(asked: Fetch, answer: Rows, log: Log) -> Iterator[Finding]:
    """Findings about a fetch: rows that it must not return, and offsets that it passed over."""
    for row in answer.rows:
        if row.at != asked.at or row.offset < asked.offset:
            text = f"{row.at}@{row.offset} was read from {asked.at}@{asked.offset} on"
            yield Finding(Kind.MISREAD, text)
    if answer.next_offset is not None:
        given = {row.offset for row in answer.rows}
        passed = range(asked.offset, answer.next_offset)
        yield from _passed_over(Kind.SKIPPED, asked.at, passed, given, log)


def _passed_over(kind: Kind, at: At, wanted: Iterable[int], given: set[int], log: Log) -> Iterator[Finding]:
    records = log.records.get(at, {})
    passed = [offset for offset in wanted if offset in records and offset not in given]
    if passed:
        yield Finding(kind, f"{at}: offsets {passed}")


def _stale(operations: Sequence[Operation], writes: Writes) -> Iterator[Finding]:
    """Fetches without any record from an offset on, or behind it, that was acknowledged before they began."""
    told: dict[At, list[tuple[float, int]]] = defaultdict(list)
    for op, write in writes:
        ats = [part.at for part in write.parts for _ in part.values]
        for at, offset in zip(ats, _answered(op), strict=False):
            if offset is not None:
                told[at].append((op.end, offset))
    for found in told.values():
        found.sort()
    newest = {at: [*accumulate((offset for _, offset in found), max)] for at, found in told.items()}
    for op in operations:
        asked = op.asked
        if isinstance(asked, Fetch) and isinstance(op.answer, Rows) and not op.answer.rows:
            before = bisect_left(told[asked.at], (op.begin, 0))
            if before and newest[asked.at][before - 1] >= asked.offset:
                text = f"{asked.at} from {asked.offset} on, of offsets up to {newest[asked.at][before - 1]}"
                yield Finding(Kind.STALE, text)


def _missed(operations: Sequence[Operation], log: Log) -> Iterator[Finding]:
    given: dict[str, dict[At, set[int]]] = {}
    for op in operations:
        if isinstance(op.asked, Poll):
            group = given.setdefault(op.asked.group, defaultdict(set))
            for row in op.answer.rows if isinstance(op.answer, Rows) else ():
                group[row.at].add(row.offset)
    for name, partitions in given.items():
        for at, offset in log.committed.get(name, {}).items():
            for finding in _passed_over(Kind.MISSED, at, range(offset), partitions[at], log):
                yield Finding(finding.kind, f"group {name}, {finding.text}")


@dataclass(frozen=True)
class _Set:
    """A committed offset was set, or perhaps set, `by` a member."""

    offset: int
    operation: Operation
    by: str


def _lost_commits(operations: Sequence[Operation], log: Log) -> Iterator[Finding]:
    """A committed offset must be one that was set and not followed by a later, acknowledged one."""
    known = _settings(operations)
    for (group, at), settings in known.items():
        final = log.committed.get(group, {}).get(at)
        newest = max((s for s in settings if s.operation.ok), key=lambda s: s.operation.begin, default=None)
        if final is None and newest is None:
            continue
        since = 0.0 if newest is None else newest.operation.begin
        if not any(s.offset == final and s.operation.end >= since for s in settings):
            last = "none" if newest is None else f"{newest.offset}"
            text = f"group {group}, {at}: {final} is committed, the last acknowledged one is {last}"
            yield Finding(Kind.COMMIT_LOST, text)
    for group, offsets in log.committed.items():
        for at, final in offsets.items():
            if (group, at) not in known:
                yield Finding(Kind.COMMIT_LOST, f"group {group}, {at}: {final} is committed, by nobody")


def _settings(operations: Sequence[Operation]) -> dict[tuple[str, At], list[_Set]]:
    found: dict[tuple[str, At], list[_Set]] = defaultdict(list)
    for op in operations:
        if op.outcome is Outcome.FAILED:
            continue
        if isinstance(op.asked, Commit):
            for place in op.asked.places:
                found[op.asked.group, place.at].append(_Set(place.offset, op, op.asked.member))
        elif isinstance(op.asked, Write):
            for span in op.asked.consumed:
                found[op.asked.group, span.at].append(_Set(span.end, op, op.asked.producer))
    return found


def _rewound(operations: Sequence[Operation]) -> Iterator[Finding]:
    """A poll begins behind what its own member was told to have committed, unless others moved that back.

    Partitions that somebody sets back while their members read are left out: a member goes on from there, and
    may yet commit what it had read before.
    """
    known = {
        key: settings for key, settings in _settings(operations).items() if all(each.by for each in settings)
    }
    told: dict[tuple[str, At, str], list[_Set]] = defaultdict(list)
    for (group, at), settings in known.items():
        for each in sorted((s for s in settings if s.operation.ok and s.by), key=lambda s: s.operation.end):
            told[group, at, each.by].append(each)
    for op in operations:
        if not isinstance(op.asked, Poll) or not isinstance(op.answer, Rows):
            continue
        group, member = op.asked.group, op.asked.member
        for at, first in {row.at: row.offset for row in reversed(op.answer.rows)}.items():
            own = told[group, at, member]
            before = bisect_left(own, op.begin, key=lambda s: s.operation.end)
            if not before or first >= own[before - 1].offset:
                continue
            since = own[before - 1].operation.begin
            excused = (s for s in known[group, at] if s.offset <= first and s.operation.begin <= op.end)
            if not any(s.operation.end >= since for s in excused):
                text = f"group {group}, {member} at {at}: {first} after {own[before - 1].offset}"
                yield Finding(Kind.REWOUND, text)


@dataclass(frozen=True)
class _Consumed:
    """The spans of a partition that transactions of a group consumed: `surely`, or `perhaps`, where a
    transaction leaves no trace.
    """

    first: int
    surely: list[Span]
    perhaps: list[Span]


def _consumption(operations: Sequence[Operation], log: Log, places: Places) -> Iterator[Finding]:
    """Findings about partitions that groups consume by transactions: exactly one transaction in the log must
    consume each record.
    """
    with_commits = {
        (op.asked.group, place.at)
        for op in operations
        if isinstance(op.asked, Commit)
        for place in op.asked.places
    }
    for (group, at), consumed in _consumed(operations, places).items():
        spans = sorted(consumed.surely, key=lambda span: (span.start, span.end))
        for one, two in pairwise(spans):
            if two.start < one.end:
                text = f"group {group}, {at}: {one.start} to {one.end} and {two.start} to {two.end}"
                yield Finding(Kind.CONSUMED_TWICE, text)
        if (group, at) not in with_commits:
            final = log.committed.get(group, {}).get(at)
            yield from _torn(f"group {group}, {at}", consumed, final)


def _consumed(operations: Sequence[Operation], places: Places) -> dict[tuple[str, At], _Consumed]:
    found: dict[tuple[str, At], _Consumed] = {}
    for op in operations:
        if not isinstance(op.asked, Write):
            continue
        values = [value for part in op.asked.parts for value in part.values]
        for span in op.asked.consumed:
            before = found.get((op.asked.group, span.at), _Consumed(span.start, [], []))
            consumed = _Consumed(min(before.first, span.start), before.surely, before.perhaps)
            found[op.asked.group, span.at] = consumed
            if op.ok or any(value in places for value in values):
                consumed.surely.append(span)
            elif not values and op.outcome is Outcome.UNKNOWN:
                consumed.perhaps.append(span)
    return found


def _torn(title: str, consumed: _Consumed, final: int | None) -> Iterator[Finding]:
    """Outputs without their offsets, or offsets without their outputs."""
    position = consumed.first
    end = max((span.end for span in consumed.surely), default=position)
    if (position if final is None else final) < end:
        yield Finding(Kind.HALF, f"{title}: outputs up to {end} are there, {final} is committed")
    for span in sorted(consumed.surely + consumed.perhaps, key=lambda span: span.start):
        if span.start > position:
            text = f"{title}: {position} to {span.start} were passed over, without their outputs"
            yield Finding(Kind.HALF, text)
        position = max(position, span.end)
    if final is not None and final > position:
        yield Finding(Kind.HALF, f"{title}: {final} is committed, outputs are there up to {position}")


def _named(places: Iterable[tuple[At, int]]) -> str:
    return ", ".join(f"{at}@{offset}" for at, offset in places)
