"""The audit of routes that change something: each change once, where the client has spoken."""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import msgspec
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Scope

from api.errors import INTERNAL, code_of, error_code_of
from api.requests.access import caller_of
from api.requests.route_gateway import gateway
from api.requests.rules import Change
from log_tables.cluster.acl import CLUSTER_NAME, ResourceType
from log_tables.errors import AccessDenied, LakelogError

OFFSETS_SHOWN_MAX = 100
"""Offsets of a reset that its event has; all are in the group."""

_FACTS = "lakelog.facts"
"""The key of an ASGI scope for facts of its change, where the handler is at another gateway."""

_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class _Offset(msgspec.Struct):
    topic: str
    partition: int
    offset: int


class _Offsets(msgspec.Struct):
    offsets: list[_Offset]


def note_offsets(scope: Scope, body: bytes) -> None:
    """Keep which offsets a request sets that this gateway may forward, as its `body` has them."""
    if scope["method"] != "PUT" or caller_of(scope).audit is None:
        return
    with suppress(msgspec.MsgspecError):  # it is refused where it is answered
        wanted = msgspec.json.decode(body, type=_Offsets).offsets
        shown = [f"{each.topic}-{each.partition} {each.offset}" for each in wanted[:OFFSETS_SHOWN_MAX]]
        scope[_FACTS] = {"offsets": shown, "count": len(wanted)}


def audited(handle: _Handler, change: Change | None) -> _Handler:
    """`handle`, whose success or failure is audited unless it does that itself; a denial is already."""
    if change is None:
        return handle

    async def answer(request: Request) -> Response:
        try:
            return await noted(request)
        finally:
            gateway(request).changes.made += 1  # what was looked at before is old

    async def noted(request: Request) -> Response:
        try:
            response = await handle(request)
        except LakelogError as error:
            if not isinstance(error, AccessDenied):
                _note_failure(request.scope, change, code_of(error))
            raise
        except (RequestValidationError, HTTPException, ClientDisconnect):
            raise  # it was not understood, or not all of it came: nothing was tried
        except Exception:
            _note_failure(request.scope, change, INTERNAL[1])
            raise
        if response.status_code < 400:
            _note(request.scope, change)
        elif response.status_code not in (401, 403):
            _note_failure(request.scope, change, error_code_of(response))
        return response

    return answer


def _note(scope: Scope, change: Change) -> None:
    asked = caller_of(scope)
    if not asked.has_noted:
        facts = scope.get(_FACTS, {})
        asked.note_change(change.operation, change.resource_type, _named(scope, change), **facts)


def _note_failure(scope: Scope, change: Change, code: int) -> None:
    asked = caller_of(scope)
    if not asked.has_noted:
        asked.note_failed(change.operation, change.resource_type, _named(scope, change), code)


def _named(scope: Scope, change: Change) -> str:
    if change.named:
        return str(scope["path_params"][change.named])
    return CLUSTER_NAME if change.resource_type is ResourceType.CLUSTER else ""
