"""The offsets of a query: where it begins and ends by its options, where it is, and ranges of them.

Options give offsets and times, for all partitions or for each. Spark keeps where a streaming query is in the
checkpoint. A trigger reads a range of each partition, and a batch is split into tasks.
"""

import heapq
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

from log_tables.cluster.topic import check_topic_name
from log_tables.errors import InvalidArgument
from log_tables.topic_partition import TopicIdPartition, TopicPartition

StreamOffset = dict[str, Any]
"""`{"orders": {"id": …, "epoch": …, "0": 23}}`: the JSON of Spark's Kafka source, and which log it is of."""

TOPIC_ID = "id"
"""The key among a topic's partitions that says which incarnation of the topic they belong to."""

LOG_EPOCH = "epoch"
"""The key beside it that says in which log epoch of the root the offsets were taken; without it in 0."""

BEGIN = "~begin"
"""The key under which the end of the first micro-batch holds where that begins. No topic can have this name.

Spark keeps the ends of micro-batches. When it has to repeat the first one, it asks again where that begins.
"""

UNDECIDED: StreamOffset = {BEGIN: "undecided"}
"""The offset of a new query before its first micro-batch is planned. One without topics is another."""


def encode(
    ends: Mapping[TopicIdPartition, int],
    epoch: int = 0,
    begins: Mapping[TopicIdPartition, int] | None = None,
) -> StreamOffset:
    """The end of a micro-batch, taken in a log epoch; for the first one, `begins` is where it begins.

    The order is always the same: Spark compares offsets by their text.
    """
    stream_offset: StreamOffset = {}
    taken = {LOG_EPOCH: epoch} if epoch else {}
    for partition, offset in sorted(ends.items()):
        of_topic = stream_offset.setdefault(partition.topic, {TOPIC_ID: partition.topic_id, **taken})
        of_topic[str(partition.partition)] = offset
    return stream_offset if begins is None else {**stream_offset, BEGIN: encode(begins, epoch)}


