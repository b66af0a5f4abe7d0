"""A member of a consumer group: it reads its share of topics, and commits its offsets."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from lakelog.client.calls import Calls
from lakelog.client.client import Client
from lakelog.client.consumer.common_consumer import CommonConsumer
from lakelog.client.consumer.consumer_record import ConsumerRecord, to_consumer_records
from lakelog.client.consumer.transaction import Transaction
from lakelog.client.request import Call
from log_tables.errors import LakelogError
from log_tables.topic_partition import TopicPartition

__all__ = ["Consumer", "ConsumerRecord", "TopicPartition", "to_consumer_records"]

P = ParamSpec("P")
Result = TypeVar("Result")


def _performed(
    call: Callable[Concatenate["Consumer", P], Call[Result]],
) -> Callable[Concatenate["Consumer", P], Result]:
    """A method that makes the call of that name."""

    @wraps(call)
    def method(self: "Consumer", /, *args: P.args, **options: P.kwargs) -> Result:
        return self._client.perform(call(self, *args, **options))

    method.__name__ = call.__name__.removeprefix("_")
    return method


class Consumer(CommonConsumer[httpx.BaseTransport]):
    """A member of the group `group_id`, at the gateway `url`. Close it, or use it as a context manager.

    It reads `topics`, or those that the regular expression `pattern` matches, and shares them with the
    group's other members; or `partitions`, whatever the others read. Iterate over it for records, or `poll`
    tables. A record counts as processed when the next one is asked for, a table at the next poll, and both
    when the consumer is closed. With `auto_commit` processed records are committed every
    `auto_commit_interval_ms`, when a partition goes to another member, and when the consumer is closed. So
    every record is given at least once. Where an answer is lost or a request fails, none is given twice to a
    member whose instance lives; when the gateway dies between two polls, unnoticed, what was not committed
    comes again. A name is the member: two processes must not use one.

    With `auto_offset_reset` "latest" it begins at the log ends of the moment in which it joins, where the
    group has committed nothing; partitions and topics that come later it reads from their beginning.

    `on_revoked(partitions)` is called before partitions are given up (a commit in it is valid), `on_assigned`
    after some are gained, `on_lost` when they were taken away: the instance was silent for longer than its
    session, or did not poll for `max_poll_interval_ms`. They are called inside of iteration, `poll` and
    `close`. While no gateway answers, requests are repeated for `retry_ms`. Names and meanings are Kafka's.

    In iteration keys and values are bytes, or what `key_deserializer` and `value_deserializer` make of them,
    such as `lakelog.json_deserializer`. Tables of `poll` have bytes.

    To make one joins the group, and raises InvalidRequest, MemberExists, UnknownTopic, UnknownPartition and
    Retriable. Not thread-safe but for `stop`. A thread keeps the instance alive while the program works.
    `credential`, `ssl_context` and `transport` are those of Client.
    """

    def _begin(self) -> None:
        try:
            self._client.perform(self._join())
        except BaseException:
            with closing(self._client):
                self._client.perform(self._quit())
            raise
        self._heart = Heartbeat(lambda: self._client.perform(self._member.heartbeat()), self._beat_s)

    def _connect(self, url: str, options: dict[str, Any]) -> Calls:
        self._client = Client(url, **options)
        return self._client.calls

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self._close(in_order=False)
        except LakelogError as failed:  # it must not hide what ended the block
            error.add_note(f"lakelog.Consumer: it did not leave its group in order: {failed}")

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    def __next__(self) -> ConsumerRecord:
        """The next record, waited for until there is one, or `stop` is called.

        Raises as `poll` does, and InvalidRecord for a key or value that its deserializer refuses; the next
        call goes on after that record.
        """
        record = self._take() or self._client.perform(self._next())
        if record is None:
            raise StopIteration
        return record

    poll = _performed(CommonConsumer._poll)
    commit = _performed(CommonConsumer._commit)
    committed = _performed(CommonConsumer._committed)
    positions = _performed(CommonConsumer._positions)
    seek = _performed(CommonConsumer._seek)
    seek_to_time = _performed(CommonConsumer._seek_to_time)
    subscription = property(_performed(CommonConsumer._subscription))

    def transaction(self) -> AbstractContextManager[Transaction]:
        """A block whose records are appended, and all that was handed out is committed, as one: or neither.

            with consumer.transaction() as transaction:
                transaction.send("sums", b"...")

        It happens at the end of the block; then `transaction.offsets` says where the records are. An
        exception in the block ends it with nothing sent. Then, and when the end raises Conflict (the
        assignment has changed), NotFound or InvalidRequest, all that was handed out since the last
        transaction is given again. After Retriable or OutcomeUnknown the consumer asks what became of it
        before it goes on. Raises InvalidArgument for a consumer with auto_commit.
        """
        return self._block(self._client.perform(self._begin_transaction()))

    @contextmanager
    def _block(self, transaction: Transaction) -> Iterator[Transaction]:
        try:
            yield transaction
        except BaseException:
            self._transactions.abandon(transaction)
            raise
        self._client.perform(self._end_transaction(transaction))

    def close(self) -> None:
        """Leave the group; with auto-commit, commit all that was handed out. Closing twice is fine.

        A `with` block that ends by an exception commits only the records processed before it: those handed
        out last are given again. Raises Unreachable and others when that could not be done.
        """
        self._close(in_order=True)

    def _close(self, *, in_order: bool) -> None:
        if self._closed:
            return
        self._heart.stop()
        try:
            self._client.perform(self._leave(in_order=in_order))
        finally:
            self._closed = True
            self._client.close()


class Heartbeat:
    """A thread that keeps a member alive between its requests, until it is stopped or the process ends."""

    def __init__(self, beat: Callable[[], None], every_s: float) -> None:
        self._beat, self._every_s = beat, every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lakelog-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """No beat comes after this."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                self._beat()
            except LakelogError:
                pass  # the next poll meets the same error, and raises it
