"""Whether the copies of a mirror hold what their source holds, by digests of ranges of offsets.

A digest is the one of log_tables/sql/record_digest.py, over the records that the source gives, and over those
that the tables have. Both sides are read at the same time, piece by piece, so that neither is in memory.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import md5
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from jobs.mirror.same_source import check_same_cluster, check_same_topic
from jobs.mirror.source import NotNow, Source, UnknownAtSource
from jobs.mirror.source_reader import SourceReader
from log_tables.clock import timer
from log_tables.cluster.admin.mirror_admin import chosen_copies, mirror_named
from log_tables.cluster.admin.mirror_progress import SourceRange
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import TopicRecord
from log_tables.counts import counted
from log_tables.errors import (
    AuthorizationFailed,
    Damaged,
    InvalidRecord,
    LakelogError,
    OffsetOutOfRange,
    TopicDeleted,
)
from log_tables.layout import HEADERS, KEY, OFFSET, TIMESTAMP, VALUE
from log_tables.limits import MIB
from log_tables.partition.partition import Partition
from log_tables.partition.read_plan import ReadPlan
from log_tables.record import Record, batch_bytes, int64s, timestamp_text, to_records
from log_tables.sql.record_digest import Digester, Digests, joined
from log_tables.topic_partition import TopicPartition as Place

RANGE = 100_000
"""How many offsets have one digest; ranges begin at multiples of it."""

_WORKERS = 2
_HELD_BYTES = 16 * MIB
"""How much of the source may wait for its digests."""

_PIECE = 16_384
"""How many records of this side are digested at once."""

_SHOWN, _BEFORE = 40, 10
"""How many bytes of a value are shown, and how many of them are before the first that differs."""

_OF_A_TOPIC = (AuthorizationFailed, Damaged, InvalidRecord, NotNow, TopicDeleted, UnknownAtSource)
"""What keeps a partition from being verified, and not the others."""


_NO_LEADER = "it has no leader at the source; verify it again"
_NOT_HERE = "it is not here yet; see that the mirror's `lakelog mirror run` runs"

Header = tuple[str, bytes | None]


class Difference(NamedTuple):
    """The first offset at which both sides differ: in which field, and what they have there, shortened.

    The field is `record` where one side has none, and `end` where the source ends before its copy.
    """

    offset: int
    field: str
    here: str
    source: str


class RangeVerdict(NamedTuple):
    """The digests of a range of offsets. The source gave `records` of them; it has compacted away `removed`
    others that are here, which the digest of here has, too.
    """

    start: int
    end: int
    records: int
    removed: int
    here: str
    source: str
    equal: bool


@dataclass
class Verdict:
    """The findings of one partition, between the offsets that both sides had when it began.

    `failed` says why it could not be verified; empty if it was.
    """

    topic: str
    partition: int
    start: int
    end: int
    ranges: list[RangeVerdict] = field(default_factory=list)
    difference: Difference | None = None
    failed: str = ""
    seconds: float = 0.0

    @property
    def is_equal(self) -> bool:
        """Whether it was verified, and nothing differs."""
        return self.difference is None and not self.failed

    @property
    def records(self) -> int:
        """How many records were compared."""
        return sum(each.records for each in self.ranges)

    @property
    def removed(self) -> int:
        """How many records are here that the source has compacted away."""
        return sum(each.removed for each in self.ranges)


@dataclass(frozen=True)
class Sample:
    """So many ranges of each partition, which the seed decides."""

    ranges: int
    seed: str


def verify(
    cluster: Cluster,
    name: str,
    source: Source,
    topics: Collection[str] = (),
    sample: Sample | None = None,
    width: int = RANGE,
    on_verdict: Callable[[Verdict], None] = lambda _: None,
) -> list[Verdict]:
    """Compare `topics` of the mirror `name`, or all, with their source: all ranges, of `width` offsets each,
    or a sample. `on_verdict` hears of each partition when it is done.

    Raises InvalidArgument, Unreachable, AnotherCluster, StoreUnavailable. What keeps one partition from being
    verified is in its verdict.
    """
    with _Verifier(cluster, name, source, width, sample) as verifier:
        verdicts = []
        for verdict in verifier.run(chosen(cluster, name, topics)):
            verdicts.append(verdict)
            on_verdict(verdict)
        return verdicts


def chosen(cluster: Cluster, name: str, topics: Collection[str]) -> list[TopicRecord]:
    """`chosen_copies`, as they are now."""
    cluster.refresh()
    return chosen_copies(cluster, name, topics)


def ranges_of(start: int, end: int, width: int) -> list[tuple[int, int]]:
    """Start ≤ offset < end in ranges that begin at multiples of `width`, but for the first."""
    borders = [start, *range((start // width + 1) * width, end, width), end]
    return [*pairwise(borders)] if start < end else []


@dataclass
class _Pair:
    """A partition on both sides. `log` had `position` as its high watermark before the source was asked."""

    copy: TopicRecord
    place: Place
    log: Partition
    position: int
    compacts: bool
    at: SourceRange

    @property
    def start(self) -> int:
        return max(self.log.log_start, self.at.start)

    @property
    def end(self) -> int:
        return max(self.start, min(self.position, self.at.end))


class _Compared(NamedTuple):
    """A range whose digests are there, and the offset of the first difference that nothing explains."""

    verdict: RangeVerdict
    differs_at: int | None


class _Verifier:
    def __init__(
        self, cluster: Cluster, name: str, source: Source, width: int, sample: Sample | None
    ) -> None:
        self._cluster, self._name, self._source, self._width = cluster, name, source, width
        self._sample, self._digester, self._reader = sample, Digester(), SourceReader(source)
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="verify")
        self._held: deque[tuple[Future[Digests], int]] = deque()
        self._held_bytes = 0

    def __enter__(self) -> "_Verifier":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._reader.__exit__()

    def run(self, copies: Sequence[TopicRecord]) -> Iterator[Verdict]:
        """The verdicts of all partitions of `copies`, one after the other."""
        check_same_cluster(mirror_named(self._cluster, self._name), self._source)
        ids, there = self._source.ids([each.name for each in copies]), self._source.topics()
        for copy in copies:
            places = [Place(copy.name, number) for number in range(copy.partitions)]
            try:
                check_same_topic(copy, ids[copy.name])
                compacts = self._compacts(copy.name)
                logs = {place: self._position(place) for place in places}
                ranges = self._source.ranges(places)
            except _OF_A_TOPIC as error:
                for place in places:
                    yield Verdict(*place, 0, 0, failed=str(error))
                continue
            for place, found in logs.items():
                if isinstance(found, LakelogError):
                    yield Verdict(*place, 0, 0, failed=str(found))
                elif place in ranges:
                    yield self._partition(_Pair(copy, place, *found, compacts, ranges[place]))
                else:
                    yield Verdict(*place, 0, 0, failed=_NO_LEADER)
            for number in range(copy.partitions, there.get(copy.name, 0)):
                yield Verdict(copy.name, number, 0, 0, failed=_NOT_HERE)

    def _position(self, place: Place) -> tuple[Partition, int] | LakelogError:
        """The log of a partition, and its high watermark; or the damage of its table."""
        try:
            log = self._cluster.topic(place.topic).partition(place.partition)
            return log, log.refresh().high_watermark
        except Damaged as damage:
            return damage

    def _compacts(self, topic: str) -> bool:
        return "compact" in self._source.settings_of(topic).get("cleanup.policy", "")

    def _partition(self, pair: _Pair) -> Verdict:
        began, verdict = timer(), Verdict(*pair.place, pair.start, pair.end)
        try:
            compared = [each.result() for each in self._compare(pair, self._wanted(pair))]
            verdict.ranges = [each.verdict for each in compared]
            self._take_again(pair, verdict, [n for n, each in enumerate(compared) if not each.verdict.equal])
            if verdict.difference is None and self._ends_before(pair):
                verdict.difference = Difference(
                    pair.at.end, "end", f"the copy ends at {pair.position}", f"it ends at {pair.at.end}"
                )
        except _OF_A_TOPIC as error:
            verdict.failed = str(error)
        verdict.seconds = timer() - began
        return verdict

    def _ends_before(self, pair: _Pair) -> bool:
        return pair.at.end < pair.position and self._now(pair).end < pair.position

    def _now(self, pair: _Pair) -> SourceRange:
        found = self._source.ranges([pair.place]).get(pair.place)
        if found is None:
            raise NotNow(_NO_LEADER)
        return found

    def _wanted(self, pair: _Pair) -> list[tuple[int, int]]:
        ranges = ranges_of(pair.start, pair.end, self._width)
        if self._sample is None or self._sample.ranges >= len(ranges):
            return ranges
        seed = f"{self._sample.seed} {pair.place}"
        return sorted(sorted(ranges, key=lambda each: _drawn(seed, each[0]))[: self._sample.ranges])

    def _take_again(self, pair: _Pair, verdict: Verdict, suspects: Sequence[int]) -> None:
        """Look once more at ranges that differ: either side may have deleted records meanwhile. The first
        that still differs is the difference.
        """
        for number in suspects:
            before = verdict.ranges[number]
            pair.log.refresh()
            pair.at = SourceRange(self._now(pair).start, pair.at.end)
            pair.compacts = pair.compacts or self._compacts(pair.place.topic)
            start, end = max(before.start, pair.start), max(before.end, pair.start)
            again = [each.result() for each in self._compare(pair, [(start, end)])]
            verdict.ranges[number] = again[0].verdict
            at = again[0].differs_at
            if at is not None:
                check_same_topic(pair.copy, self._source.ids([pair.copy.name])[pair.copy.name])
                verdict.difference = self._difference(pair, at)
                return

    def _compare(self, pair: _Pair, ranges: Sequence[tuple[int, int]]) -> list["Future[_Compared]"]:
        """Read the source's records of `ranges`, and compare each range when it was read."""
        done = []
        for span in _spans(ranges):
            read = self._reader.read(pair.place, span[0][0], span[-1][1])
            for (start, end), pieces in self._digested(read, span):
                done.append(self._pool.submit(self._compared, pair, start, end, pieces))
        return done

    def _digested(
        self, batches: Iterable[pa.RecordBatch], ranges: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[tuple[int, int], list["Future[Digests]"]]]:
        """The digests of batches in order, by range."""
        left, pieces = deque(ranges), list[Future[Digests]]()
        for batch in batches:
            rest = batch
            while rest.num_rows:
                cut = int(np.searchsorted(int64s(rest.column(OFFSET)), left[0][1]))
                if cut:
                    pieces.append(self._digest(rest.slice(0, cut)))
                rest = rest.slice(cut)
                if rest.num_rows:
                    yield left.popleft(), pieces
                    pieces = []
        for each in left:
            yield each, pieces
            pieces = []

    def _digest(self, batch: pa.RecordBatch) -> "Future[Digests]":
        """Begin to digest; waits while too much is begun."""
        size = batch_bytes(batch)
        while self._held and (self._held_bytes + size > _HELD_BYTES or self._held[0][0].done()):
            first, freed = self._held.popleft()
            first.result()
            self._held_bytes -= freed
        begun = self._pool.submit(self._digester.of, batch)
        self._held.append((begun, size))
        self._held_bytes += size
        return begun

    def _compared(self, pair: _Pair, start: int, end: int, pieces: Sequence["Future[Digests]"]) -> _Compared:
        # The pieces are before this in the queue of the pool, so that they are done, or are at work.
        there = joined([each.result() for each in pieces])
        here = joined([self._digester.of(batch) for batch in _pieces(_read(pair.log, start, end))])
        kept, removed = here, 0
        if pair.compacts:
            kept = here.only(np.isin(here.offsets, there.offsets))
            removed = len(here.offsets) - len(kept.offsets)
        at = _first_difference(kept, there)
        digests = here.of_all, there.of_all
        return _Compared(RangeVerdict(start, end, len(there.offsets), removed, *digests, at is None), at)

    def _difference(self, pair: _Pair, at: int) -> Difference:
        """Both sides at an offset where they differ."""
        ours = [each for batch in _read(pair.log, at, at + 1) for each in to_records(batch)]
        theirs = [each for batch in self._reader.read(pair.place, at, at + 1) for each in to_records(batch)]
        if not ours or not theirs:
            return Difference(at, "record", *(_record(side) for side in (ours, theirs)))
        (here,), (there,) = ours, theirs
        if here.timestamp_us != there.timestamp_us:
            return Difference(at, TIMESTAMP, _time(here.timestamp_us), _time(there.timestamp_us))
        if here.key != there.key:
            return Difference(at, KEY, *_apart(here.key, there.key))
        if here.value != there.value:
            return Difference(at, VALUE, *_apart(here.value, there.value))
        return Difference(at, HEADERS, *_headers_apart(here.headers, there.headers))


