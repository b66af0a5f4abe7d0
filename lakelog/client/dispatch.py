"""Batches on their way to a gateway: bounded in memory, one request at a time for a partition, in threads.

It knows nothing of the producer that hands it records, so a producer that nobody holds any more is collected
while its threads run.
"""

import math
import threading
from dataclasses import dataclass
from urllib.parse import quote

from lakelog.client.client import ARROW, Client
from lakelog.client.delivery import Delivery, Outcome, Undelivered, check_may_wait
from lakelog.client.lane import Batch, Lane
from lakelog.client.outgoing import Headers
from log_tables.clock import Clock
from log_tables.errors import BufferFull, InvalidArgument, LakelogError, NotFound
from log_tables.partition.partition import partition_for_key

SENDERS_MAX = 8
"""Requests in flight at once, each to another partition."""

RECORD_OVERHEAD_BYTES = 256
"""What Python's objects for a record take beside its bytes."""


@dataclass(slots=True)
class Topic:
    """What is known of a topic, and where records without a key go at the moment."""

    name: str
    partitions: int
    max_message_bytes: int
    asked_s: float
    sticky: int


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings of a producer that are about sending; seconds and bytes."""

    acks: str
    linger_s: float
    batch_size: int
    buffer_memory: int
    max_block_s: float
    request_s: float
    delivery_s: float


class Dispatch:
    """Sends records to a gateway in the background. Thread-safe.

    Of `topics` it drops those that the gateway does not know any more.
    """

    def __init__(
        self, client: Client, producer_id: int, topics: dict[str, Topic], limits: Limits, clock: Clock
    ) -> None:
        self._client, self._id, self._topics = client, producer_id, topics
        self._limits, self._clock = limits, clock
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._buffered = 0
        self._undelivered = Undelivered()
        self._closed = self._draining = self._ended = False
        # Reentrant: `abandon` may be called by the garbage collector, in the middle of anything.
        lock = threading.RLock()
        self._work, self._room = threading.Condition(lock), threading.Condition(lock)
        self._senders: list[threading.Thread] = []

    def add(
        self,
        topic: Topic,
        partition: int | None,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        timestamp_ms: int,
        size: int,
    ) -> Delivery:
        """Take a record of `size` bytes, waiting for room. Raises BufferFull, InvalidArgument when closed."""
        with self._work:
            self._reserve(size + RECORD_OVERHEAD_BYTES)
            batch = self._batch(topic, key, partition, size)
            batch.size_bytes += size
            batch.held_bytes += size + RECORD_OVERHEAD_BYTES
            if batch.size_bytes >= self._limits.batch_size:
                batch.sealed = True
                self._work.notify()
            return batch.add(value, key, headers, timestamp_ms)

    def settle(self) -> None:
        """Send what waits, at once, and return when it is known what became of it.

        Raises InvalidArgument in a callback.
        """
        check_may_wait(self._senders)
        with self._work:
            waiting = self._seal()
        for batch in waiting:
            batch.outcome.wait()

    def undelivered(self) -> Exception | None:
        """Why records were not delivered of which nobody was told; who asks has been told."""
        with self._work:
            return self._undelivered.pop()

    def refuse(self) -> None:
        """Take no more records. Raises InvalidArgument in a callback."""
        check_may_wait(self._senders)
        with self._work:
            self._closed = True
            self._room.notify_all()

    def end(self) -> None:
        """End the threads and connections. What still waits is never sent."""
        with self._work:
            self._ended = True
            self._work.notify_all()
        for sender in self._senders:
            sender.join()
        self._client.close()

    def abandon(self) -> int:
        """Send what waits, and end by itself; how many records these are."""
        with self._work:
            self._closed = self._draining = True
            return sum(batch.outcome.records for batch in self._seal())

    def check_open(self) -> None:
        """Raise InvalidArgument when it takes no more."""
        if self._closed:
            raise InvalidArgument("the producer is closed; make another")

    def _seal(self) -> list[Batch]:
        """What waits, which is due now."""
        waiting = [batch for lane in self._lanes.values() for batch in lane.batches]
        for batch in waiting:
            batch.sealed = True
        self._work.notify_all()
        return waiting

    def _reserve(self, size: int) -> None:
        """Take room in the buffer, waiting for it. A record larger than the buffer goes through it alone."""
        limit = self._limits.buffer_memory

        def free() -> bool:
            return self._closed or self._buffered == 0 or self._buffered + size <= limit

        if not self._room.wait_for(free, self._limits.max_block_s):
            raise BufferFull(
                f"{self._buffered} of {limit} bytes wait for the gateway, and for "
                f"{self._limits.max_block_s:g} s there was no room for {size} more; look at the gateway",
                retry_after_s=1,
            )
        self.check_open()
        self._buffered += size

    def _batch(self, topic: Topic, key: bytes | None, partition: int | None, size: int) -> Batch:
        """The batch that a record of `size` bytes joins."""
        if partition is None and key is not None:
            partition = partition_for_key(key, topic.partitions)
        if partition is None:
            lane = self._lane(topic.name, topic.sticky)
            batch = self._fitting(lane, size)
            if batch is not None:
                return batch
            partition = topic.sticky = (topic.sticky + 1) % topic.partitions
        lane = self._lane(topic.name, partition)
        return self._fitting(lane, size) or self._open(lane)

    def _fitting(self, lane: Lane, size: int) -> Batch | None:
        """The open batch of `lane`, if it has room; without room it is sealed."""
        batch = lane.open_batch()
        if batch is not None and batch.size_bytes + size > self._limits.batch_size:
            batch.sealed = True
            self._work.notify()
            return None
        return batch

    def _open(self, lane: Lane) -> Batch:
        now_s = self._clock.monotonic()
        outcome = Outcome(lane.topic, lane.partition, self._senders)
        batch = Batch(outcome, now_s + self._limits.linger_s, now_s + self._limits.delivery_s)
        lane.batches.append(batch)
        self._work.notify()
        return batch

    def _lane(self, topic: str, partition: int) -> Lane:
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = Lane(topic, partition, stamped=self._limits.acks != "0")
            if len(self._senders) < SENDERS_MAX:
                sender = threading.Thread(target=self._run, name="lakelog-producer", daemon=True)
                self._senders.append(sender)
                sender.start()
        return lane

    def _run(self) -> None:
        """What each sender thread does: take a partition whose first batch is due, send that, again."""
        while (lane := self._next()) is not None:
            self._deliver(lane)

    def _next(self) -> Lane | None:
        """Wait for a batch that is due and take it in hand; None at the end."""
        with self._work:
            while not self._ended:
                now_s = self._clock.monotonic()
                lane = min(self._lanes.values(), key=Lane.due_s)
                due_s = lane.due_s()
                if due_s <= now_s:
                    lane.begin()
                    self._work.notify()  # the next one watches over what comes next
                    return lane
                if self._draining and not any(each.batches for each in self._lanes.values()):
                    self._ended = True
                    self._work.notify_all()
                    self._client.close()
                else:
                    self._work.wait(None if due_s == math.inf else due_s - now_s)
        return None

    def _deliver(self, lane: Lane) -> None:
        """One attempt to send the batch in hand of `lane`."""
        batch, base = lane.batches[0], None
        try:
            left_s = batch.deadline_s - self._clock.monotonic()
            if left_s > 0:
                base = self._post(lane, batch, min(left_s, self._limits.request_s))
        except Exception as failure:  # noqa: BLE001 -- whatever it is, the futures must hear of it
            with self._work:
                error = lane.failed(failure, self._clock.monotonic())
                if error is None:
                    self._work.notify()
                    return
        else:
            error = None if left_s > 0 else lane.expired()
            if error is None:
                lane.delivered()
        self._put_down(lane, batch, base, error)

    def _put_down(self, lane: Lane, batch: Batch, base: int | None, error: Exception | None) -> None:
        """Say what became of the batch in hand of `lane`, and go on with the next."""
        if isinstance(error, NotFound):
            self._topics.pop(lane.topic, None)
        with self._work:
            if error is not None:
                self._undelivered.add(batch.outcome, error)
            self._buffered -= batch.held_bytes
            self._room.notify_all()  # first: a callback may send more
        batch.outcome.settle(base, error)
        with self._work:
            lane.put_down()  # last: callbacks of a partition are called in its order
            self._work.notify()

    def _post(self, lane: Lane, batch: Batch, timeout_s: float) -> int | None:
        """Send a batch; returns its base offset."""
        headers = {"Content-Type": ARROW}
        if lane.stamped:
            headers |= {
                "Producer-Id": str(self._id),
                "Producer-Epoch": str(lane.epoch),
                "Producer-Seq": str(lane.sequence),
            }
        path = f"/topics/{quote(lane.topic, safe='')}/partitions/{lane.partition}"
        answer = self._client.post(f"{path}?acks={self._limits.acks}", batch.body(), headers, timeout_s)
        try:
            base: int | None = answer.json()["offsets"][0]["base_offset"]
        except (ValueError, LookupError, TypeError):
            raise LakelogError(f"the answer of {self._client.url} is not a gateway's; is it one?") from None
        return base
