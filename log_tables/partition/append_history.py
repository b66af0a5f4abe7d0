"""The batches of producers that earlier leaders have appended, as the newest commits name them.

The txns of a table have the end of each producer's newest batch, and that is enough to tell a repeat. Where
an older one was appended is in the `commitInfo` of its commit. So the commits are read back, one after the
other, once somebody asks; nobody does but a client that has lost several answers and its leader.
"""

from dataclasses import dataclass, field

from log_tables.limits import PRODUCER_BATCHES, REPEAT_COMMITS, SEQUENCE_MODULUS
from log_tables.partition.sequencer import ProducerStamp
from log_tables.store.store import Store
from log_tables.table.commit import ProducedBatch, read_commit
from log_tables.table.snapshot import Snapshot


@dataclass(slots=True)
class AppendHistory:
    """The newest batches before `snapshot`, with which a term of leadership begins. Blocking."""

    store: Store
    directory: str
    snapshot: Snapshot
    _version: int = field(init=False)
    _left: int = field(init=False, default=REPEAT_COMMITS)
    _found: dict[int, list[ProducedBatch]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._version = self.snapshot.version

    def base_offset(self, stamp: ProducerStamp, count: int, most: int, before: int | None) -> int | None:
        """Where the batch of `count` records was appended, if it is one of the newest `most` of its producer;
        None if that is not known.

        The batches that were appended since begin at sequence `before`, if there are any. Raises
        StoreUnavailable, CorruptLog.
        """
        state = self.snapshot.producer(stamp.id)
        if state is None or state.epoch != stamp.epoch or before not in (None, state.next_sequence):
            return None  # it was forgotten since, or has another epoch: these are not its batches
        while True:
            found = self._found.get(stamp.id, [])[:most]
            for batch in found:
                if (batch.sequence, batch.count) == (stamp.sequence, count):
                    return batch.base_offset
            if len(found) == most or not self._read():
                return None

    def _read(self) -> bool:
        """Read one more commit back; False where there is none, or that is enough."""
        commit = None
        if self._left > 0 and self._version >= 0:
            commit = read_commit(self.store, self.directory, self._version)
        if commit is None:
            self._left = 0
            return False
        self._left -= 1
        self._version -= 1
        for batch in reversed(commit.info.producers):
            self._add(batch)
        return True

    def _add(self, batch: ProducedBatch) -> None:
        """Keep `batch` if the ones that are kept follow on it."""
        found = self._found.get(batch.id)
        if found is None:
            state = self.snapshot.producer(batch.id)
            if state is not None and _ends_at(batch, state.epoch, state.next_sequence):
                self._found[batch.id] = [batch]
        elif len(found) < PRODUCER_BATCHES and _ends_at(batch, found[-1].epoch, found[-1].sequence):
            found.append(batch)


def _ends_at(batch: ProducedBatch, epoch: int, sequence: int) -> bool:
    return batch.epoch == epoch and (batch.sequence + batch.count) % SEQUENCE_MODULUS == sequence
