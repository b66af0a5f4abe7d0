"""DescribeAcls, CreateAcls and DeleteAcls: ACLs, and Kafka's filters of them (KIP-140, KIP-290, KIP-1276)."""

import asyncio
from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import groupby
from typing import TypeVar

from api import access_changes
from api.kafka.access.acl_index import AclIndex
from api.kafka.clients.client import OPERATION_CODES, Client
from api.kafka.clients.door import Door, in_thread
from api.kafka.clients.errors import ErrorCode, Refusal, said
from api.kafka.protocol.messages.access import (
    AclCreation,
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from coordinator.access.acl_argument import AclFilter, PatternTypeFilter, checked
from log_tables.cluster.acl import Acl, Operation, PatternType, Permission, ResourceType
from log_tables.errors import AccessDenied, LakelogError
from log_tables.limits import KAFKA_RESOURCES_MAX

FILTERS_MAX = 1_000
"""Filters of one request. Each takes some 20 µs among 10,000 ACLs, and one that finds patterns that match a
name 100."""

DELETED_MAX = 10_000
"""ACLs that the answer to one request lists as deleted, as many as in Kafka."""

ACL_BYTES = 512
"""Room for an ACL, as it is sent."""

_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_ANY = 1

_TYPES: Mapping[int, ResourceType] = {
    2: ResourceType.TOPIC,
    3: ResourceType.GROUP,
    4: ResourceType.CLUSTER,
    5: ResourceType.TRANSACTIONAL_ID,
}
_PATTERNS: Mapping[int, PatternType] = {3: PatternType.LITERAL, 4: PatternType.PREFIXED}
_PATTERNS_OF_FILTERS: Mapping[int, PatternTypeFilter] = {
    1: PatternTypeFilter.ANY,
    2: PatternTypeFilter.MATCH,
    3: PatternTypeFilter.LITERAL,
    4: PatternTypeFilter.PREFIXED,
}
_OPERATIONS: Mapping[int, Operation] = {code: operation for operation, code in OPERATION_CODES.items()}
_PERMISSIONS: Mapping[int, Permission] = {2: Permission.DENY, 3: Permission.ALLOW}

_NOT_KEPT: Mapping[str, Mapping[int, str]] = {
    "resource type": {6: "DELEGATION_TOKEN", 7: "USER"},
    "operation": {13: "CREATE_TOKENS", 14: "DESCRIBE_TOKENS", 15: "TWO_PHASE_COMMIT"},
}
"""What Kafka has ACLs for, and lakelog does not do."""

_TYPE_CODES = {kind: code for code, kind in _TYPES.items()}
_PATTERN_CODES = {kind: code for code, kind in _PATTERNS.items()}
_PERMISSION_CODES = {kind: code for code, kind in _PERMISSIONS.items()}

Kind = TypeVar("Kind", bound=StrEnum)


class NotKept(Refusal):
    """ACLs about this cannot be kept, so there are none."""


def _kind(what: str, code: int, known: Mapping[int, Kind]) -> Kind:
    """Raises Refusal for a code that is not `known`, NotKept for one of Kafka's."""
    if code in known:
        return known[code]
    name = _NOT_KEPT.get(what, {}).get(code)
    if name is None:
        message = f"{code} is no {what} of an ACL; use one of {', '.join(known.values())}"
        raise Refusal(ErrorCode.INVALID_REQUEST, message)
    message = f"ACLs with the {what} {name} are not kept here; use one of {', '.join(known.values())}"
    raise NotKept(ErrorCode.INVALID_REQUEST, message)


def acl_asked(asked: AclCreation) -> Acl:
    """The ACL that a client creates. Raises Refusal, InvalidArgument."""
    return checked(
        Acl(
            _kind("resource type", asked.resource_type, _TYPES),
            asked.resource_name,
            _kind("pattern type", asked.resource_pattern_type, _PATTERNS),
            asked.principal,
            asked.host,
            _kind("operation", asked.operation, _OPERATIONS),
            _kind("permission type", asked.permission_type, _PERMISSIONS),
        )
    )


def filter_asked(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter | None:
    """The filter of a client; None for one that finds nothing, as no such ACL is kept. Raises Refusal."""

    def wanted(what: str, code: int, known: Mapping[int, Kind]) -> Kind | None:
        return None if code == _ANY else _kind(what, code, known)

    try:
        return AclFilter(
            wanted("resource type", asked.resource_type_filter, _TYPES),
            asked.resource_name_filter,
            _kind("pattern type", asked.pattern_type_filter, _PATTERNS_OF_FILTERS),
            asked.principal_filter,
            asked.host_filter,
            wanted("operation", asked.operation, _OPERATIONS),
            wanted("permission type", asked.permission_type, _PERMISSIONS),
        )
    except NotKept:
        return None


async def describe_acls(
    door: Door, client: Client, request: DescribeAclsRequest, _version: int
) -> DescribeAclsResponse:
    """The ACLs that a filter finds, by resource."""

    def find() -> list[Acl]:
        client.caller.check(Operation.DESCRIBE, ResourceType.CLUSTER)
        wanted = filter_asked(request)
        return [] if wanted is None else access_changes.find_acls(door.here, client.caller, wanted.matches)

    try:
        found = await asyncio.to_thread(find)
        client.room.settle(len(found) * ACL_BYTES)
    except (LakelogError, Refusal) as error:
        code, message = said(error, _DENIED)
        return DescribeAclsResponse(error_code=code, error_message=message)
    resources = await asyncio.to_thread(_resources, found)
    return DescribeAclsResponse(error_message=None, resources=resources)


def _resources(acls: Iterable[Acl]) -> list[DescribeAclsResource]:
    """ACLs in their order, which is by resource."""
    return [
        DescribeAclsResource(
            resource_type=_TYPE_CODES[kind],
            resource_name=name,
            pattern_type=_PATTERN_CODES[pattern],
            acls=[
                AclDescription(
                    principal=acl.principal,
                    host=acl.host,
                    operation=OPERATION_CODES[acl.operation],
                    permission_type=_PERMISSION_CODES[acl.permission],
                )
                for acl in found
            ],
        )
        for (kind, name, pattern), found in groupby(
            acls, lambda acl: (acl.resource_type, acl.resource_name, acl.pattern_type)
        )
    ]


async def create_acls(
    door: Door, client: Client, request: CreateAclsRequest, _version: int
) -> CreateAclsResponse:
    """All that can be kept are made in one commit; each other one hears why it cannot."""
    results = await in_thread(door, lambda: _created(door, client, request.creations))
    return CreateAclsResponse(results=results)


def _created(door: Door, client: Client, creations: Iterable[AclCreation]) -> list[AclCreationResult]:
    results, acls = [], list[Acl]()
    for number, each in enumerate(creations):
        result = AclCreationResult(error_message=None)
        results.append(result)
        try:
            _check_count(number, KAFKA_RESOURCES_MAX, "ACLs")
            acls.append(acl_asked(each))
        except (LakelogError, Refusal) as error:
            result.error_code, result.error_message = said(error)
    try:
        access_changes.create_acls(door.here, client.caller, acls)
    except LakelogError as error:
        for result in results:
            if not result.error_code or isinstance(error, AccessDenied):
                result.error_code, result.error_message = said(error, _DENIED)
    return results


def _check_count(number: int, most: int, what: str) -> None:
    """Raise Refusal for the one with this number, from 0."""
    if number >= most:
        raise Refusal(ErrorCode.POLICY_VIOLATION, f"a request names at most {most} {what}; send several")


async def delete_acls(
    door: Door, client: Client, request: DeleteAclsRequest, _version: int
) -> DeleteAclsResponse:
    """All that the filters find is deleted in one commit; each filter hears what it has found."""

    def delete() -> tuple[list[DeleteAclsFilterResult], list[list[Acl]]]:
        results = [DeleteAclsFilterResult(error_message=None) for _ in request.filters]
        try:
            return results, _deleted(door, client, request.filters, results)
        except LakelogError as error:
            for result in results:
                if not result.error_code or isinstance(error, AccessDenied):
                    result.error_code, result.error_message = said(error, _DENIED)
            return results, []

    def tell() -> None:
        for result, acls in zip(results, found, strict=False):
            result.matching_acls = [_matching(acl) for acl in acls]

    results, found = await in_thread(door, delete)
    await asyncio.to_thread(tell)
    return DeleteAclsResponse(filter_results=results)


def _deleted(
    door: Door, client: Client, filters: Iterable[DeleteAclsFilter], results: list[DeleteAclsFilterResult]
) -> list[list[Acl]]:
    """The ACLs of each filter that are deleted; what is wrong with one stands in its result."""
    client.caller.check(Operation.ALTER, ResourceType.CLUSTER)
    acls, found, left = AclIndex(access_changes.access_rules(door.here).acls), list[list[Acl]](), DELETED_MAX
    for number, (each, result) in enumerate(zip(filters, results, strict=True)):
        try:
            _check_count(number, FILTERS_MAX, "filters")
            wanted = filter_asked(each)
            wanted_acls = 0 if wanted is None else acls.find(wanted)
            if wanted_acls.bit_count() > left:
                message = f"one request deletes at most {DELETED_MAX} ACLs; name fewer by each filter"
                raise Refusal(ErrorCode.POLICY_VIOLATION, message)
            some = acls.acls(wanted_acls)
            left -= len(some)
        except Refusal as error:
            some = []
            result.error_code, result.error_message = said(error)
        found.append(some)
    named = {acl for some in found for acl in some}
    gone = {*access_changes.delete_acls(door.here, client.caller, named.__contains__)} if named else set()
    return [[acl for acl in some if acl in gone] for some in found]


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=_TYPE_CODES[acl.resource_type],
        resource_name=acl.resource_name,
        pattern_type=_PATTERN_CODES[acl.pattern_type],
        principal=acl.principal,
        host=acl.host,
        operation=OPERATION_CODES[acl.operation],
        permission_type=_PERMISSION_CODES[acl.permission],
    )
