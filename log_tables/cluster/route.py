"""The partition of each record of a request: its own one, else its key's, else the sticky one. Pure.

The rule is Kafka's: a record that names a partition goes there, one with a key goes to the partition of the
key's hash, and the others stay together for a while (KIP-480). It has two forms: for a few rows, and for
many records as columns. The whole request is checked before any of it is appended.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from log_tables.cluster.topic import Topic
from log_tables.cluster.topic_settings import AFTER_MAX_MS, BEFORE_MAX_MS
from log_tables.columns.misfit import Misfit, misfits
from log_tables.errors import (
    InvalidRecord,
    InvalidTimestamp,
    InvalidValue,
    LakelogError,
    RecordTooLarge,
    UnknownPartition,
)
from log_tables.key_hash import partition_for_key, partitions_for_keys
from log_tables.layout import KEY, TIMESTAMP
from log_tables.limits import CULPRITS_MAX, TIMESTAMP_MAX_US, TIMESTAMP_MIN_US
from log_tables.record import int64s, record_sizes, size_bound, timestamp_text
from log_tables.rows import Records, Rows, bytes_of, chained, count_of, grouped, numbers_array, taken

Indexes: TypeAlias = Sequence[int] | np.ndarray

Numbers: TypeAlias = Sequence[int | None] | pa.Int64Array
"""A partition for each record, or null: a list, or a column of whole numbers."""


class PartitionBatch(msgspec.Struct, frozen=True):
    """The records of one request that go to one partition.

    `indexes` are their positions in the request, ascending; None if they are the whole request, in order.
    `named` are the partitions that they name; None if none names one.
    """

    partition: int
    records: Records
    indexes: Indexes | None = None
    named: Numbers | None = None

    def positions(self) -> Sequence[int]:
        """The position of each record in the request."""
        if self.indexes is None:
            return range(count_of(self.records))
        return self.indexes.tolist() if isinstance(self.indexes, np.ndarray) else self.indexes


class SentRecords(msgspec.Struct, frozen=True):
    """The records of a request to one topic, and the partitions that they name; None if none names one.

    `indexes` are their positions in the request, ascending; None if they are the whole request.
    """

    records: Records
    named: Numbers | None = None
    indexes: Indexes | None = None

    @property
    def sticks(self) -> bool:
        """Whether a record may have neither a partition nor a key, and goes to the sticky partition."""
        return self.named is not None or _lacks_keys(self.records)

    def index(self, place: int) -> int:
        """The position in the request of the record at `place` of these."""
        return place if self.indexes is None else int(self.indexes[place])

    def batch(self, partition: int) -> PartitionBatch:
        """All as the batch of `partition`."""
        return PartitionBatch(partition, self.records, self.indexes, self.named)

    def batches(self, places: Sequence[tuple[int, Indexes]]) -> list[PartitionBatch]:
        """The batch of each partition, of the records at its places."""
        if len(places) == 1:
            return [self.batch(places[0][0])]
        parts = grouped(self.records, [own for _, own in places])
        return [
            PartitionBatch(
                partition,
                records,
                own if self.indexes is None else np.asarray(self.indexes)[own],
                None if self.named is None else _taken_numbers(self.named, own),
            )
            for (partition, own), records in zip(places, parts, strict=True)
        ]


def joined(batches: Sequence[PartitionBatch]) -> SentRecords:
    """The records of `batches`, some or all of those of one request, in the order of the request.

    A request that is split need not be kept besides its parts: it can be made of them again.
    """
    if len(batches) == 1:
        [batch] = batches
        return SentRecords(batch.records, batch.named, batch.indexes)
    indexes = np.concatenate([np.asarray(batch.indexes, np.int64) for batch in batches])
    order = np.argsort(indexes)
    named = [batch.named for batch in batches if batch.named is not None]
    return SentRecords(
        taken(chained([batch.records for batch in batches]), order),
        _taken_numbers(_chained_numbers(named), order) if named else None,
        indexes[order],
    )


_TIMELY = "set the clock of the producer, or raise the topic's bound"


class Route(msgspec.Struct, frozen=True):
    """Where the records of a request to `topic` go.

    All go to the partition `fixed` if the request names it; `sticky` takes those without a key. They arrived
    at `now_us`. Of records that are `judged`, and so may have been answered, no value or time is refused any
    more.
    """

    topic: Topic
    fixed: int | None
    sticky: int
    now_us: int
    judged: bool = False

    def split(self, sent: SentRecords) -> list[PartitionBatch]:
        """The records by partition. There is at least one.

        Raises InvalidRecord, InvalidTimestamp, InvalidValue, RecordTooLarge, which name CULPRITS_MAX of the
        records that are to blame at most, and UnknownPartition.
        """
        check_sizes(sent, self.topic)
        if not self.judged:
            check_times(sent, self.topic, self.now_us)
            check_values(sent, self.topic)
        whole = self._whole(sent)
        if whole is not None:
            return [sent.batch(whole)]
        if isinstance(sent.records, Rows):
            places = _places(self._of_rows(sent.records, sent))
        else:
            places = _many_places(self._of_batch(sent.records.column(KEY), sent))
        return sent.batches(places)

    def copied_bytes(self, sent: SentRecords) -> int:
        """About the bytes that `split` takes besides `sent`: columns are copied, rows are not."""
        if isinstance(sent.records, Rows) or self.topic.partition_count == 1 or self.fixed is not None:
            return 0
        return bytes_of(sent.records) if sent.named is not None or _has_keys(sent.records) else 0

    def _whole(self, sent: SentRecords) -> int | None:
        """The partition of the whole request, if there is no need to look at each record."""
        if self.fixed is None:
            return self.sticky if sent.named is None and not _has_keys(sent.records) else None
        if not 0 <= self.fixed < self.topic.partition_count:
            raise UnknownPartition(
                f"topic {self.topic.name!r} has no partition {self.fixed}; it has 0 to "
                f"{self.topic.partition_count - 1}"
            )
        if sent.named is not None:
            raise InvalidRecord(
                "the path names the partition, and a record names one, too; leave 'partition' out"
            )
        return self.fixed

    def _of_rows(self, rows: Rows, sent: SentRecords) -> list[int]:
        count, sticky, key_hash = self.topic.partition_count, self.sticky, self.topic.config.key_hash
        chosen = [
            sticky if key is None else partition_for_key(key, count, key_hash)
            for key in rows.keys or [None] * len(rows)
        ]
        named = () if sent.named is None else sent.named
        self._check_named(
            sent,
            (
                (place, partition)
                for place, partition in enumerate(named)
                if partition is not None and not 0 <= partition < count
            ),
        )
        for place, partition in enumerate(named):
            if partition is not None:
                chosen[place] = partition
        return chosen

    def _of_batch(self, keys: pa.Array, sent: SentRecords) -> np.ndarray:
        by_key = _by_key(keys, self.topic, self.sticky)
        if sent.named is None:
            return by_key
        chosen, given = _numbers(sent.named)
        wrong = np.flatnonzero(given & ((chosen < 0) | (chosen >= self.topic.partition_count))).tolist()
        self._check_named(sent, ((place, int(chosen[place])) for place in wrong))
        return np.where(given, chosen, by_key)

    def _check_named(self, sent: SentRecords, wrong: Iterator[tuple[int, int]]) -> None:
        """Raise InvalidRecord for the records at places that name partitions that are not there."""
        name, last = self.topic.name, self.topic.partition_count - 1
        reasons = ((place, f"topic {name!r} has no partition {n}; use 0 to {last}") for place, n in wrong)
        _refuse(InvalidRecord, sent, reasons)


Wrong: TypeAlias = Iterator[tuple[int, str]]
"""The place of each record that is refused, and why."""


def _refuse(kind: type[LakelogError], sent: SentRecords, wrong: Wrong, **facts: str) -> None:
    """Raise the error of `kind` that names the first CULPRITS_MAX of the records that are `wrong`, if any."""
    found = [(sent.index(place), why) for place, why in islice(wrong, CULPRITS_MAX)]
    if found:
        index, why = found[0]
        others = f" ({len(found) - 1} more in record_errors)" if len(found) > 1 else ""
        culprits = [{"index": at, "message": reason} for at, reason in found]
        raise kind(f"record {index}: {why}{others}", index=index, record_errors=culprits, **facts)


def check_sizes(sent: SentRecords, topic: Topic) -> None:
    """Raise RecordTooLarge if records are larger than the topic's `max.message.bytes`."""
    records, most = sent.records, topic.config.max_message_bytes
    if isinstance(records, Rows):
        fits = max(records.sizes()) <= most
    else:
        fits = bytes_of(records) <= most or size_bound(records) <= most
    if not fits:
        _refuse(RecordTooLarge, sent, too_large(records, topic))


