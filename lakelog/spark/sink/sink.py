"""The sink `lakelog`: tasks stage their rows, and the driver's commit publishes them as one transaction.

The methods are those of Spark's Python data source (PySpark 4.2). `write` runs in the executors; what it
returns, of one attempt of each task, Spark hands to `commit` on the driver. A batch's retry key is always the
same: a repeat of the batch, perhaps with other rows, is not published again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lakelog.client.client import Client, quoted
from lakelog.client.request import retry
from lakelog.spark.options import GatewayLocation
from lakelog.spark.sink.options import SinkOptions, check_columns, parse_sink
from lakelog.spark.sink.task import BATCH_GROUP, StagedRows, stage_rows, stream_group
from lakelog.spark.worker import short_errors, store_at
from log_tables.clock import Clock, SystemClock
from log_tables.errors import InvalidArgument, LakelogError, OutcomeUnknown, Retriable
from log_tables.segments import staging
from log_tables.segments.staging import StagedFile

Messages = Sequence[WriterCommitMessage | None]


@short_errors
class BatchSink(DataSourceArrowWriter):
    """One `df.write`. Spark pickles it for its tasks."""

    def __init__(self, given: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        """Raises InvalidArgument."""
        self._options = _checked(given, schema)
        if overwrite:
            raise InvalidArgument(
                "mode('overwrite') would replace what a log holds; use mode('append'), and delete records "
                "through a gateway"
            )
        self._write_id = SystemClock().unique_id()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        return stage_rows(iterator, self._options, BATCH_GROUP)

    def commit(self, messages: Messages) -> None:
        """Publish. Raises what `publish` raises."""
        from lakelog.spark.sink.sink import Transaction, publish  # for gateways; executors do without

        if staged := _staged(messages):
            transaction = Transaction(BATCH_GROUP, self._write_id)
            publish(self._options.gateway, transaction, staged, SystemClock())

    def abort(self, messages: Messages) -> None:
        _discard(self._options, messages)


@short_errors
class StreamSink(DataSourceStreamArrowWriter):
    """The micro-batches of a streaming query. Spark makes one for each, and another one to commit it."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        """Raises InvalidArgument."""
        self._options = _checked(given, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        return stage_rows(iterator, self._options, stream_group())

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """Publish. Raises what `publish` raises, InvalidArgument when nothing says whose batch this is."""
        from lakelog.spark.sink.sink import of_micro_batch, publish

        if staged := _staged(messages):
            (group,) = {message.group for message in _received(messages)}
            if not group:
                raise InvalidArgument(
                    "Spark gave the tasks of this micro-batch no query id, so a repeat could not be "
                    "recognized; write with foreachBatch instead"
                )
            transaction = of_micro_batch(group, batchId)
            if not publish(self._options.gateway, transaction, staged, SystemClock()):
                _delete(self._options, staged)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: ARG002, N803
        _discard(self._options, messages)


def _checked(given: Mapping[str, str], schema: StructType) -> SinkOptions:
    options = parse_sink(given)
    check_columns(schema, options.topic)
    return options


def _received(messages: Iterable[WriterCommitMessage | None]) -> list[StagedRows]:
    return [message for message in messages if isinstance(message, StagedRows)]


def _staged(messages: Messages) -> list[StagedFile]:
    return [file for message in _received(messages) for file in message.staged]


def _discard(options: SinkOptions, messages: Messages) -> None:
    """Delete what was staged in vain.

    Spark also aborts a batch whose commit has failed, which may be there all the same or be about to be: then
    every task has its message, and the files are left to a vacuum.
    """
    if None in messages:
        _delete(options, _staged(messages))


def _delete(options: SinkOptions, staged: Iterable[StagedFile]) -> None:
    """Vacuum deletes later what cannot be deleted now."""
    with suppress(LakelogError):
        staging.delete(store_at(options.location), staged)


REMEMBERED_BATCHES = 10_000
"""Micro-batches of a query whose retry keys a gateway remembers, for up to a day. Spark's checkpoint goes
back by 100 (spark.sql.streaming.minBatchesToRetain), a driver that was thought dead perhaps by more."""

_PATIENCE_S = 120.0
"""How long a transaction is repeated that a gateway does not answer: it may be starting again."""

_REQUEST_S = 60.0
_CONTENT_TYPE = "application/vnd.kafka.binary.v2+json"


class Transaction(NamedTuple):
    """Its group, the key by which a repeat is recognized, and keys that are no longer needed."""

    group: str
    retry_key: str
    forget: tuple[str, ...] = ()


def of_micro_batch(group: str, batch_id: int) -> Transaction:
    """The transaction of a micro-batch of the streaming query that is `group`."""
    old = batch_id - REMEMBERED_BATCHES
    return Transaction(group, str(batch_id), (str(old),) if old >= 0 else ())


def publish(
    gateway: GatewayLocation, transaction: Transaction, staged: Sequence[StagedFile], clock: Clock
) -> bool:
    """Append what is in `staged`, all or none, through `gateway`.

    When this returns, the transaction is there for good: with what is in `staged`, or (False) since an
    earlier time, with what was staged for it then. Raises the errors that the gateway names; after
    OutcomeUnknown and Retriable it may be there or not.
    """
    body = msgspec.json.encode({"staged": staged, "forget": transaction.forget})
    path = f"/consumers/{quoted(transaction.group)}/transactions"
    headers = {"Content-Type": _CONTENT_TYPE, "Idempotency-Key": transaction.retry_key}
    with Client(**gateway.client_options(), timeout_s=_REQUEST_S, clock=clock) as client:
        answer = retry(lambda: client.post(path, body, headers), _may_repeat, _PATIENCE_S, clock)
    return not answer.json()["earlier"]


def _may_repeat(error: LakelogError) -> bool:
    return isinstance(error, OutcomeUnknown | Retriable)
