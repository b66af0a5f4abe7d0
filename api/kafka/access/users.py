"""DescribeUserScramCredentials and AlterUserScramCredentials: users and their passwords (KIP-554).

A password comes salted. Nobody can tell how long it is, so only its shape is looked at.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from api import access_changes
from api.kafka.clients.client import Client
from api.kafka.clients.door import Door, in_thread
from api.kafka.clients.errors import ErrorCode, Refusal, said
from api.kafka.protocol.messages.access import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from coordinator.access.authentication.scram import MECHANISMS, check_scram_name, salted_credential
from coordinator.access.principal import USER
from ingest.settings import Settings
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.credential import ScramCredential, ScramUserRecord
from log_tables.errors import InvalidArgument, LakelogError
from log_tables.limits import KAFKA_RESOURCES_MAX

_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

_MECHANISMS = dict(enumerate(MECHANISMS, 1))
"""By Kafka's numbers (org.apache.kafka.clients.admin.ScramMechanism)."""

_Alteration = ScramCredentialDeletion | ScramCredentialUpsertion

_NUMBERS = {mechanism: number for number, mechanism in _MECHANISMS.items()}


def check_administration(settings: Settings) -> None:
    """Raise Refusal where users and quotas are left to those who can write the root."""
    if not settings.user_administration_enable:
        message = (
            "user_administration_enable is off, so users and quotas are not changed here; use `lakelog user` "
            "and `lakelog quota`, which need the store"
        )
        raise Refusal(ErrorCode.POLICY_VIOLATION, message)


async def describe_user_scram_credentials(
    door: Door, client: Client, request: DescribeUserScramCredentialsRequest, _version: int
) -> DescribeUserScramCredentialsResponse:
    """The mechanisms and iterations of users, of all where none is named. No salt, no verifier."""

    def describe() -> list[DescribeUserScramCredentialsResult]:
        known, asked = access_changes.scram_users(door.here, client.caller), request.users or ()
        if len(asked) > KAFKA_RESOURCES_MAX:
            message = (
                f"a request names at most {KAFKA_RESOURCES_MAX} users; send several, or name none for all"
            )
            raise Refusal(ErrorCode.POLICY_VIOLATION, message)
        return [*_described(known, Counter([each.name for each in asked] or sorted(known)))]

    try:
        results = await asyncio.to_thread(describe)
    except (LakelogError, Refusal) as error:
        code, message = said(error, _DENIED)
        return DescribeUserScramCredentialsResponse(error_code=code, error_message=message)
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


def _described(
    known: Mapping[str, ScramUserRecord], asked: Mapping[str, int]
) -> Iterator[DescribeUserScramCredentialsResult]:
    for name, count in asked.items():
        result = DescribeUserScramCredentialsResult(user=name, error_message=None)
        user = known.get(name)
        if count > 1:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = f"the user {name[:100]!r} is named twice; name it once"
        elif user is None:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = f"there is no user {name[:100]!r} with a password"
        else:
            result.credential_infos = [
                CredentialInfo(mechanism=_NUMBERS[mechanism], iterations=found.iterations)
                for mechanism, found in sorted(user.mechanisms.items())
            ]
        yield result


async def alter_user_scram_credentials(
    door: Door, client: Client, request: AlterUserScramCredentialsRequest, _version: int
) -> AlterUserScramCredentialsResponse:
    """Each user is changed or hears why not, all in one commit."""
    results = await in_thread(door, lambda: _alter(door, client, request))
    return AlterUserScramCredentialsResponse(results=results)


def _alter(
    door: Door, client: Client, request: AlterUserScramCredentialsRequest
) -> list[AlterUserScramCredentialsResult]:
    changes = dict[str, Mapping[str, ScramCredential | None]]()
    results = dict[str, AlterUserScramCredentialsResult]()
    asked: list[_Alteration] = [*request.deletions, *request.upsertions]
    named = Counter(each.name for each in asked)
    supers: Collection[str] = ()
    refused: LakelogError | Refusal | None = None
    try:
        client.caller.check(Operation.ALTER, ResourceType.CLUSTER)
        _check_door(door, client)
        supers = access_changes.access_rules(door.here).super_users
    except (LakelogError, Refusal) as error:
        refused = error
    for each in asked:
        result = results.setdefault(each.name, AlterUserScramCredentialsResult(user=each.name))
        result.error_message = None
        try:
            if refused is not None:
                raise refused
            _check_user(client, supers, each.name, named[each.name], len(results))
            changes[each.name] = _changed(each)
        except InvalidArgument as error:
            result.error_code, result.error_message = ErrorCode.UNACCEPTABLE_CREDENTIAL, error.message
        except (LakelogError, Refusal) as error:
            result.error_code, result.error_message = said(error, _DENIED)
    _apply(door, client, changes, results)
    return [*results.values()]


def _apply(
    door: Door,
    client: Client,
    changes: Mapping[str, Mapping[str, ScramCredential | None]],
    results: Mapping[str, AlterUserScramCredentialsResult],
) -> None:
    """Make `changes`, and tell in the results of users what was not made."""
    if not changes:
        return
    try:
        missing = access_changes.alter_users(door.here, client.caller, changes)
    except LakelogError as error:
        for name in changes:
            results[name].error_code, results[name].error_message = said(error, _DENIED)
        return
    for name in missing:
        results[name].error_code = ErrorCode.RESOURCE_NOT_FOUND
        results[name].error_message = f"the user {name[:100]!r} has no password for this mechanism"


def _check_door(door: Door, client: Client) -> None:
    """Raise Refusal where no client of this gateway changes users."""
    if client.access.is_open:
        message = "this gateway authenticates nobody, so nobody makes users here; use `lakelog user create`"
        raise Refusal(ErrorCode.SECURITY_DISABLED, message)
    check_administration(door.here.settings)


def _check_user(client: Client, supers: Collection[str], name: str, count: int, users: int) -> None:
    """Raise Refusal, InvalidArgument unless the client may change the user `name`, so often named, of so many
    `users`. `supers` are the super users as of now.
    """
    if count > 1:
        message = f"the user {name[:100]!r} is named {count} times in one request; send several"
        raise Refusal(ErrorCode.DUPLICATE_RESOURCE, message)
    if users > KAFKA_RESOURCES_MAX:
        message = f"a request changes at most {KAFKA_RESOURCES_MAX} users; send several"
        raise Refusal(ErrorCode.POLICY_VIOLATION, message)
    check_scram_name(name)
    if USER + name in supers and client.caller.context.principal.name not in supers:
        message = f"{USER}{name} is a super user, whose password only super users change"
        client.caller.note_failed("AlterUserScramCredentials", "USER", name, _DENIED)
        raise Refusal(_DENIED, message)


def _changed(asked: _Alteration) -> Mapping[str, ScramCredential | None]:
    """The new credential of a mechanism, or None. Raises Refusal, InvalidArgument."""
    mechanism = _MECHANISMS.get(asked.mechanism)
    if mechanism is None:
        known = ", ".join(f"{number} ({name})" for number, name in _MECHANISMS.items())
        message = f"{asked.mechanism} is no mechanism of SCRAM; use one of {known}"
        raise Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, message)
    if isinstance(asked, ScramCredentialDeletion):
        return {mechanism: None}
    salted, salt = bytes(asked.salted_password), bytes(asked.salt)
    return {mechanism: salted_credential(mechanism, salted, salt, asked.iterations)}
