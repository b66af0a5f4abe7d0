"""The rules of all routes: the operations that each one needs, and by which a handler authorises further.

The table names for each route the operations on resources whose names stand in its path. The handler of a
route authorises all else, that a body names or an answer lists, by its `Caller`. A route that is not in
the table cannot be made, so a gateway with one does not start.
"""

from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from typing import Annotated, NamedTuple

import msgspec
from fastapi import Depends
from starlette.requests import Request
from starlette.types import Scope

from api.caller import CONTEXT
from api.errors import code_of
from api.gateway import Gateway
from api.requests.heads import TARGETED, heads
from coordinator.access.access import Access
from coordinator.access.caller import Caller
from coordinator.access.principal import ANONYMOUS, RequestContext
from log_tables.cluster.acl import CLUSTER_NAME, Operation, ResourceType
from log_tables.errors import AuthenticationFailed
from log_tables.limits import KAFKA_INLINE_ELEMENTS
from log_tables.topic_partition import TopicPartition

PUBLIC_PATHS = frozenset(("/health", "/ready"))
"""Answered without a credential: they say nothing but the state of the process."""

_LOGIN_PATHS = frozenset(
    ("/console/login", "/console/login/oidc", "/console/login/oidc/callback", "/console/logout")
)
_FILES = "/console/files/"


_CALLER = "lakelog.caller"
"""The key of an ASGI scope for its Caller, once it was asked for."""


class Requirement(NamedTuple):
    """An operation on the resource that the path parameter `named` names; without one, on the cluster."""

    operation: Operation
    resource_type: ResourceType
    named: str = ""


Rule = tuple[Requirement, ...]
"""All are needed. An empty rule lets in every principal."""

_ANY_PRINCIPAL: Rule = ()


def _topic(*operations: Operation) -> Rule:
    return tuple(Requirement(operation, ResourceType.TOPIC, "topic") for operation in operations)


def _group(operation: Operation) -> Rule:
    return (Requirement(operation, ResourceType.GROUP, "group"),)


def _cluster(operation: Operation) -> Rule:
    return (Requirement(operation, ResourceType.CLUSTER),)


_READ_GROUP, _DESCRIBE_GROUP = _group(Operation.READ), _group(Operation.DESCRIBE)
_DESCRIBE_TOPIC, _DESCRIBE_CLUSTER = _topic(Operation.DESCRIBE), _cluster(Operation.DESCRIBE)
_TRANSACT: Rule = (*_READ_GROUP, Requirement(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "group"))
"""The transactional id of a transaction is the name of its group."""

_V2_GROUP, _V2_INSTANCE = "/consumers/{group}", "/consumers/{group}/instances/{instance}"
_V3 = "/v3/clusters/{cluster_id}"
_V3_TOPIC, _V3_GROUP = f"{_V3}/topics/{{topic}}", f"{_V3}/consumer-groups/{{group}}"
_PARTITION = "/topics/{topic}/partitions/{partition}"

