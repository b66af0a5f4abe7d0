"""The open transactions of Kafka's clients, at the coordinator of their ids: what is staged for each.

Nothing here is in the log: the staged files say it all, and are read when the partition is taken over
(`remember`). No I/O.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from log_tables.cluster.group_log import ProducerValue
from log_tables.errors import InvalidTransactionState, LakelogError, Retriable, SequenceGap
from log_tables.limits import SEQUENCE_MODULUS
from log_tables.segments.producer_staging import ProducerFile, ProducerRun
from log_tables.segments.staging import StagedFile, StagedRun
from log_tables.topic_partition import TopicIdPartition

_Place = tuple[str, int]
"""A partition, by the id of its topic."""


@dataclass(slots=True)
class OpenTransaction:
    """Transaction `number` of an id. `began_s` is a time by `Clock.boottime`.

    `partitions` may be written to; `runs` are staged, in the order in which they came; `sequences` come next.
    `groups` have offsets in it.
    """

    number: int
    began_s: float
    partitions: set[TopicIdPartition] = field(default_factory=set)
    runs: list[tuple[str, StagedRun]] = field(default_factory=list)
    sequences: dict[_Place, int] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)
    size_bytes: int = 0

    def staged(self) -> tuple[StagedFile, ...]:
        """The files with its records, each with its runs, in the order in which they came."""
        files: dict[str, list[StagedRun]] = {}
        for path, run in self.runs:
            files.setdefault(path, []).append(run)
        return tuple(StagedFile(path, tuple(runs)) for path, runs in files.items())


class OpenTransactions:
    """The open transactions of one partition of `__consumer_offsets`, by transactional id; and how many runs
    of each staged file are of use.
    """

    def __init__(self) -> None:
        self._open: dict[str, OpenTransaction] = {}
        self._used: dict[str, int] = {}
        self._known: set[str] = set()

    def __len__(self) -> int:
        return len(self._open)

    def items(self) -> list[tuple[str, OpenTransaction]]:
        """The open transactions, by id."""
        return [*self._open.items()]

    def find(self, name: str) -> OpenTransaction | None:
        """The open transaction of an id."""
        return self._open.get(name)

    def knows(self, name: str) -> bool:
        """Whether all that concerns an id is known, as it has begun or ended a transaction here."""
        return name in self._known

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
                value.number + 1, now_s, sequences={(topic, p): n for topic, p, n in value.sequences}
            )
        return found

    def end(self, name: str, committed: Iterable[StagedFile] = ()) -> list[str]:
        """Forget the open transaction of an id, whose `committed` runs are needed until they are released.
        Returns the files that nobody needs any longer.
        """
        found = self._open.pop(name, None)
        if found is None:
            return []
        left = Counter(path for path, _ in found.runs)
        left.subtract({file.path: len(file.runs) for file in committed})
        return self._release(left.elements())

    def add(self, name: str, file: str, entry: ProducerRun) -> LakelogError | None:
        """Add a run that is staged; why it is refused, None for a repeat, too. Only what is added is used.

        A sequence that the transaction does not know begins anywhere, as in Kafka.
        """
        transaction = self._open.get(name)
        if transaction is None or entry.number != transaction.number:
            return InvalidTransactionState(
                f"transaction {entry.number} of the transactional id {name[:100]!r} has ended; begin another"
            )
        place, run = (entry.run.topic_id, entry.run.partition), entry.run
        expected = transaction.sequences.get(place, entry.sequence)
        if entry.sequence != expected:
            behind = (expected - entry.sequence) % SEQUENCE_MODULUS
            if run.records <= behind < SEQUENCE_MODULUS // 2:
                return None  # a repeat
            if behind < run.records:
                return Retriable(f"a part of what was sent for {entry.at} is a repeat; send it again")
            return SequenceGap(
                f"sequence {entry.sequence} does not follow in {entry.at}: {expected} is next; send what is "
                "missing first",
                expected=expected,
                current=expected,
            )
        transaction.sequences[place] = (entry.sequence + run.records) % SEQUENCE_MODULUS
        transaction.partitions.add(entry.at)
        transaction.runs.append((file, run))
        transaction.size_bytes += run.length
        self._used[file] = self._used.get(file, 0) + 1
        return None

    def is_repeat(self, name: str, at: TopicIdPartition, sequence: int) -> bool:
        """Whether a batch with `sequence` is staged already."""
        found = self._open.get(name)
        expected = None if found is None else found.sequences.get((at.topic_id, at.partition))
        if expected is None or expected == sequence:
            return False
        return (expected - sequence) % SEQUENCE_MODULUS < SEQUENCE_MODULUS // 2

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
        chains: dict[tuple[str, TopicIdPartition], dict[int, tuple[str, ProducerRun]]] = {}
        for file in files:
            for entry in file.runs:
                value = values.get(entry.id)
                if value is not None and entry.number == value.number + 1 and _is_of(entry, value):
                    chain = chains.setdefault((entry.id, entry.at), {})
                    chain.setdefault(entry.sequence, (file.path, entry))
        for (name, at), chain in chains.items():
            transaction = self.begin(name, values[name], now_s)
            following = {
                (sequence + entry.run.records) % SEQUENCE_MODULUS for sequence, (_, entry) in chain.items()
            }
            known = transaction.sequences.get((at.topic_id, at.partition))
            first = known if known in chain else next((s for s in chain if s not in following), None)
            while first is not None and first in chain:
                path, entry = chain[first]
                self.add(name, path, entry)
                first = (first + entry.run.records) % SEQUENCE_MODULUS
        return [file.path for file in files if not self.uses(file.path)]


def _is_of(entry: ProducerRun, value: ProducerValue) -> bool:
    return (entry.producer_id, entry.epoch) == (value.producer_id, value.epoch)
