"""What the driver of a query that writes does: all that its tasks have staged becomes one transaction."""

from collections.abc import Sequence

import msgspec

from lakelog.client import Client, quoted
from lakelog.settings import DEFAULT_URL
from log_tables.clock import Clock
from log_tables.errors import OutcomeUnknown, Retriable
from log_tables.staging import Staged

_PATIENCE_S = 120.0
"""How long a transaction is repeated that a gateway has not answered: it may be starting again."""

_PAUSE_S = 0.2
_REQUEST_S = 60.0
_HEADERS = {"Content-Type": "application/vnd.kafka.binary.v2+json"}


def publish(url: str | None, group: str, retry_key: str, staged: Sequence[Staged], clock: Clock) -> None:
    """Append what is in `staged`, all or none, and once for each `retry_key`, through the gateway at `url`.

    When this returns, the transaction with that retry key is there for good, though perhaps with what was
    staged at another time. Raises the errors that the gateway names; after OutcomeUnknown and Retriable it
    may be there or not.
    """
    body = msgspec.json.encode({"staged": staged})
    path = f"/consumers/{quoted(group)}/transactions"
    headers = {**_HEADERS, "Idempotency-Key": retry_key}
    deadline = clock.monotonic() + _PATIENCE_S
    with Client(url or DEFAULT_URL, timeout_s=_REQUEST_S, clock=clock) as client:
        while True:
            try:
                client.post(path, body, headers)
            except (OutcomeUnknown, Retriable) as error:
                pause_s = float(error.details.get("retry_after_s", _PAUSE_S))
                if clock.monotonic() + pause_s > deadline:
                    raise
                clock.pause(pause_s)
            else:
                return
