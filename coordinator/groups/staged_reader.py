"""Reading the staged records of transactions as the requests that append them, the same ones every time."""

from collections.abc import Iterator, Sequence

from coordinator.groups.partition_append import PartitionAppend
from log_tables.errors import CorruptSegment
from log_tables.limits import SEQUENCE_MODULUS, STAGED_BATCH_BYTES
from log_tables.partition.partition import AppendRequest, ProducerStamp
from log_tables.segments.staging import read_run
from log_tables.store.store import Store


class StagedReader:
    """Reads for one partition. It goes on where the last read ended, if the next one begins there."""

    def __init__(self, store: Store, batch_bytes: int = STAGED_BATCH_BYTES) -> None:
        """A read ends with the request that makes it `batch_bytes` or more."""
        self._store, self._batch_bytes = store, batch_bytes
        self._number, self._position = 0, 0
        self._requests: Iterator[AppendRequest] | None = None

    def read(self, appends: Sequence[PartitionAppend]) -> list[AppendRequest]:
        """The next requests of `appends`, in order, from the first record that is not durable on. Blocking.

        Raises CorruptSegment when not even one can be read, because its staged file is lost;
        StoreUnavailable.
        """
        found: list[AppendRequest] = []
        size = 0
        try:
            for append in appends:
                for request in self._requests_of(append):
                    found.append(request)
                    size += request.size_bytes
                    self._position += request.count
                    if size >= self._batch_bytes:
                        return found
        except BaseException as error:
            self._requests = None
            if not found or not isinstance(error, CorruptSegment):
                raise
        return found

    def _requests_of(self, append: PartitionAppend) -> Iterator[AppendRequest]:
        if self._requests is None or (self._number, self._position) != (append.number, append.durable):
            self._number, self._position = append.number, append.durable
            self._requests = _requests(self._store, append)
        return self._requests


def _requests(store: Store, append: PartitionAppend) -> Iterator[AppendRequest]:
    """The requests from the first record that is not durable on."""
    position, intent = 0, append.intent
    for staged, run in append.runs:
        if position + run.records <= append.durable:
            position += run.records
            continue
        for batch in read_run(store, staged, run):
            if batch.num_rows and position >= append.durable:
                sequence = position % SEQUENCE_MODULUS
                yield AppendRequest(
                    batch, ProducerStamp(intent.producer_id, intent.epoch, sequence, kept=True)
                )
            position += batch.num_rows
