"""The offsets of the next records, before they are durable: the pure state of a leader, without I/O.

Idempotent producers follow KIP-98, with two differences. A producer that the log does not know must begin at
sequence 0, so that a first batch that was lost is never skipped. Producers of lakelog's own and those of
clients never share an id, whatever id a client sends.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from msgspec.structs import force_setattr

from log_tables.clock import Clock
from log_tables.errors import OffsetMismatch, ProducerTaken, SequenceGap, StaleProducerEpoch
from log_tables.limits import (
    BRIEF_PRODUCER_ID_MIN,
    HTTP_PRODUCER_ID_MAX,
    KEPT_PRODUCER_ID_MIN,
    ONCE_PRODUCER_ID_MIN,
    PRODUCER_BATCHES,
    PRODUCER_ID_MAX,
    SEQUENCE_MODULUS,
)
from log_tables.rows import Records, bytes_of, count_of
from log_tables.table.commit import ProducedBatch
from log_tables.table.snapshot import Snapshot
from log_tables.table.txns import ProducerState


@dataclass(frozen=True, slots=True)
class ProducerStamp:
    """An idempotent producer's stamp on a batch: `sequence` is that of its first record.

    A producer that is `kept` is lakelog's own, and is never forgotten, however long it is idle.
    """

    id: int
    epoch: int
    sequence: int
    kept: bool = False


def client_producer_id(clock: Clock) -> int:
    """A new random id for a producer of a client."""
    return int(clock.random_hex(16), 16) % BRIEF_PRODUCER_ID_MIN


def brief_producer_id(clock: Clock) -> int:
    """A new random id for a producer of a Kafka client, which takes one whenever it starts."""
    many = ONCE_PRODUCER_ID_MIN - BRIEF_PRODUCER_ID_MIN
    return BRIEF_PRODUCER_ID_MIN + int(clock.random_hex(14), 16) % many


def kept_producer_id(clock: Clock) -> int:
    """A new random id for a producer of lakelog's own, which no client can have."""
    return KEPT_PRODUCER_ID_MIN | int(clock.random_hex(16), 16) & PRODUCER_ID_MAX


class Author(NamedTuple):
    """Who wrote records: the name of a principal, and the address of its request, empty if not known."""

    principal: str
    address: str = ""


class AppendRequest(msgspec.Struct, frozen=True):
    """An append of the records of one request to one partition.

    With `expected_offset` the append happens only if the log ends exactly there. The thread that commits the
    records first calls `rests_on`, which makes durable what they rely on elsewhere, or raises. With `since`,
    the `Clock.boottime` when it was accepted, they are not put when that was long ago (`check_recent`). What
    is `prompt` does not wait for others that might come. `author` is None where nobody was authenticated.
    `count` and `size_bytes` are those of the records, and counted once, when the request is made.

    A request of many partitions makes many of these: C makes a Struct, in a tenth of a dataclass's time.
    """

    records: Records
    producer: ProducerStamp | None = None
    expected_offset: int | None = None
    rests_on: Callable[[], None] | None = None
    since: float | None = None
    prompt: bool = False
    author: Author | None = None
    count: int = 0
    size_bytes: int = 0

    def __post_init__(self) -> None:
        force_setattr(self, "count", count_of(self.records))
        force_setattr(self, "size_bytes", bytes_of(self.records))

    @property
    def of_transaction(self) -> bool:
        """Whether a transaction with these records is committed, so that they must be appended."""
        return self.producer is not None and self.producer.kept


class SequencedAppend(msgspec.Struct, kw_only=True):
    """An append and its first offset.

    A repeat is `duplicate` and writes nothing: its `base_offset` and `append_time_us` are those of the first
    time, or None when they are not known; a commit looks for them in the log, too. `log_end` is the end of
    the log after it, with all that it may rest on. `term` is the term of leadership in which it was
    sequenced.
    """

    request: AppendRequest
    base_offset: int | None
    count: int
    duplicate: bool
    log_end: int
    term: int
    append_time_us: int | None = None


