"""The driver's work for a query that writes: all files that its tasks have staged become one transaction."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from lakelog.client.client import Client, quoted
from lakelog.client.retry import retry
from lakelog.spark.options import GatewayLocation
from log_tables.clock import Clock
from log_tables.errors import LakelogError, OutcomeUnknown, Retriable
from log_tables.segments.staging import StagedFile

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
