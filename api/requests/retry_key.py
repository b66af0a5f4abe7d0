"""Requests that are appended once, however often they come: an Idempotency-Key makes each one the only batch
of an idempotent producer of its own.

Its id is a digest of the request, so the partitions remember it as they remember producers, and any gateway
knows it again. The same key with other content is another request: a key that is used twice loses nothing.
"""

from collections.abc import Sequence
from hashlib import blake2b

import msgspec
from starlette.types import Scope

from api.requests.access import context_of
from log_tables.cluster.group_log import check_retry_key
from log_tables.errors import InvalidArgument
from log_tables.limits import ONCE_PRODUCER_ID_MIN, PRODUCER_ID_MAX
from log_tables.partition.partition import ProducerStamp

_IDS = PRODUCER_ID_MAX + 1 - ONCE_PRODUCER_ID_MIN


def retry_key_of(scope: Scope) -> str:
    """The Idempotency-Key of a request; empty without one. Raises InvalidArgument."""
    found = [value for name, value in scope["headers"] if name == b"idempotency-key"]
    if len(found) > 1 or not all(map(bytes.isascii, found)):
        raise InvalidArgument(
            f"the header Idempotency-Key has the values {found[:2]!r}; send it once, in ASCII"
        )
    key = found[0].decode() if found else ""
    check_retry_key(key)
    return key


def stamp_once(scope: Scope, facts: Sequence[object], body: bytes) -> ProducerStamp:
    """The stamp of a request whose records are made of `body` by `facts`, its retry key among them."""
    head = msgspec.json.encode([context_of(scope).principal.name, *facts])
    digest = blake2b(head)
    digest.update(body)
    return ProducerStamp(ONCE_PRODUCER_ID_MIN + int.from_bytes(digest.digest()) % _IDS, 0, 0)
