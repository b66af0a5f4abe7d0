"""Bare values: what programs send that know nothing of the records around them.

An Idempotency-Key makes a request the only batch of an idempotent producer of its own, so it is appended
once, however often it comes. The producer's id is a digest of the request: the partitions remember it as
they remember producers, and any gateway knows it again. The same key with other content is another request:
a key that is used twice loses nothing.
"""

import re
from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from typing import Annotated

import msgspec
from fastapi import APIRouter, Header, Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from api.access_log import CONTEXT
from api.client_topics import topic_to_write
from api.errors import error_responses
from api.gateway import Gateway
from api.media import ValueFormat, value_format
from api.requests.access import context_of
from api.requests.appending import ProduceRequest, append, refuse_if_any_failed
from api.requests.body import put_back, room_of, take_body
from api.requests.heads import content_type
from api.requests.hot import HotResponse, HotRoute
from api.requests.route_gateway import gateway
from api.v2.produce_answer import (
    ANSWER_HEADERS,
    AcksParameter,
    acks_of,
    offsets_by_partition,
    refuse_of_one_partition,
)
from api.v2.produce_schema import VALUES_BODY
from api.wire.csv_rows import names_of_json
from api.wire.offload import INLINE_MAX_BYTES, maybe_in_thread
from api.wire.values import JsonPointer, KeySource, decode_values, is_much
from ingest.buffer import Room
from ingest.writer import Appended
from log_tables.cluster.group_log import check_retry_key
from log_tables.cluster.route import SentRecords
from log_tables.cluster.topic import Topic
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


router = APIRouter(tags=["v2 produce"], route_class=HotRoute)

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SECRET = ("authorization", "cookie", "proxy-authorization", "x-csrf-token")
_ERRORS = error_responses(400, 403, 404, 408, 409, 413, 415, 422, 429, 503)


class AppendedRun(BaseModel):
    """The records of the request in one partition."""

    partition: int
    base_offset: int | None = Field(
        description="The offset of the first one; null for acks=0, and for a repeat of an old request."
    )
    count: int


class ValuesAppended(BaseModel):
    """One entry for each partition."""

    offsets: list[AppendedRun]


@router.post(
    "/topics/{topic}/values",
    summary="Append bare values",
    response_model=ValuesAppended,
    responses=_ERRORS,
    openapi_extra=VALUES_BODY,
)
async def append_values(
    request: Request,
    topic: str,
    acks: AcksParameter = "all",
    partition: Annotated[int | None, Query(description="The partition of all records.")] = None,
    key: Annotated[str, Query(description="A JSON pointer to the key in each value.")] = "",
    key_header: Annotated[
        str, Query(description="The name of the header of this request that is the key of all records.")
    ] = "",
    idempotency_key: Annotated[
        str, Header(description="A repeat with the same key and body appends nothing again.")
    ] = "",
) -> Response:
    """The body is lines of JSON, a JSON array of values, CSV with a header line, or one value as it is.

    200 says that all records are appended. If the append fails in some partitions only, the answer is that
    error, and the others are appended: send the request again, with an `Idempotency-Key`.
    """
    here = gateway(request)
    begin = here.clock.monotonic()
    refuse_of_one_partition(request.scope, topic)
    kind, form = acks_of(acks), value_format(content_type(request.scope))
    source = _key_source(request.scope, key, key_header)
    retry_key = retry_key_of(request.scope)
    found = await topic_to_write(here, topic)
    # Keys go to other partitions when there are more of them: the same request is another one then.
    count = found.partition_count if partition is None else None
    facts = (retry_key, count, partition, form.value, key, source.text)
    with room_of(here, request) as room:
        size = room.size_bytes
        wanted = ProduceRequest(
            here,
            room,
            kind,
            partition,
            await _stamp(request, facts),
            sticky_key=retry_key.encode(),
            context=request.scope.get(CONTEXT),
        )
        # Nothing here refers to the body and its records while they wait.
        result = await append(found, await _sent(here, request, found, form, source, room), wanted)
    records = sum(outcome.count for outcome in result.outcomes if isinstance(outcome, Appended))
    here.metrics.topic(topic).produced(records, size, here.clock.monotonic() - begin)
    refuse_if_any_failed(result.outcomes)
    return HotResponse(offsets_by_partition(result.batches, result.outcomes), ANSWER_HEADERS[kind])


async def _stamp(request: Request, facts: tuple[object, ...]) -> ProducerStamp | None:
    """The stamp of a request whose retry key is the first of `facts`; None if that is empty."""
    if not facts[0]:
        return None
    body = take_body(request)
    put_back(request, body)
    return await maybe_in_thread(
        len(body) > INLINE_MAX_BYTES, partial(stamp_once, request.scope, facts, body)
    )


async def _sent(
    here: Gateway, request: Request, topic: Topic, form: ValueFormat, source: KeySource, room: Room
) -> SentRecords:
    body = take_body(request)
    of_json = names_of_json(topic.config.columns) if form is ValueFormat.CSV else frozenset()
    decode = partial(decode_values, body, form, source, of_json, here.clock.now_us(), room)
    return await maybe_in_thread(is_much(body, form), decode)


def _key_source(scope: Scope, pointer: str, header: str) -> KeySource:
    """Where the query says that keys are. Raises InvalidArgument."""
    if pointer and header:
        raise InvalidArgument("key and key_header both say where the keys are; give one of them")
    if not header:
        return KeySource(JsonPointer(pointer) if pointer else None)
    name = header.lower()
    if name in _SECRET or not _HEADER_NAME.fullmatch(name):
        raise InvalidArgument(f"key_header={header[:40]!r} is no header that a key can be in; name another")
    found = [value for each, value in scope["headers"] if each == name.encode()]
    if len(found) != 1:
        raise InvalidArgument(
            f"the request has {len(found)} headers {header[:40]!r}, which key_header names; send it once"
        )
    try:
        return KeySource(text=found[0].decode())
    except UnicodeDecodeError:
        raise InvalidArgument(f"the header {header[:40]!r} is not UTF-8; send its key in UTF-8") from None