@dataclass(slots=True)
class Sequencer:
    """Gives offsets to appends in one term of leadership, from the end of a snapshot on."""

    snapshot: Snapshot
    term: int
    log_end: int = field(init=False)
    _producers: dict[int, ProducerState] = field(init=False, default_factory=dict)
    _batches: dict[int, tuple[ProducedBatch, ...]] = field(init=False, default_factory=dict)
    _begin: int = field(init=False)

    def __post_init__(self) -> None:
        self.log_end = self._begin = self.snapshot.high_watermark

    def sequence(self, request: AppendRequest) -> SequencedAppend:
        """The next offsets for `request`.

        Raises OffsetMismatch, SequenceGap, StaleProducerEpoch, ProducerTaken.
        """
        repeat = None if request.producer is None else self._repeat(request.producer, request.count)
        if repeat is not None:
            return SequencedAppend(
                request=request,
                base_offset=repeat.base,
                count=request.count,
                duplicate=True,
                log_end=self.log_end,
                term=self.term,
            )
        if request.expected_offset is not None and request.expected_offset != self.log_end:
            raise OffsetMismatch(
                f"the log ends at offset {self.log_end}, not at the expected {request.expected_offset}; "
                "read the log to its end, and decide again",
                log_end_offset=self.log_end,
            )
        base, count = self.log_end, request.count
        self.log_end = base + count
        if request.producer is not None:
            self._remember(request.producer, base, count)
        return SequencedAppend(
            request=request,
            base_offset=base,
            count=count,
            duplicate=False,
            log_end=self.log_end,
            term=self.term,
        )

    def _repeat(self, stamp: ProducerStamp, count: int) -> "_Repeat | None":
        """Where a repeated batch was appended first; None when `stamp` is the next in turn."""
        known = self._known(stamp.id)
        _check_whose(stamp, known)
        if known is not None and stamp.epoch < known.epoch:
            raise StaleProducerEpoch(
                f"producer {stamp.id} has written with epoch {known.epoch}, so epoch {stamp.epoch} is "
                "fenced; stop this instance, or begin again with a new producer id",
                current=known.epoch,
            )
        expected = known.next_sequence if known is not None and known.epoch == stamp.epoch else 0
        if stamp.sequence == expected:
            return None
        behind = (expected - stamp.sequence) % SEQUENCE_MODULUS
        if known is not None and known.epoch == stamp.epoch and count <= behind < SEQUENCE_MODULUS // 2:
            return _Repeat(self._place(stamp, count, known.end_offset if behind == count else None))
        # Where 0 is expected it has to be told from a producer that is not known.
        current = {"current": known.epoch} if known is not None and expected == 0 else {}
        raise SequenceGap(
            f"producer {stamp.id} sent sequence {stamp.sequence}, and {expected} is next; send the batches "
            "in order, from that one on",
            expected=expected,
            **current,
        )

    def _remember(self, stamp: ProducerStamp, base: int, count: int) -> None:
        before = self._newest(stamp.id)
        self._producers[stamp.id] = _after(stamp, count, base + count)
        if before or stamp.sequence != 0:
            batch = ProducedBatch(stamp.id, stamp.epoch, stamp.sequence, base, count)
            self._batches[stamp.id] = (*before, batch)[-PRODUCER_BATCHES:]

    def _known(self, producer_id: int) -> ProducerState | None:
        return self._producers.get(producer_id) or self.snapshot.producer(producer_id)

    def _newest(self, producer_id: int) -> tuple[ProducedBatch, ...]:
        """The newest batches of a producer that this term has sequenced, the oldest one first.

        One that is alone and begins at sequence 0 is told by the state of its producer, and not kept: each
        request with an Idempotency-Key is such a batch.
        """
        kept, state = self._batches.get(producer_id), self._known(producer_id)
        if kept is not None or state is None or state.end_offset <= self._begin:
            return kept or ()
        count = state.next_sequence
        return (ProducedBatch(producer_id, state.epoch, 0, state.end_offset - count, count),)

    def _place(self, stamp: ProducerStamp, count: int, end_offset: int | None) -> int | None:
        """The first offset of a batch that is in the log, as far as this term knows; `end_offset` is that
        behind it if it ends with the newest one.
        """
        batches = self._newest(stamp.id)
        for batch in batches:
            if (batch.epoch, batch.sequence, batch.count) == (stamp.epoch, stamp.sequence, count):
                return batch.base_offset
        if end_offset is None or (batches and batches[-1].count < count):
            return None
        return end_offset - count

    def older(self, stamp: ProducerStamp) -> tuple[int, int | None] | None:
        """How many more batches of a producer are to be known, which earlier terms have appended, and the
        sequence at which those of this term begin, None without any; None if all are known.
        """
        batches = self._newest(stamp.id)
        left = PRODUCER_BATCHES - len(batches)
        if left == 0 or (batches and batches[0].epoch != stamp.epoch):
            return None
        return left, batches[0].sequence if batches else None

    def forget(self, snapshot: Snapshot, named: Set[int]) -> None:
        """Go on from `snapshot`, of this term: it has the state of all producers but those that have sent
        records since, and those that are forgotten. It names the producers `named`.
        """
        self.snapshot = snapshot
        durable = snapshot.high_watermark
        self._producers = {
            number: state for number, state in self._producers.items() if state.end_offset > durable
        }
        self._batches = {
            number: batches
            for number, batches in self._batches.items()
            if number in named or number in self._producers
        }


def _check_whose(stamp: ProducerStamp, known: ProducerState | None) -> None:
    """Raise ProducerTaken when a client uses a producer of lakelog's own, or used its id before lakelog did.

    The id decides for a producer that the log does not know. In a root of an older version, lakelog's own
    producers have ids of clients.
    """
    kept = stamp.id >= KEPT_PRODUCER_ID_MIN if known is None else known.kept
    if kept and not stamp.kept:
        raise ProducerTaken(
            f"producer {stamp.id} is lakelog's own; begin again with another id, from 0 to "
            f"{HTTP_PRODUCER_ID_MAX}"
        )
    if known is not None and stamp.kept and not known.kept:
        raise ProducerTaken(
            f"producer {stamp.id} applies a group's transactions, and a client has used it; run "
            "`lakelog fsck`"
        )


def _after(stamp: ProducerStamp, count: int, end_offset: int) -> ProducerState:
    following = (stamp.sequence + count) % SEQUENCE_MODULUS
    return ProducerState(stamp.epoch, following, end_offset, stamp.kept)


@dataclass(frozen=True, slots=True)
class _Repeat:
    base: int | None


def producers_of(sequenced: list[SequencedAppend]) -> Mapping[int, ProducerState]:
    """The state of each producer after these appends, for the txns of their commit."""
    states: dict[int, ProducerState] = {}
    for item in sequenced:
        stamp = item.request.producer
        if stamp is not None and item.base_offset is not None:
            states[stamp.id] = _after(stamp, item.count, item.base_offset + item.count)
    return states
