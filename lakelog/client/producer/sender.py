"""The requests of a producer, and what follows from each answer: calls for both of its faces."""

import logging
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import httpx

from lakelog.client.calls import Calls
from lakelog.client.producer.accumulator import Accumulator, ProducerConfig
from lakelog.client.producer.outgoing import TopicMetadata, largest_record
from lakelog.client.producer.partition_queue import Batch, PartitionQueue
from lakelog.client.request import ARROW, Call, Request, quoted
from log_tables.clock import Clock
from log_tables.errors import LakelogError, NotFound, Retriable, UnknownPartition
from log_tables.key_hash import MURMUR3
from log_tables.partition.sequencer import client_producer_id

TOLD_AFTER_S = 5.0
"""How long a batch is repeated before it is said why."""

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _MetadataRequest:
    """About a topic. When it is `over`, the topic is `known`, or there is an `error`; neither where its
    caller was cancelled.
    """

    over: Future[None] = field(default_factory=Future)
    known: TopicMetadata | None = None
    error: Exception | None = None


class Sender:
    """The calls of one producer. `lock` guards the accumulator; no call waits for an answer with it."""

    def __init__(
        self,
        calls: Calls,
        accumulator: Accumulator,
        config: ProducerConfig,
        lock: AbstractContextManager[Any],
        clock: Clock,
    ) -> None:
        self._calls, self._accumulator, self._config = calls, accumulator, config
        self._lock, self._clock = lock, clock
        self._id = client_producer_id(clock)
        self._questions: dict[str, _MetadataRequest] = {}
        self._told: PartitionQueue | None = None

    def topic(self, name: str, partition: int | None) -> Call[TopicMetadata]:
        """The topic, asked for when it is not known, or too old, or too small for `partition`."""
        known = self._accumulator.topics.get(name)
        if known is None or not known.has(partition):
            known = yield from self._asked(name, partition)
        elif known.is_old:
            known.fetched_s, known.is_old = self._clock.monotonic(), False
            try:
                known = yield from self._asked(name, partition)
            except Retriable:
                pass  # what was true five minutes ago will do until a gateway answers again
        if not known.has(partition):
            raise UnknownPartition(
                f"topic {name!r} has no partition {partition}; it has 0 to {known.partitions - 1}"
            )
        return known

    def deliver(self, queue: PartitionQueue) -> Call[None]:
        """One attempt to send the batch in hand of `queue`."""
        batch, base, error = queue.batches[0], None, None
        left_s = batch.deadline_s - self._clock.monotonic()
        if left_s <= 0:
            self._put_down(queue, batch, None, queue.expired())
            return
        try:
            answer = yield self._request(queue, batch, min(left_s, self._config.request_s))
            base = _base_offset(answer)
        except Exception as failure:  # noqa: BLE001 -- whatever it is, the futures must hear of it
            with self._lock:
                error = queue.failed(failure, self._clock.monotonic())
                if error is None:
                    self._tell(queue, failure)
                    self._accumulator.wake()
                    return
        else:
            queue.delivered()
        self._put_down(queue, batch, base, error)

    def _tell(self, queue: PartitionQueue, failure: Exception) -> None:
        """Say once what records wait for, until those of that partition go on."""
        now_s, since_s = self._clock.monotonic(), queue.failing_since_s
        if self._told is None and since_s is not None and now_s - since_s >= TOLD_AFTER_S:
            self._told = queue
            _log.warning(
                "records of topic %s wait, and are sent again until %g s are over: %s",
                queue.topic,
                self._config.delivery_s,
                failure,
            )

    def _asked(self, name: str, partition: int | None) -> Call[TopicMetadata]:
        """The topic, by one question of all that ask for it at once.

        A topic that suffices is taken from a question that is under way. Anything else is taken only from one
        that began later than this call: the topic may have been created, or enlarged, since.
        """
        mine, began_later = _MetadataRequest(), False
        while (question := self._questions.setdefault(name, mine)) is not mine:
            yield question.over
            if question.known is not None and (began_later or question.known.has(partition)):
                return question.known
            if question.error is not None and began_later:
                raise question.error
            began_later = True
        return (yield from self._answered(name, mine))

    def _answered(self, name: str, question: "_MetadataRequest") -> Call[TopicMetadata]:
        """The topic, asked for by this call; those that wait for `question` hear of it."""
        try:
            question.known = known = yield from self._fetch_topic(name)
        except Exception as error:
            question.error = error
            raise
        finally:
            del self._questions[name]
            question.over.set_result(None)
        return known

    def _fetch_topic(self, name: str) -> Call[TopicMetadata]:
        found = yield from self._calls.topic(name)
        count, largest = len(found["partitions"]), largest_record(found["configs"])
        topics = self._accumulator.topics
        before = topics.get(name)
        sticky = int(self._clock.random() * count) if before is None else before.sticky % count
        known = topics[name] = TopicMetadata(
            name, count, largest, found.get("partitioner_hash", MURMUR3), self._clock.monotonic(), sticky
        )
        return known

    def _request(self, queue: PartitionQueue, batch: Batch, timeout_s: float) -> Request:
        headers = {"Content-Type": ARROW}
        if queue.idempotent:
            headers |= {
                "Producer-Id": str(self._id),
                "Producer-Epoch": str(queue.epoch),
                "Producer-Seq": str(queue.sequence),
            }
        path = f"/topics/{quoted(queue.topic)}/partitions/{queue.partition}?acks={self._config.acks}"
        return Request("POST", path, timeout_s, {"content": batch.body(), "headers": headers})

    def _put_down(
        self, queue: PartitionQueue, batch: Batch, base: int | None, error: Exception | None
    ) -> None:
        """Set the result of the batch in hand of `queue`, and go on with the next."""
        if isinstance(error, NotFound):
            self._accumulator.topics.pop(queue.topic, None)
        with self._lock:
            self._accumulator.release(batch, error)  # first: a callback may send more
        batch.result.resolve(base, error)
        with self._lock:
            self._told = None if self._told is queue else self._told
            queue.put_down()  # last: callbacks of a partition are called in its order
            self._accumulator.wake()


def _base_offset(answer: httpx.Response) -> int | None:
    try:
        base: int | None = answer.json()["offsets"][0]["base_offset"]
    except (ValueError, LookupError, TypeError):
        raise LakelogError(
            f"the answer of {answer.url} is not that of a gateway; name the url of one"
        ) from None
    return base
