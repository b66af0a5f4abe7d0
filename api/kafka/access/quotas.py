"""DescribeClientQuotas and AlterClientQuotas: quotas of users (KIP-546), at each gateway.

An entity of Kafka is a user, a client id, both, or an IP address. Here it is a user, and any other is refused
by name. Quotas of groups of users, which Kafka does not have, are in no answer.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import IntEnum

from api import access_changes
from api.kafka.access.users import check_administration
from api.kafka.clients.client import Client
from api.kafka.clients.door import Door, in_thread, named_once
from api.kafka.clients.errors import ErrorCode, Refusal, said
from api.kafka.protocol.messages.access import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuotas,
    AlteredQuotasResult,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedQuotas,
    EntityData,
    OpData,
    ValueData,
)
from coordinator.access.principal import USER, check_user
from log_tables.cluster.access_record import DEFAULT_QUOTA, Quota, quota_of
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.errors import AccessDenied, LakelogError

_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_USER, _CLIENT_ID, _IP = "user", "client-id", "ip"

_NOT_KEPT = {
    _CLIENT_ID: "a client names itself, so nothing would be bounded; leave out client-id, and name a user",
    _IP: "max_connections_per_ip bounds the connections of every address; set it where gateways are started",
}
"""Why there are no quotas of these entities, and what to do."""

_RATES_NOT_KEPT = {
    "request_percentage": "threads have no shares; set request_rate, a second, by `lakelog quota set`",
    "connection_creation_rate": "set max_connections_per_ip where gateways are started",
}
"""Quotas that Kafka has, and what stands for them here."""

Names = Mapping[str, str | None]
"""An entity: a name by its type; None is the default."""


class MatchType(IntEnum):
    """How a filter means the name of an entity, by Kafka's numbers."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2
    """Any name, and the default."""


async def describe_client_quotas(
    door: Door, client: Client, request: DescribeClientQuotasRequest, _version: int
) -> DescribeClientQuotasResponse:
    """The quotas of the entities that have all that is asked for; where it is strict, nothing else."""

    def describe() -> list[DescribedQuotas]:
        client.caller.check(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
        exact, specified = _filter(request.components)
        return [
            DescribedQuotas(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in names.items()],
                values=[ValueData(key=key, value=value) for key, value in _values(quota)],
            )
            for names, quota in _described(access_changes.access_rules(door.here).quotas)
            if _matches(names, exact, specified, request.strict)
        ]

    try:
        return DescribeClientQuotasResponse(error_message=None, entries=await asyncio.to_thread(describe))
    except (LakelogError, Refusal) as error:
        code, message = said(error, _DENIED)
        return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


def _described(quotas: Mapping[str, Quota]) -> Iterator[tuple[Names, Quota]]:
    """Quotas of users, and the default."""
    for entity, quota in sorted(quotas.items()):
        if entity == DEFAULT_QUOTA:
            yield {_USER: None}, quota
        elif entity.startswith(USER):
            yield {_USER: entity.removeprefix(USER)}, quota


def _values(quota: Quota) -> Iterator[tuple[str, float]]:
    for key in Quota.__struct_fields__:
        if (value := getattr(quota, key)) is not None:
            yield key, value


def _filter(components: Sequence[ComponentData]) -> tuple[Names, Collection[str]]:
    """Names by the types of entities, and the types of which any name will do. Raises Refusal."""
    exact, specified = dict[str, str | None](), set[str]()
    for each in components:
        kind = each.entity_type
        if kind not in (_USER, _CLIENT_ID, _IP):
            message = f"{kind[:100]!r} is no entity of quotas; user, client-id and ip are"
            raise Refusal(ErrorCode.UNSUPPORTED_VERSION, message)
        if kind in exact or kind in specified:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"{kind} is named twice in one filter; name it once")
        if (each.match is None) is (each.match_type == MatchType.EXACT):
            message = f"match type {each.match_type} of {kind} has {(each.match and 'a') or 'no'} name"
            raise Refusal(ErrorCode.INVALID_REQUEST, f"{message}; 0 takes one, 1 and 2 do not")
        if each.match_type == MatchType.SPECIFIED:
            specified.add(kind)
        elif each.match_type in (MatchType.EXACT, MatchType.DEFAULT):
            exact[kind] = each.match
        else:
            message = f"{each.match_type} is no match type; 0 to 2 are"
            raise Refusal(ErrorCode.INVALID_REQUEST, message)
    if len(kinds := {*exact, *specified}) > 1 and _IP in kinds:
        raise Refusal(ErrorCode.INVALID_REQUEST, "an ip stands alone; leave out user and client-id")
    return exact, specified


