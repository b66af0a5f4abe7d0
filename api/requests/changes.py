"""The routes that change something, so that each change is audited: once, where the client has spoken.

Every route that is no GET is in one of the tables below; one that is in none cannot be made, as with the
rules of access.
"""

from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Scope

from api.errors import INTERNAL, code_of, error_code_of
from api.requests.access import caller_of
from api.requests.route_gateway import gateway
from log_tables.cluster.acl import CLUSTER_NAME, ResourceType
from log_tables.errors import AccessDenied, LakelogError

OFFSETS_SHOWN_MAX = 100
"""Offsets of a reset that its event has; all are in the group."""

_FACTS = "lakelog.facts"
"""The key of an ASGI scope for facts of its change, where the handler is at another gateway."""

_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class Change(NamedTuple):
    """An operation, by Kafka's name, on the resource that the path parameter `named` names; without one its
    name stands in the body, and the handler says it (`Caller.changing`).
    """

    operation: str
    resource_type: ResourceType
    named: str = ""


class _Offset(msgspec.Struct):
    topic: str
    partition: int
    offset: int


class _Offsets(msgspec.Struct):
    offsets: list[_Offset]


_V3 = "/v3/clusters/{cluster_id}"
_V3_TOPIC = f"{_V3}/topics/{{topic}}"
_V2_GROUP, _V2_INSTANCE = "/consumers/{group}", "/consumers/{group}/instances/{instance}"
_PARTITION = "/topics/{topic}/partitions/{partition}"

_CREATE_TOPIC = Change("CreateTopics", ResourceType.TOPIC)
_DELETE_TOPIC = Change("DeleteTopics", ResourceType.TOPIC, "topic")
_CREATE_ACLS, _DELETE_ACLS = (Change(name, ResourceType.CLUSTER) for name in ("CreateAcls", "DeleteAcls"))

CHANGES: dict[str, Change] = {
    "POST /topics": _CREATE_TOPIC,
    "DELETE /topics/{topic}": _DELETE_TOPIC,
    f"DELETE {_PARTITION}/records": Change("DeleteRecords", ResourceType.TOPIC, "topic"),
    f"DELETE {_V2_GROUP}": Change("DeleteGroups", ResourceType.GROUP, "group"),
    f"PUT {_V2_GROUP}/offsets": Change("AlterConsumerGroupOffsets", ResourceType.GROUP, "group"),
    f"POST {_V3}/topics": _CREATE_TOPIC,
    f"PATCH {_V3_TOPIC}": Change("CreatePartitions", ResourceType.TOPIC, "topic"),
    f"DELETE {_V3_TOPIC}": _DELETE_TOPIC,
    f"POST {_V3_TOPIC}/configs:alter": Change("AlterConfigs", ResourceType.TOPIC, "topic"),
    f"POST {_V3}/acls": _CREATE_ACLS,
    f"POST {_V3}/acls:batch": _CREATE_ACLS,
    f"DELETE {_V3}/acls": _DELETE_ACLS,
}
"""By method and path. A GET changes nothing."""

OF_DATA: frozenset[str] = frozenset(
    (
        "POST /topics/{topic}",
        "POST /topics/{topic}/values",
        f"POST {_PARTITION}",
        f"POST {_V2_GROUP}",
        f"POST {_V2_GROUP}/transactions",
        f"DELETE {_V2_INSTANCE}",
        f"POST {_V2_INSTANCE}/heartbeat",
        f"POST {_V2_INSTANCE}/subscription",
        f"DELETE {_V2_INSTANCE}/subscription",
        f"POST {_V2_INSTANCE}/assignments",
        f"POST {_V2_INSTANCE}/offsets",
        f"POST {_V2_INSTANCE}/positions",
        f"POST {_V2_INSTANCE}/positions/beginning",
        f"POST {_V2_INSTANCE}/positions/end",
        f"POST {_V2_INSTANCE}/transactions",
        f"POST {_V3_TOPIC}/records",
        f"POST {_V3_TOPIC}/records:batch",
        "POST /console/sql",
    )
)
"""Routes by which records come and go: of these the first access of an hour is audited."""


OF_SESSIONS: frozenset[str] = frozenset(("POST /console/login", "POST /console/logout"))
"""Routes that change nothing but a cookie. A refused credential is audited where it is refused."""


def change_of(methods: Collection[str], path: str) -> Change | None:
    """The change that a route makes; None for a GET, and for one of OF_DATA or OF_SESSIONS.

    Raises LookupError for all others.
    """
    (method,) = methods
    route = f"{method} {path}"
    return None if method == "GET" or route in {*OF_DATA, *OF_SESSIONS} else CHANGES[route]


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
