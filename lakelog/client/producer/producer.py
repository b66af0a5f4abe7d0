"""An idempotent producer: the object that a program holds, and the dispatch that sends in threads."""

import math
import threading
from types import TracebackType
from typing import Any, Self
from weakref import finalize

import httpx

from lakelog.client.client import Client
from lakelog.client.producer.accumulator import SENDERS_MAX, Accumulator, ProducerConfig
from lakelog.client.producer.common_producer import CommonProducer, warn_unclosed
from lakelog.client.producer.delivery import Delivery, RecordMetadata, check_may_wait
from lakelog.client.producer.outgoing import Headers, TopicMetadata
from lakelog.client.producer.partition_queue import PartitionQueue
from lakelog.client.producer.sender import Sender
from log_tables.clock import Clock
from log_tables.errors import LakelogError

__all__ = ["Producer", "RecordMetadata"]


class Dispatch:
    """Sends batches to a gateway, in threads: one request at a time for a partition. Thread-safe.

    It knows nothing of the producer that hands it records, so a producer that is no longer referenced is
    collected while its threads run.
    """

    def __init__(self, client: Client, config: ProducerConfig, clock: Clock) -> None:
        self._client, self._config = client, config
        # Reentrant: `abandon` may be called by the garbage collector, in the middle of anything.
        self._lock = threading.RLock()
        self._work, self._room = threading.Condition(self._lock), threading.Condition(self._lock)
        self._threads: list[threading.Thread] = []
        self._draining = self._ended = False
        self.accumulator = Accumulator(
            config, clock, wake=self._wake, freed=self._free, senders=self._threads
        )
        self._add = self.accumulator.add
        self._sender = Sender(client.calls, self.accumulator, config, self._lock, clock)

    def topic(self, name: str, partition: int | None) -> TopicMetadata:
        """A topic, as it is known, or as a gateway tells of it."""
        return self._client.perform(self._sender.topic(name, partition))

    def add(
        self,
        topic: TopicMetadata,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        timestamp_ms: int | None,
        partition: int | None,
    ) -> Delivery:
        """Add a record; waits for room. Raises as `Accumulator.add`, and BufferFull."""
        with self._lock:
            placed = self._add(topic, value, key, headers, timestamp_ms, partition)
            while isinstance(placed, int):
                self._wait_for_room(placed)
                placed = self._add(topic, value, key, headers, timestamp_ms, partition)
        return Delivery(*placed)

    def flush(self) -> None:
        """Send what waits at once, and return when the result of all of it is known.

        Raises InvalidArgument in a callback.
        """
        check_may_wait(self._threads)
        with self._lock:
            waiting = self.accumulator.seal()
        for batch in waiting:
            batch.result.wait()

    def undelivered(self) -> Exception | None:
        """The error of the records that failed and were not reported yet; they are reported with it."""
        with self._lock:
            return self.accumulator.undelivered.pop()

    def stop_accepting(self) -> None:
        """Accept no more records. Raises InvalidArgument in a callback."""
        check_may_wait(self._threads)
        with self._lock:
            self.accumulator.close()

    def end(self) -> None:
        """End the threads and connections. Records that still wait are never sent."""
        with self._lock:
            self._ended = True
            self._work.notify_all()
        for thread in self._threads:
            thread.join()
        self._client.close()

    def abandon(self) -> int:
        """Send what waits, and end without a caller. Returns how many records wait."""
        with self._lock:
            self._draining = True
            self.accumulator.close()
            return sum(batch.result.records for batch in self.accumulator.seal())

    def _wait_for_room(self, size: int) -> None:
        if not self._room.wait_for(lambda: self.accumulator.has_room(size), self._config.max_block_s):
            raise self.accumulator.full(size)

    def _wake(self) -> None:
        """Have a thread look what is due; start one where there is more to do than threads."""
        if len(self._threads) < min(SENDERS_MAX, len(self.accumulator.queues)):
            thread = threading.Thread(target=self._run, name="lakelog-producer", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._work.notify()

    def _free(self) -> None:
        self._room.notify_all()

    def _run(self) -> None:
        """The loop of a thread: wait for a partition whose first batch is due, and send that."""
        while (queue := self._next()) is not None:
            self._client.perform(self._sender.deliver(queue))

    def _next(self) -> PartitionQueue | None:
        """Wait for a batch that is due and take it in hand. Returns None at the end."""
        with self._lock:
            while not self._ended:
                found = self.accumulator.next()
                if isinstance(found, PartitionQueue):
                    self._work.notify()  # the next one watches over what comes next
                    return found
                if self._draining and not any(queue.batches for queue in self.accumulator.queues.values()):
                    self._ended = True
                    self._work.notify_all()
                    self._client.close()
                else:
                    self._work.wait(None if found == math.inf else found)
        return None


class Producer(CommonProducer[httpx.BaseTransport]):
    """Sends records to the gateway at `url`. Thread-safe; close it, or use it as a context manager.

    Each record is in the log once, and in the order of `send` within its partition, also when answers are
    lost, and when the gateway dies and comes back within `delivery_timeout_ms`. That is so with acks "all";
    docs/guarantees.md says what "1" and "0" may lose. Records that are still in flight when the process ends
    are lost.

    A record that was not delivered is never lost in silence: its future raises why, and `flush`, `close` and
    the end of a `with` block raise the first one whose future nobody has taken.

    A batch is sent `linger_ms` after its first record, or with `batch_size` bytes. `buffer_memory` (bytes)
    bounds what waits; when it is full, `send` blocks for up to `max_block_ms`. The names and meanings are
    Kafka's. `credential`, `ssl_context` and `transport` are those of Client.

    Keys and values are bytes, or what `key_serializer` and `value_serializer` make bytes of, such as
    `lakelog.json_serializer`. None stays None: no key, and a record that deletes its key.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close()
        except LakelogError as undelivered:  # it must not hide what ended the block
            error.add_note(f"lakelog.Producer: {undelivered}")

    def send(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Hand over a record; its future says where it is, or raises why it is not there.

        It goes to `partition`, else to that of its key by the topic's `partitioner.hash`, else to the one
        whose batch is being filled (KIP-480). Without `timestamp_ms` (since 1970 UTC) it has the time of this
        call.

        Errors that are known at once are raised here, and the record takes no room: TypeError for a value,
        key or header that is not bytes, InvalidRecord for a time that no log takes, RecordTooLarge,
        UnknownTopic, UnknownPartition, Unreachable when no gateway answers that tells about the topic, and
        BufferFull when there is no room for `max_block_ms`. An error of a serializer is raised as it is.
        """
        known = self._topics.get(topic)
        if known is None or known.is_old or (partition is not None and not known.has(partition)):
            self._check_target(topic, partition)
            known = self._dispatch.topic(topic, partition)
        if self._serializes:
            value, key = self._serialized(value, key)
        return self._dispatch.add(known, value, key, headers, timestamp_ms, partition)

    def flush(self) -> None:
        """Send what waits, at once, and return when all of it is acknowledged or given up.

        Raises the error of the first record that was not delivered since the last flush, with the number of
        all such records. Those whose future was asked (`result`, `exception`) or has a callback do not count:
        their caller has been told. InvalidArgument in a callback of this producer, whose thread sends.
        """
        self._dispatch.flush()
        self._raise_undelivered()

    def close(self) -> None:
        """Refuse more, flush, and end the threads and connections. Raises as `flush` does, once it is closed.

        Closing twice is fine. A `with` block that ends by an exception keeps it, and has a note instead. A
        producer that is dropped without it says so in the log, and as a ResourceWarning.
        """
        self._dispatch.stop_accepting()
        self._dispatch.flush()
        self._dispatch.end()
        self._unclosed.detach()
        self._raise_undelivered()

    def _raise_undelivered(self) -> None:
        error = self._dispatch.undelivered()
        if error is not None:
            raise error

    def _connect(self, config: ProducerConfig, options: dict[str, Any]) -> Accumulator:
        client = Client(**options, clock=self._clock)
        self._dispatch = Dispatch(client, config, self._clock)
        self._unclosed = finalize(self, _abandon, self._dispatch)
        return self._dispatch.accumulator


def _abandon(dispatch: Dispatch) -> None:
    """Somebody has let go of a producer, or the process ends, before it was closed."""
    warn_unclosed("Producer", "a with block", dispatch.abandon())