RULES: dict[str, Rule] = {
    # Version 2: topics and records.
    "GET /topics": _ANY_PRINCIPAL,  # lists what it may describe
    "POST /topics": _ANY_PRINCIPAL,  # CREATE on the cluster, or on the topic that the body names
    "GET /topics/{topic}": _DESCRIBE_TOPIC,
    "POST /topics/{topic}": _topic(Operation.WRITE),
    "POST /topics/{topic}/values": _topic(Operation.WRITE),
    "DELETE /topics/{topic}": _topic(Operation.DELETE),
    "GET /topics/{topic}/partitions": _DESCRIBE_TOPIC,
    f"GET {_PARTITION}": _DESCRIBE_TOPIC,
    f"POST {_PARTITION}": _topic(Operation.WRITE),
    f"GET {_PARTITION}/offsets": _DESCRIBE_TOPIC,
    f"GET {_PARTITION}/records": _topic(Operation.READ),
    f"DELETE {_PARTITION}/records": _topic(Operation.DELETE),
    "GET /brokers": _DESCRIBE_CLUSTER,
    # Version 2: groups. The topics that bodies name need READ, and what a poll returns.
    f"POST {_V2_GROUP}": _READ_GROUP,
    f"DELETE {_V2_GROUP}": _group(Operation.DELETE),
    f"GET {_V2_GROUP}/offsets": _DESCRIBE_GROUP,
    f"PUT {_V2_GROUP}/offsets": _READ_GROUP,
    f"POST {_V2_GROUP}/transactions": _TRANSACT,  # WRITE on the topics of its records
    f"DELETE {_V2_INSTANCE}": _READ_GROUP,
    f"POST {_V2_INSTANCE}/heartbeat": _READ_GROUP,
    f"POST {_V2_INSTANCE}/subscription": _READ_GROUP,
    f"GET {_V2_INSTANCE}/subscription": _READ_GROUP,
    f"DELETE {_V2_INSTANCE}/subscription": _READ_GROUP,
    f"POST {_V2_INSTANCE}/assignments": _READ_GROUP,
    f"GET {_V2_INSTANCE}/assignments": _READ_GROUP,
    f"GET {_V2_INSTANCE}/records": _READ_GROUP,
    f"POST {_V2_INSTANCE}/offsets": _READ_GROUP,
    f"GET {_V2_INSTANCE}/offsets": _READ_GROUP,
    f"POST {_V2_INSTANCE}/positions": _READ_GROUP,
    f"POST {_V2_INSTANCE}/positions/beginning": _READ_GROUP,
    f"POST {_V2_INSTANCE}/positions/end": _READ_GROUP,
    f"POST {_V2_INSTANCE}/transactions": _TRANSACT,
    # Version 3.
    "GET /v3/clusters": _ANY_PRINCIPAL,
    f"GET {_V3}": _ANY_PRINCIPAL,
    f"GET {_V3}/brokers": _DESCRIBE_CLUSTER,
    f"GET {_V3}/brokers/{{broker}}": _DESCRIBE_CLUSTER,
    f"GET {_V3}/topics": _ANY_PRINCIPAL,  # lists what it may describe
    f"POST {_V3}/topics": _ANY_PRINCIPAL,  # as POST /topics
    f"GET {_V3_TOPIC}": _DESCRIBE_TOPIC,
    f"PATCH {_V3_TOPIC}": _topic(Operation.ALTER),
    f"DELETE {_V3_TOPIC}": _topic(Operation.DELETE),
    f"GET {_V3_TOPIC}/partitions": _DESCRIBE_TOPIC,
    f"GET {_V3_TOPIC}/partitions/{{partition}}": _DESCRIBE_TOPIC,
    f"GET {_V3_TOPIC}/configs": _topic(Operation.DESCRIBE_CONFIGS),
    f"GET {_V3_TOPIC}/configs/{{name}}": _topic(Operation.DESCRIBE_CONFIGS),
    f"POST {_V3_TOPIC}/configs:alter": _topic(Operation.ALTER_CONFIGS),
    f"POST {_V3_TOPIC}/records": _topic(Operation.WRITE),
    f"POST {_V3_TOPIC}/records:batch": _topic(Operation.WRITE),
    f"GET {_V3}/consumer-groups": _ANY_PRINCIPAL,  # lists what it may describe
    f"GET {_V3_GROUP}": _DESCRIBE_GROUP,
    f"GET {_V3_GROUP}/consumers": _DESCRIBE_GROUP,
    f"GET {_V3_GROUP}/consumers/{{consumer}}": _DESCRIBE_GROUP,
    f"GET {_V3_GROUP}/consumers/{{consumer}}/assignments": _DESCRIBE_GROUP,
    f"GET {_V3_GROUP}/lags": _DESCRIBE_GROUP,
    f"GET {_V3_GROUP}/lags/{{topic}}/partitions/{{partition}}": (*_DESCRIBE_GROUP, *_DESCRIBE_TOPIC),
    f"GET {_V3_GROUP}/lag-summary": _DESCRIBE_GROUP,
    f"GET {_V3}/acls": _DESCRIBE_CLUSTER,
    f"POST {_V3}/acls": _cluster(Operation.ALTER),
    f"POST {_V3}/acls:batch": _cluster(Operation.ALTER),
    f"DELETE {_V3}/acls": _cluster(Operation.ALTER),
    # Operations and pages.
    "GET /": _ANY_PRINCIPAL,
    "GET /health": _ANY_PRINCIPAL,
    "GET /ready": _ANY_PRINCIPAL,
    "GET /metrics": _DESCRIBE_CLUSTER,
    "GET /docs": _ANY_PRINCIPAL,
    "GET /docs/files/{name}": _ANY_PRINCIPAL,
    "GET /redoc": _ANY_PRINCIPAL,
    "GET /openapi.json": _ANY_PRINCIPAL,
    # The console. Its pages show what their reader may see; what they change, the routes above do.
    "GET /console": _ANY_PRINCIPAL,
    "GET /console/figures": _DESCRIBE_CLUSTER,
    "GET /console/files/{version}/{name}": _ANY_PRINCIPAL,
    "GET /console/login": _ANY_PRINCIPAL,
    "POST /console/login": _ANY_PRINCIPAL,
    "GET /console/login/oidc": _ANY_PRINCIPAL,
    "GET /console/login/oidc/callback": _ANY_PRINCIPAL,
    "POST /console/logout": _ANY_PRINCIPAL,
    "GET /console/access": _DESCRIBE_CLUSTER,
    "GET /console/access/keys": _DESCRIBE_CLUSTER,
    "GET /console/access/acls": _DESCRIBE_CLUSTER,
    "GET /console/access/acls/new": _DESCRIBE_CLUSTER,
    "GET /console/access/acls/delete": _DESCRIBE_CLUSTER,
    "GET /console/access/quotas": _DESCRIBE_CLUSTER,
    "GET /console/access/audit": _DESCRIBE_CLUSTER,
    "GET /console/groups": _ANY_PRINCIPAL,  # lists what it may describe
    "GET /console/groups/{group}": _DESCRIBE_GROUP,
    "GET /console/groups/{group}/history": _DESCRIBE_GROUP,
    "GET /console/groups/{group}/reset": _DESCRIBE_GROUP,
    "GET /console/groups/{group}/delete": _DESCRIBE_GROUP,
    "GET /console/sql": _ANY_PRINCIPAL,  # READ on the topics of a query, DESCRIBE on all else that it shows
    "POST /console/sql": _ANY_PRINCIPAL,  # likewise
    "GET /console/topics": _ANY_PRINCIPAL,  # lists what it may describe
    "GET /console/new-topic": _ANY_PRINCIPAL,
    "GET /console/topics/{topic}": _DESCRIBE_TOPIC,
    f"GET /console{_PARTITION}": _DESCRIBE_TOPIC,  # groups that it may describe; a plan needs the cluster
    f"GET /console{_PARTITION}/commits": _DESCRIBE_TOPIC,
    f"GET /console{_PARTITION}/fsck": (*_DESCRIBE_TOPIC, *_DESCRIBE_CLUSTER),
    "GET /console/maintenance": _DESCRIBE_CLUSTER,  # of topics that it may describe
    "GET /console/maintenance/runs/{run}": _DESCRIBE_CLUSTER,
    "GET /console/topics/{topic}/partitions": _DESCRIBE_TOPIC,
    "GET /console/topics/{topic}/groups": _DESCRIBE_TOPIC,  # lists groups that it may describe
    "GET /console/topics/{topic}/columns": _topic(Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
    "GET /console/topics/{topic}/settings": _topic(Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
    "GET /console/topics/{topic}/messages": _topic(Operation.READ),
    "GET /console/topics/{topic}/value": _topic(Operation.READ),
    "GET /console/topics/{topic}/export": _topic(Operation.READ),
    "GET /console/topics/{topic}/produce": _topic(Operation.WRITE),
    # Dry runs: the routes that they name need more, and a page says so.
    "GET /console/topics/{topic}/alter": _topic(Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
    "GET /console/topics/{topic}/grow": _DESCRIBE_TOPIC,
    "GET /console/topics/{topic}/delete": _DESCRIBE_TOPIC,
    "GET /console/topics/{topic}/delete-records": _DESCRIBE_TOPIC,
}
"""By method and path."""


def is_login(scope: Scope) -> bool:
    """Whether a request is for what a browser needs to log in or out: it may have no credential, yet or any
    longer.
    """
    path: str = scope["path"]
    return path in _LOGIN_PATHS or path.startswith(_FILES)


def caller_of(scope: Scope) -> Caller:
    """Who sends a request. Raises AuthenticationFailed without a principal."""
    found: Caller | None = scope.get(_CALLER)
    if found is None:
        access, is_forwarded = scope["app"].state.gateway.access, TARGETED in heads(scope)
        found = scope[_CALLER] = Caller(access, context_of(scope), code_of, is_audited=not is_forwarded)
    return found


async def _asked(request: Request) -> Caller:
    return caller_of(request.scope)


Asked = Annotated[Caller, Depends(_asked)]
"""A route's parameter that takes the caller of its request."""


async def check_each(
    here: Gateway, asked: Caller, operation: Operation, resource_type: ResourceType, names: Collection[str]
) -> None:
    """`Caller.check_all`, of names that may be thousands."""
    if len(names) <= KAFKA_INLINE_ELEMENTS:
        asked.check_all(operation, resource_type, names)
        return
    async for name in here.loop_share.each(names):
        asked.check(operation, resource_type, name)


async def check_reads(here: Gateway, asked: Caller, partitions: Iterable[TopicPartition]) -> None:
    """Raise AuthorizationFailed unless `asked` may read records of these partitions."""
    topics = dict.fromkeys(at.topic for at in partitions)
    await check_each(here, asked, Operation.READ, ResourceType.TOPIC, topics)


def rule_of(methods: frozenset[str] | set[str], path: str) -> Rule:
    """The rule of a route. Raises LookupError for one that is not in the table."""
    (method,) = methods
    return RULES[f"{method} {path}"]


def admit(scope: Scope, rule: Rule) -> None:
    """Raise AccessDenied unless the request may do what `rule` needs.

    A forwarded one was admitted by the gateway that forwards it, which names its principal.
    """
    access = scope["app"].state.gateway.access
    if access.is_open or scope["path"] in PUBLIC_PATHS or is_login(scope):
        return
    context = context_of(scope)
    if TARGETED not in heads(scope):
        for operation, resource_type, named in rule:
            name = scope["path_params"][named] if named else CLUSTER_NAME
            access.check(context, operation, resource_type, name)


def names_counted(scope: Scope, names: int, elements: int) -> AbstractContextManager[None]:
    """Count what a request names while it is worked at. Raises QuotaReached."""
    access: Access = scope["app"].state.gateway.access
    return access.named(scope.get(CONTEXT), names, elements)


def host_of(scope: Scope) -> str:
    """The IP address that a request comes from."""
    return scope["client"][0] if scope.get("client") else ""


def context_of(scope: Scope) -> RequestContext:
    """The principal and address of a request. Raises AuthenticationFailed where nobody has put it there."""
    access = scope["app"].state.gateway.access
    found: RequestContext | None = scope.get(CONTEXT)
    if access.is_open:
        return RequestContext(ANONYMOUS, host_of(scope))
    if found is None:
        raise AuthenticationFailed("it is not known whose request this is; send a credential")
    return found


def encode_context(context: RequestContext) -> str:
    """`context` as the header by which a gateway says whose request it forwards."""
    return msgspec.json.encode(context).decode()


def decode_context(header: bytes) -> RequestContext:
    """The reverse of `encode_context`. Raises AuthenticationFailed."""
    try:
        return msgspec.json.decode(header, type=RequestContext)
    except msgspec.MsgspecError:
        raise AuthenticationFailed("a gateway has not said whose request it forwards; update it") from None