def decode(stream_offset: StreamOffset) -> dict[TopicIdPartition, int]:
    """The offset of each partition. Raises InvalidArgument if another source wrote `stream_offset`."""
    try:
        return {
            TopicIdPartition(topic, entries[TOPIC_ID], int(partition)): offset
            for topic, entries in stream_offset.items()
            if topic != BEGIN
            for partition, offset in entries.items()
            if partition not in (TOPIC_ID, LOG_EPOCH)
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InvalidArgument(
            f"the checkpoint holds {stream_offset!r}, which another source wrote; start a new query with "
            "another checkpointLocation"
        ) from None


def epochs(stream_offset: StreamOffset) -> dict[str, int]:
    """The log epoch in which the offsets of each topic were taken, of what `decode` takes."""
    return {topic: entries.get(LOG_EPOCH, 0) for topic, entries in stream_offset.items() if topic != BEGIN}


def begin_of(start: StreamOffset, end: StreamOffset) -> StreamOffset:
    """Where the micro-batch from `start` to `end` begins."""
    found: StreamOffset = end[BEGIN] if BEGIN in end and start != end else start
    return found


EARLIEST, LATEST = -2, -1
"""The numbers of the ends of the log in a JSON of offsets (Kafka's ListOffsets)."""


class TakenOf(NamedTuple):
    """The incarnation of a topic, and the log epoch of the root, in which its offsets were taken."""

    topic_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Position:
    """Where to begin or end: the same for every partition, or one each.

    Of `offsets` EARLIEST and LATEST stand for the ends of the log; `times` are milliseconds since 1970, and
    stand for the first record that is not older. `taken_of` knows the topics whose offsets a query has told.
    """

    everywhere: int | None = None
    everywhere_ms: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    taken_of: Mapping[str, TakenOf] = field(default_factory=dict)
    times_ms: Mapping[TopicPartition, int] | None = None
    option: str = ""

    def named(self, partition: TopicPartition) -> int | None:
        """The offset that stands there for a partition, EARLIEST and LATEST too; None where a time does."""
        return self.everywhere if self.offsets is None else self.offsets.get(partition)


def position(options: Mapping[str, str], side: str, default: int, streaming: bool) -> Position:
    """The position in the options of one `side` ("starting", "ending"); `default` is an end of the log.

    Kafka's order: the timestamp for all, then those by partition, then the offsets. All must be right. Raises
    InvalidArgument.
    """
    everywhere, by_time, by_offset = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    chosen = Position(everywhere=default)
    if by_offset in options:
        forbidden = None if streaming else (LATEST if side == "starting" else EARLIEST)
        chosen = _offsets(by_offset, options[by_offset].strip(), forbidden)
    if by_time in options:
        hint = 'give JSON such as {"orders": {"0": 1767225600000}}, in milliseconds'
        times, _ = _by_partition(by_time, options[by_time], 0, hint)
        chosen = Position(times_ms=times, option=by_time)
    if everywhere in options:
        chosen = Position(everywhere_ms=_timestamp(everywhere, options[everywhere]), option=everywhere)
    return chosen


def _offsets(option: str, text: str, forbidden: int | None) -> Position:
    """Offsets, of which one (EARLIEST or LATEST) may be `forbidden`, because a batch would read nothing."""
    ends = {"earliest": EARLIEST, "latest": LATEST}
    if text.lower() in ends:
        chosen = Position(everywhere=ends[text.lower()])
        named = [ends[text.lower()]]
    else:
        hint = (
            'give earliest, latest, or JSON such as {"orders": {"0": 23, "1": -2}} (-2 earliest, -1 latest)'
        )
        offsets, taken_of = _by_partition(option, text, EARLIEST, hint)
        chosen = Position(offsets=offsets, taken_of=taken_of, option=option)
        named = [*offsets.values()]
    if forbidden in named:
        raise InvalidArgument(
            f"{option}={text!r} is not allowed in a batch query: it would read nothing of a partition; "
            "name another offset"
        )
    return chosen


def _by_partition(
    option: str, text: str, low: int, hint: str
) -> tuple[dict[TopicPartition, int], dict[str, TakenOf]]:
    """Numbers from `low` on by partition, and what a progress report has between them."""
    found, taken_of = {}, {}
    for topic, numbers in json_object(option, text, hint).items():
        if topic == BEGIN:
            continue
        check_topic_name(topic)
        if not isinstance(numbers, dict):
            raise InvalidArgument(f"{option} gives {topic} {json.dumps(numbers)}; {hint}")
        topic_id, epoch = numbers.pop(TOPIC_ID, None), numbers.pop(LOG_EPOCH, 0)
        if isinstance(topic_id, str) and type(epoch) is int:
            taken_of[topic] = TakenOf(topic_id, epoch)
        elif (topic_id, epoch) != (None, 0):
            shown = json.dumps({TOPIC_ID: topic_id, LOG_EPOCH: epoch})
            raise InvalidArgument(f"{option} gives {topic} {shown}; {hint}")
        for partition, number in numbers.items():
            if not re.fullmatch(r"0|[1-9][0-9]{0,8}", partition) or type(number) is not int or number < low:
                shown = json.dumps({partition: number})
                raise InvalidArgument(f"{option} gives {topic} {shown}; {hint}")
            found[TopicPartition(topic, int(partition))] = number
    return found, taken_of


def json_object(option: str, text: str, hint: str) -> dict[str, object]:
    """The content of a JSON object. Raises InvalidArgument, whose message ends with `hint`."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidArgument(f"{option}={text!r} is not a JSON object; {hint}")
    return found


def _timestamp(option: str, text: str) -> int:
    return whole_number(option, text, 0, "milliseconds since 1970 as a whole number, 0 or more")


def whole_number(option: str, text: str, low: int, expected: str) -> int:
    """A 64-bit number of at least `low`. Raises InvalidArgument, which says what is `expected`."""
    digits = text.strip()
    if not re.fullmatch(r"[0-9]{1,19}", digits) or not low <= int(digits) < 2**63:
        raise InvalidArgument(f"{option}={text!r} is not {expected}; correct it")
    return int(digits)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets start ≤ offset < end of one partition."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def share_out(
    limit: int, begins: Mapping[TopicIdPartition, int], ends: Mapping[TopicIdPartition, int]
) -> dict[TopicIdPartition, int]:
    """New ends, so that about `limit` offsets are read, of each partition in proportion to its backlog.

    A partition with a backlog gets at least one offset, as with Spark's Kafka source: where there are more
    such partitions than `limit`, more than `limit` are read.
    """
    backlog = {
        partition: end - begins[partition] for partition, end in ends.items() if end > begins[partition]
    }
    total = sum(backlog.values())
    if total <= limit:
        return dict(ends)
    # Whole numbers, since a float of a large backlog would lose offsets.
    return {
        partition: begins[partition] + max(1, limit * backlog[partition] // total)
        if partition in backlog
        else end
        for partition, end in ends.items()
    }


def split(ranges: Sequence[OffsetRange], min_parts: int | None, max_records: int | None) -> list[OffsetRange]:
    """The ranges, in order, cut into parts of at most `max_records` offsets and at least `min_parts` parts.

    Empty ranges are left out. The longest parts are cut first, each range into parts of even length.
    """
    filled = [part for part in ranges if part.size > 0]
    counts = [1 if max_records is None else math.ceil(part.size / max_records) for part in filled]
    _raise_counts(filled, counts, min_parts or 0)
    return [piece for part, count in zip(filled, counts, strict=True) for piece in _even_pieces(part, count)]


def _raise_counts(ranges: Sequence[OffsetRange], counts: list[int], min_parts: int) -> None:
    longest = [
        (-part.size / count, index) for index, (part, count) in enumerate(zip(ranges, counts, strict=True))
    ]
    heapq.heapify(longest)
    missing = min(min_parts, sum(part.size for part in ranges)) - sum(counts)
    for _ in range(missing):
        _, index = longest[0]
        counts[index] += 1
        heapq.heapreplace(longest, (-ranges[index].size / counts[index], index))


def _even_pieces(part: OffsetRange, count: int) -> list[OffsetRange]:
    borders = [part.start + part.size * number // count for number in range(count + 1)]
    return [replace(part, start=start, end=end) for start, end in pairwise(borders)]