def too_large(records: Records, topic: Topic) -> Wrong:
    """The place of each record that is larger than `topic` takes, and why it is refused."""
    sizes = records.sizes() if isinstance(records, Rows) else record_sizes(records).to_pylist()
    most = topic.config.max_message_bytes
    for place, size in enumerate(sizes):
        if size > most:
            yield place, size_refusal(topic, size)


def size_refusal(topic: Topic, size: int) -> str:
    """Why a record of `size` bytes of key and value is refused."""
    return (
        f"it has {size} bytes, topic {topic.name!r} takes {topic.config.max_message_bytes}; "
        "send less, or raise max.message.bytes"
    )


def check_times(sent: SentRecords, topic: Topic, now_us: int) -> None:
    """Raise InvalidTimestamp for records whose times are outside of the bounds of the topic."""
    _refuse(InvalidTimestamp, sent, wrong_times(sent.records, topic, now_us))


def wrong_times(records: Records, topic: Topic, now_us: int) -> Wrong:
    """The place of each record whose time is outside of the bounds of the topic, and why it is refused."""
    bounds = topic.config.time_bounds_us(now_us)
    if bounds is None:
        return
    if isinstance(records, Rows):
        given = records.timestamps_us
        times = np.full(len(records), given) if isinstance(given, int) else np.asarray(given, np.int64)
    else:
        times = int64s(records.column(TIMESTAMP))
    low, high = (min(max(bound, TIMESTAMP_MIN_US), TIMESTAMP_MAX_US) for bound in bounds)
    for place in np.flatnonzero((times < low) | (times > high)):
        setting, word = (BEFORE_MAX_MS, "before") if times[place] < low else (AFTER_MAX_MS, "after")
        at, most = timestamp_text(int(times[place])), topic.config[setting]
        forbidden = f"the time {at} is more than {most} ms {word} its arrival, which {setting} forbids"
        yield int(place), f"{forbidden}; {_TIMELY}"


