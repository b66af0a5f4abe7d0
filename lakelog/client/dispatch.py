"""Batches on their way to a gateway, in threads: one request at a time for a partition.

It knows nothing of the producer that hands it records, so a producer that is no longer referenced is
collected while its threads run.
"""

import math
import threading

from lakelog.client.accumulator import SENDERS_MAX, Accumulator, ProducerConfig
from lakelog.client.client import Client
from lakelog.client.delivery import Delivery, check_may_wait
from lakelog.client.outgoing import Headers, TopicMetadata
from lakelog.client.partition_queue import PartitionQueue
from lakelog.client.sender import Sender
from log_tables.clock import Clock


class Dispatch:
    """Sends records to a gateway in the background. Thread-safe."""

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