def _matches(names: Names, exact: Names, specified: Collection[str], is_strict: bool) -> bool:
    if is_strict and len(names) != len(exact) + len(specified):
        return False
    named = all(kind in names and names[kind] == name for kind, name in exact.items())
    return named and all(kind in names for kind in specified)


async def alter_client_quotas(
    door: Door, client: Client, request: AlterClientQuotasRequest, _version: int
) -> AlterClientQuotasResponse:
    """All that can be kept is set in one commit; each other entity hears why it cannot."""
    altered = await in_thread(door, lambda: _alter(door, client, request))
    return AlterClientQuotasResponse(entries=altered)


def _alter(door: Door, client: Client, request: AlterClientQuotasRequest) -> list[AlteredQuotasResult]:
    results, changes = [], dict[str, Mapping[str, float | None]]()
    for each, refusal in named_once(request.entries, _key):
        result = AlteredQuotasResult(error_message=None, entity=each.entity)
        results.append(result)
        try:
            if refusal is not None:
                raise refusal
            entity = entity_asked(each.entity)
            changes[entity] = rates_asked(each.ops)
        except (LakelogError, Refusal) as error:
            result.error_code, result.error_message = said(error)
    try:
        client.caller.check(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
        check_administration(door.here.settings)
        if not request.validate_only:
            access_changes.alter_quotas(door.here, client.caller, changes)
    except (LakelogError, Refusal) as error:
        for result in results:
            if not result.error_code or isinstance(error, AccessDenied):
                result.error_code, result.error_message = said(error, _DENIED)
    return results


def _key(entry: AlteredQuotas) -> frozenset[tuple[str, str | None]]:
    return frozenset((each.entity_type, each.entity_name) for each in entry.entity)


def entity_shown(entity: Sequence[EntityData]) -> str:
    """An entity as the audit log names it, also one of which no quota is kept."""
    names = [(each.entity_type, each.entity_name) for each in entity]
    if [kind for kind, _ in names] == [_USER]:
        return DEFAULT_QUOTA if names[0][1] is None else USER + names[0][1]
    return ", ".join(kind if name is None else f"{kind} {name}" for kind, name in names)


def entity_asked(entity: Sequence[EntityData]) -> str:
    """The entity of a quota. Raises Refusal for one of which no quota is kept, InvalidArgument."""
    names = {each.entity_type: each.entity_name for each in entity}
    if not entity or len(names) < len(entity):
        raise Refusal(ErrorCode.INVALID_REQUEST, "an entity has a user, once; name it")
    for kind in names:
        if kind in _NOT_KEPT:
            message = f"quotas of {kind} are not kept here: {_NOT_KEPT[kind]}"
            raise Refusal(ErrorCode.INVALID_REQUEST, message)
        if kind != _USER:
            message = f"{kind[:100]!r} is no entity of quotas; name a user"
            raise Refusal(ErrorCode.INVALID_REQUEST, message)
    name = names[_USER]
    if name is None:
        return DEFAULT_QUOTA
    check_user(USER + name)
    return USER + name


def rates_asked(ops: Sequence[OpData]) -> Mapping[str, float | None]:
    """The rates that are set, and as None those that are removed. To remove what is not kept changes nothing.

    Raises Refusal, InvalidArgument.
    """
    rates = dict[str, float | None]()
    for each in ops:
        if each.key in rates:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"{each.key[:100]!r} is named twice; name it once")
        if each.key in _RATES_NOT_KEPT and not each.remove:
            message = f"{each.key} is not kept here: {_RATES_NOT_KEPT[each.key]}"
            raise Refusal(ErrorCode.INVALID_REQUEST, message)
        rates[each.key] = None if each.remove else each.value
    kept = {key: rate for key, rate in rates.items() if key not in _RATES_NOT_KEPT}
    quota_of({key: 1.0 if rate is None else rate for key, rate in kept.items()})
    return kept