def check_values(sent: SentRecords, topic: Topic) -> None:
    """Raise InvalidValue if values do not fit the columns that the topic requires. `path` and `reason` are
    those of the first.
    """
    found = [*islice(wrong_values(sent.records, topic), CULPRITS_MAX)]
    if found:
        reasons = ((each.place, value_refusal(topic, each)) for each in found)
        _refuse(InvalidValue, sent, reasons, path=found[0].path, reason=found[0].reason)


def wrong_values(records: Records, topic: Topic) -> Iterator[Misfit]:
    """The values that the topic refuses, as they do not fit the columns that it requires."""
    required = topic.config.required_columns
    return misfits(records, required, topic.schemas) if required.columns else iter(())


def value_refusal(topic: Topic, misfit: Misfit) -> str:
    """Why a value is refused."""
    return (
        f"{misfit.reason}, as topic {topic.name!r} declares it; fix the value, or set value.columns.mode=keep"
    )


def _has_keys(records: Records) -> bool:
    if isinstance(records, Rows):
        return records.keys is not None
    keys = records.column(KEY)
    return bool(keys.null_count < len(keys))


def _lacks_keys(records: Records) -> bool:
    """Whether there is a record without a key."""
    if isinstance(records, Rows):
        return records.keys is None or None in records.keys
    return bool(records.column(KEY).null_count)


def _places(partitions: list[int]) -> list[tuple[int, Indexes]]:
    """Each partition with the places where it stands, ascending."""
    places: dict[int, list[int]] = {}
    for place, partition in enumerate(partitions):
        places.setdefault(partition, []).append(place)
    return sorted(places.items())


def _many_places(partitions: np.ndarray) -> list[tuple[int, Indexes]]:
    """Each of `partitions` (an array) with the places where it stands, ascending."""
    if (partitions == partitions[0]).all():  # sorting equal numbers is not free
        return [(int(partitions[0]), range(len(partitions)))]
    order = np.argsort(partitions, kind="stable")
    by_partition = partitions[order]
    begins = np.flatnonzero(np.diff(by_partition, prepend=-1))
    found = zip(by_partition[begins].tolist(), np.split(order, begins[1:]), strict=True)
    return [(partition, places) for partition, places in found]


def _by_key(keys: pa.Array, topic: Topic, sticky: int) -> np.ndarray:
    """The partition of each key, `sticky` where it is null; each different key is hashed once."""
    encoded = keys.dictionary_encode()
    found = partitions_for_keys(encoded.dictionary, topic.partition_count, topic.config.key_hash)
    numbers = int64s(encoded.indices.fill_null(len(found)).cast(pa.int64()))
    by_key: np.ndarray = np.append(found, sticky)[numbers]
    return by_key


def _chained_numbers(parts: Sequence[Numbers]) -> Numbers:
    if isinstance(parts[0], pa.Array):
        return pa.concat_arrays(parts)
    return [*chain.from_iterable(parts)]


def _taken_numbers(numbers: Numbers, places: Indexes) -> Numbers:
    if isinstance(numbers, pa.Array):
        return numbers.take(numbers_array(places))
    return [numbers[place] for place in places]


def _numbers(named: Numbers) -> tuple[np.ndarray, np.ndarray]:
    """The partitions as int64, and which of them are not null. Raises InvalidRecord."""
    if not isinstance(named, pa.Array):
        numbers = np.fromiter((-1 if number is None else number for number in named), np.int64, len(named))
        return numbers, np.fromiter((number is not None for number in named), bool, len(named))
    try:
        numbers = int64s(named.cast(pa.int64()).fill_null(-1))
    except pa.ArrowInvalid as error:
        raise InvalidRecord(f"the column 'partition' does not fit int64: {error}; send integers") from None
    return numbers, int64s(named.is_valid().cast(pa.int64())) > 0
