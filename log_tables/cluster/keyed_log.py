"""A log of records by key, of which the newest of each key counts: one that is followed, or changed too.

It is a partition like any other. Every change is one conditional append, so concurrent processes take turns.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress

from log_tables.clock import Backoff
from log_tables.cluster.standby import check_no_standby
from log_tables.errors import NotLeader, ObjectMissing, OffsetMismatch, StoreUnavailable, begun
from log_tables.layout import commit_path
from log_tables.limits import BATCH_MAX_BYTES, METADATA_ATTEMPTS_MAX, METADATA_PAUSE_MAX_S, METADATA_PAUSE_S
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.partition.reader import PartitionReader
from log_tables.record import Record, input_batch, to_records
from log_tables.store.store import Store

WRITERS_RACE = Backoff(METADATA_PAUSE_S, max_s=METADATA_PAUSE_MAX_S)
"""The pauses of processes that append to one internal topic at the same time."""


class FollowedLog(ABC):
    """The content of such a log as last refreshed. Thread-safe; blocking."""

    def __init__(self, partition: PartitionReader) -> None:
        self.partition = partition
        self._lock = threading.RLock()
        self._next = self._cleaned = 0

    def refresh(self, wait: bool = False) -> None:
        """Follow the log to its end; with `wait`, after a commit of this process that is in flight.

        Raises CorruptLog, and shows nothing new then.
        """
        log = self.partition
        log.refresh(wait)
        with self._lock:
            if self._next >= log.high_watermark:
                return
            while self._next < log.high_watermark:
                self._read_on()
            self._publish()

    def _read_on(self) -> None:
        """Read a part of what is new.

        Compaction by key may have dropped the removal of a key that is known here, if this process slept for
        longer than a tombstone stays. A key that was revoked meanwhile must not stay good, so a log that was
        compacted beyond what is known here is read again from its start.
        """
        log, begin = self.partition, self._next
        if begin == 0:
            self._begin()
            self._cleaned = log.snapshot.cleaned
        plan = log.plan_read(max(begin, log.log_start), BATCH_MAX_BYTES)
        for batch in log.read(plan):
            for record in to_records(batch):
                self._read(record)
        self._next = 0 if begin < log.snapshot.cleaned != self._cleaned else plan.end

    @abstractmethod
    def _begin(self) -> None:
        """Forget what was read: the log is read from its start."""

    @abstractmethod
    def _read(self, record: Record) -> None:
        """Take the next record. Raises CorruptLog."""

    @abstractmethod
    def _publish(self) -> None:
        """Show what was read, as values that do not change: readers take no lock, as this one is held while
        the store is asked.
        """


class KeyedLog(FollowedLog):
    """An internal log, which this process may change."""

    partition: Partition

    def __init__(self, partition: Partition, url: str) -> None:
        """`url` is the URL of this process, for its claims."""
        super().__init__(partition)
        self._url = url
        self._clock = partition.clock

    def make_durable(self) -> None:
        """Make all records that were read here durable, before an action relies on them.

        Raises StoreUnavailable.
        """
        self.partition.table.make_durable()

    def check_exists(self, store: Store) -> None:
        """Raise StoreUnavailable if the log is no longer in `store`: where a mount is lost, it looks like a
        log without news.
        """
        log = self.partition
        try:
            store.head(commit_path(log.directory, log.snapshot.version))
        except ObjectMissing:
            raise StoreUnavailable(
                f"{log.directory} is no longer under the root; check that the root is mounted"
            ) from None

    def _change(self, what: str, decide: Callable[[], Sequence[Record]], since: float | None = None) -> None:
        """Append what `decide` makes of the newest records, as one commit; repeated when another process was
        first. Without records nothing is appended. `since` is as in AppendRequest.

        Raises NotLeader when others were first too often.
        """
        # Another process may write the log at the same time.
        for _ in WRITERS_RACE.attempts(self._clock, METADATA_ATTEMPTS_MAX):
            with suppress(NotLeader, OffsetMismatch), self._lock:
                if not self.partition.leading:
                    check_no_standby(self.partition.table.store)
                    self.partition.claim(self._url)
                self.refresh()
                self.make_durable()
                records = decide()
                if records:
                    batch = input_batch(records, self._clock.now_us())
                    self.partition.append([AppendRequest(batch, expected_offset=self._next, since=since)])
                    with begun(f"{what} was changed"):
                        self.refresh()
                return
        raise NotLeader(
            f"too many processes change {self.partition.directory} at once, so {what} was not changed; "
            "repeat the request"
        )
