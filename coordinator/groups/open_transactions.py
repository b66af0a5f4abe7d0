"""The open transactions of Kafka's clients, at the coordinator of their ids: what is staged for each.

Nothing here is in the log: the staged files say it all, and are read when the partition is taken over
(`remember`). No I/O.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from log_tables.cluster.group_log import ProducerValue
from log_tables.errors import (
    InvalidTransactionState,
    LakelogError,
    Retriable,
    SequenceGap,
    StaleProducerEpoch,
)
from log_tables.limits import SEQUENCE_MODULUS
from log_tables.segments.producer_staging import ProducerFile, ProducerRun
from log_tables.segments.staging import StagedFile, StagedRun
from log_tables.topic_partition import TopicIdPartition

SEQUENCES_KEPT = 1_000
"""The partitions whose sequences an id keeps from one transaction to the next."""

GROUPS_MAX = 1_000
"""The groups with offsets in a transaction. They stand in the record of the id."""

_HALF = SEQUENCE_MODULUS // 2

_Place = tuple[str, int]
"""A partition, by the id of its topic."""


@dataclass(slots=True)
class OpenTransaction:
    """Transaction `number` of an id, by the `producer` with an id and an epoch, which `principal` has begun.
    `began_s` is a time by `Clock.boottime`.

    `partitions` may be written to; `runs` are staged, in the order in which they came; `sequences` come next,
    `any_first` if some may be forgotten. `groups` have offsets in it. `held` are all runs of staged files, by
    path and start, which another coordinator might take for its own, also those that were refused;
    `size_bytes` are theirs.
    """

    number: int
    producer: tuple[int, int]
    began_s: float
    any_first: bool = False
    principal: str = ""
    partitions: set[TopicIdPartition] = field(default_factory=set)
    runs: list[tuple[str, StagedRun]] = field(default_factory=list)
    sequences: dict[_Place, int] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)
    held: set[tuple[str, int]] = field(default_factory=set)
    size_bytes: int = 0

    def add_group(self, group: str) -> None:
        """Add a group with offsets. Raises InvalidTransactionState for one too many."""
        if len(self.groups) >= GROUPS_MAX and group not in self.groups:
            raise InvalidTransactionState(
                f"the transaction has offsets of {GROUPS_MAX} groups, as many as it may; abort it, and use "
                "more transactions"
            )
        self.groups.add(group)

    def expected(self, place: _Place) -> int | None:
        """The sequence that comes next in a partition. None: any may."""
        return self.sequences.get(place, None if self.any_first else 0)

    def repeats(self, place: _Place, sequence: int, records: int) -> bool:
        """Whether so many records from `sequence` on are all staged already."""
        expected = self.sequences.get(place)  # none are in a partition that nothing was written to
        return expected is not None and records <= (expected - sequence) % SEQUENCE_MODULUS < _HALF

    def staged(self) -> tuple[StagedFile, ...]:
        """The files with its records, each with its runs, in the order in which they came: a file comes twice
        if another one came between its runs.
        """
        each_file = groupby(self.runs, key=lambda each: each[0])
        return tuple(StagedFile(path, tuple(run for _, run in runs)) for path, runs in each_file)


class OpenTransactions:
    """The open transactions of one partition of `__consumer_offsets`, by transactional id; and how many runs
    of each staged file are of use.

    `doubtful`: a staged file could not be read. What was begun before may have had records in it.
    """

    def __init__(self) -> None:
        self.doubtful = False
        self.sizes = Counter[str]()
        """The bytes that are staged for open transactions, by principal, also of what was refused."""
        self.size_bytes = 0
        """Those of all principals."""
        self._open: dict[str, OpenTransaction] = {}
        self._used: dict[str, int] = {}
        self._known: set[str] = set()

    def items(self) -> list[tuple[str, OpenTransaction]]:
        """The open transactions, by id."""
        return [*self._open.items()]

    def find(self, name: str) -> OpenTransaction | None:
        """The open transaction of an id."""
        return self._open.get(name)

    def knows(self, name: str) -> bool:
        """Whether all that concerns an id is known, as it has begun or ended a transaction here."""
        return name in self._known

    def check_whole(self, name: str) -> None:
        """Raise InvalidTransactionState if records may be lost of the transaction of an id."""
        if self.doubtful and not self.knows(name):
            raise InvalidTransactionState(
                f"a staged file is damaged, and the transaction of the transactional id {name[:100]!r} may "
                "have records in it; abort it, and begin another"
            )

    def note(self, name: str) -> None:
        """All that concerns an id is known from now on."""
        self._known.add(name)

    def forget(self, name: str) -> None:
        """An id is deleted."""
        self._known.discard(name)

    def begin(self, name: str, value: ProducerValue, now_s: float) -> OpenTransaction:
        """The open transaction of the id `name`, which begins now if none is."""
        found = self._open.get(name)
        if found is None:
            found = self._open[name] = OpenTransaction(
                value.number + 1,
                (value.producer_id, value.epoch),
                now_s,
                len(value.sequences) >= SEQUENCES_KEPT,
                value.principal,
                sequences={(topic, p): n for topic, p, n in value.sequences},
            )
        return found

    def end(self, name: str, committed: Sequence[StagedFile] = ()) -> list[str]:
        """Forget the open transaction of an id, whose `committed` runs are needed until they are released.
        Returns the files that nobody needs any longer.
        """
        found = self._open.pop(name, None)
        if found is None:
            return []
        self.size_bytes -= found.size_bytes
        self.sizes[found.principal] -= found.size_bytes
        if not self.sizes[found.principal]:
            del self.sizes[found.principal]
        if len(found.held) == sum(len(file.runs) for file in committed):
            return []  # all of them, mostly: there may be very many
        left = Counter(path for path, _ in found.held)
        left.subtract(file.path for file in committed for _ in file.runs)
        return self._release(left.elements())

    def add(
        self, name: str, file: str, entry: ProducerRun, value: ProducerValue | None, now_s: float
    ) -> LakelogError | None:
        """Add a run that is staged, to the transaction of the id `name`, which is `value`; why it is refused,
        None for a repeat, too. A transaction that another coordinator has begun begins here, too.
        """
        if value is not None and entry.producer_id == value.producer_id and entry.epoch != value.epoch:
            return StaleProducerEpoch(
                f"the transactional id {name[:100]!r} has a producer of epoch {value.epoch} by now, not "
                f"{entry.epoch}; begin again",
                current=value.epoch,
            )
        if value is None or entry.number != value.number + 1 or not _is_of(entry, value):
            return InvalidTransactionState(
                f"transaction {entry.number} of the transactional id {name[:100]!r} has ended; begin another"
            )
        transaction = self.begin(name, value, now_s)
        self._hold(transaction, file, entry.run)
        place, run = (entry.run.topic_id, entry.run.partition), entry.run
        expected = transaction.expected(place)
        if transaction.repeats(place, entry.sequence, run.records):
            return None
        if expected is not None and entry.sequence != expected:
            is_begun = place in transaction.sequences
            if is_begun and (expected - entry.sequence) % SEQUENCE_MODULUS < run.records:
                return Retriable(f"a part of what was sent for {entry.at} is a repeat; send it again")
            return SequenceGap(
                f"sequence {entry.sequence} does not follow in {entry.at}: {expected} is next; send what is "
                "missing first",
                expected=expected,
                current=expected,
            )
        transaction.sequences.pop(place, None)  # those used last are kept longest
        transaction.sequences[place] = (entry.sequence + run.records) % SEQUENCE_MODULUS
        transaction.partitions.add(entry.at)
        transaction.runs.append((file, run))
        return None

    def _hold(self, transaction: OpenTransaction, file: str, run: StagedRun) -> None:
        if (file, run.start) not in transaction.held:
            transaction.held.add((file, run.start))
            self._used[file] = self._used.get(file, 0) + 1
            # Of a refused one, too: it is on the disk until the transaction ends.
            transaction.size_bytes += run.length
            self.size_bytes += run.length
            self.sizes[transaction.principal] += run.length

    def is_repeat(self, name: str, at: TopicIdPartition, sequence: int, records: int) -> bool:
        """Whether all records of a batch are staged already."""
        found = self._open.get(name)
        return found is not None and found.repeats((at.topic_id, at.partition), sequence, records)

    def uses(self, file: str) -> bool:
        """Whether a run of a staged file is of use."""
        return file in self._used

    def hold(self, files: Iterable[StagedFile]) -> None:
        """Count the runs of a committed transaction of an earlier coordinator."""
        for file in files:
            self._used[file.path] = self._used.get(file.path, 0) + len(file.runs)

    def release(self, files: Iterable[StagedFile]) -> list[str]:
        """The runs of `files` are applied. Returns the files that nobody needs then."""
        return self._release(file.path for file in files for _ in file.runs)

    def _release(self, paths: Iterable[str]) -> list[str]:
        unused = []
        for path in paths:
            left = self._used.get(path, 0) - 1
            if left > 0:
                self._used[path] = left
            else:
                self._used.pop(path, None)
                unused.append(path)
        return unused

    def remember(
        self, files: Collection[ProducerFile], values: Mapping[str, ProducerValue], now_s: float
    ) -> list[str]:
        """Take up what is staged for the transactions that are open. Returns the files of no use.

        The runs of a partition follow one another by their sequences: what stands behind a gap was not
        answered.
        """
        chains: dict[tuple[str, TopicIdPartition], list[tuple[str, ProducerRun]]] = {}
        for file in files:
            for entry in file.runs:
                value = values.get(entry.id)
                if value is not None and entry.number == value.number + 1 and _is_of(entry, value):
                    self._hold(self.begin(entry.id, value, now_s), file.path, entry.run)
                    chains.setdefault((entry.id, entry.at), []).append((file.path, entry))
        for (name, at), found in chains.items():
            expected = self._open[name].expected((at.topic_id, at.partition))
            for path, entry in _longest(found, expected):
                self.add(name, path, entry, values[name], now_s)
        return [file.path for file in files if not self.uses(file.path)]


def _longest(
    found: Iterable[tuple[str, ProducerRun]], first: int | None
) -> Iterable[tuple[str, ProducerRun]]:
    """The runs of a partition that follow one another from the sequence `first` on, as far as any
    do. A client that sends again may have sent more at once: its runs overlap, and hold the same records.
    """
    if first is None:
        ends = {(e.sequence + e.run.records) % SEQUENCE_MODULUS for _, e in found}
        first = next((e.sequence for _, e in found if e.sequence not in ends), 0)
    reached: dict[int, tuple[str, ProducerRun] | None] = {0: None}
    by_place = sorted(found, key=lambda each: (each[1].sequence - first) % SEQUENCE_MODULUS)
    for path, entry in by_place:
        start = (entry.sequence - first) % SEQUENCE_MODULUS
        if start in reached:
            reached.setdefault(start + entry.run.records, (path, entry))
    chain, place = [], max(reached)
    while (last := reached[place]) is not None:
        chain.append(last)
        place -= last[1].run.records
    return reversed(chain)


def _is_of(entry: ProducerRun, value: ProducerValue) -> bool:
    return (entry.producer_id, entry.epoch) == (value.producer_id, value.epoch)