def _drawn(seed: str, start: int) -> bytes:
    """By this ranges are in an order that only the seed decides."""
    return md5(f"{seed} {start}".encode(), usedforsecurity=False).digest()


def _spans(ranges: Iterable[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Ranges that follow one another, together."""
    span: list[tuple[int, int]] = []
    for each in ranges:
        if span and span[-1][1] != each[0]:
            yield span
            span = []
        span.append(each)
    if span:
        yield span


def _read(log: Partition, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """The records that the table has, also where a merge has replaced its files; without those that were
    deleted meanwhile.
    """
    here = log.log_from(start)
    first = max(start, here.log_start)
    if first >= end:
        return
    plan = ReadPlan(
        start=first,
        end=end,
        log_start=here.log_start,
        high_watermark=here.high_watermark,
        segments=here.between(first, end),
    )
    try:
        yield from log.read(plan)
    except OffsetOutOfRange:
        return


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches in pieces that DataFusion needs little memory for."""
    for batch in batches:
        for at in range(0, batch.num_rows, _PIECE):
            yield batch.slice(at, _PIECE)


def _first_difference(here: Digests, there: Digests) -> int | None:
    """The first offset that one side lacks, or whose records differ."""
    count = min(len(here.offsets), len(there.offsets))
    same = here.offsets[:count] == there.offsets[:count]
    same &= here.records[:count] == there.records[:count]
    if not same.all():
        at = int(np.argmin(same))
        return int(min(here.offsets[at], there.offsets[at]))
    rest = max(here.offsets[count:], there.offsets[count:], key=len)
    return int(rest[0]) if len(rest) else None


def _record(found: Sequence[Record]) -> str:
    return f"key {_shortened(found[0].key)}, value {_shortened(found[0].value)}" if found else "no record"


def _time(microseconds: int | None) -> str:
    assert microseconds is not None
    return f"{timestamp_text(microseconds)} ({microseconds} µs)"


def _apart(here: bytes | None, there: bytes | None) -> tuple[str, str]:
    """Both as text, from a little before the byte where they begin to differ."""
    if here is None or there is None:
        return _shortened(here), _shortened(there)
    begin = max(0, _apart_at(here, there) - _BEFORE)
    return _shortened(here, begin), _shortened(there, begin)


def _shortened(content: bytes | None, begin: int = 0) -> str:
    if content is None:
        return "null"
    shown = repr(content[begin : begin + _SHOWN])[1:]
    rest = "…" if begin + _SHOWN < len(content) else ""
    return f"{'…' if begin else ''}{shown}{rest} ({counted(len(content), 'byte')})"


def _headers_apart(here: Sequence[Header], there: Sequence[Header]) -> tuple[str, str]:
    at = _apart_at(here, there)
    return _header(here, at), _header(there, at)


def _apart_at(here: Sequence[object], there: Sequence[object]) -> int:
    """The index of the first item in which they differ, or where the shorter ends."""
    pairs = zip(here, there, strict=False)
    return next((at for at, each in enumerate(pairs) if each[0] != each[1]), min(len(here), len(there)))


def _header(headers: Sequence[Header], at: int) -> str:
    if at >= len(headers):
        return counted(len(headers), "header")
    name, content = headers[at]
    return f"header {at + 1} is {name[:_SHOWN]!r}: {_shortened(content)}"
