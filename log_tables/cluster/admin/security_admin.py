"""Administration of ACLs, super users, quotas, security itself and credentials: every change is one append to
a log, all of it or nothing.

Nothing here knows HTTP, and nothing decides who may make a change.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from msgspec.structs import replace

from log_tables.cluster.access_record import (
    AccessRules,
    Quota,
    acl_record,
    check_entity,
    check_quota_name,
    check_super_user,
    quota_of,
    quota_record,
    security_record,
    super_user_record,
)
from log_tables.cluster.acl import Acl
from log_tables.cluster.credential import ApiKeyRecord, ScramCredential, ScramUserRecord
from log_tables.cluster.credential_log import (
    CredentialLog,
    Credentials,
    api_key_record,
    revocations,
    use_record,
    user_record,
)
from log_tables.cluster.metadata_log import MetadataLog
from log_tables.errors import Conflict, NotFound
from log_tables.record import Record

USE_NOTED_MS = 60 * 60 * 1000
"""The last use of a key is noted at most once in that time."""


def add_acls(log: MetadataLog, acls: Iterable[Acl]) -> list[Acl]:
    """Add `acls` in one append; returns those that were not there, in order."""
    wanted, made = sorted(set(acls)), list[Acl]()

    def decide(rules: AccessRules) -> list[Record]:
        made[:] = [acl for acl in wanted if acl not in rules.acls]
        return [*map(acl_record, made)]

    log.change_access(decide)
    return made


def remove_acls(log: MetadataLog, matches: Callable[[Acl], bool]) -> list[Acl]:
    """Remove the ACLs for which `matches` holds in one append; returns them, in order."""
    gone = list[Acl]()

    def decide(rules: AccessRules) -> list[Record]:
        gone[:] = sorted(filter(matches, rules.acls))
        return [*map(partial(acl_record, removed=True), gone)]

    log.change_access(decide)
    return gone


def acl_difference(rules: AccessRules, target: Collection[Acl]) -> tuple[list[Acl], list[Acl]]:
    """The ACLs to add and to remove, in order, for `target` instead of those of `rules`."""
    return sorted({*target} - rules.acls), sorted(rules.acls - {*target})


def replace_acls(
    log: MetadataLog, target: Collection[Acl], check: Callable[[AccessRules], None] = lambda _: None
) -> tuple[list[Acl], list[Acl]]:
    """Have the ACLs `target` and no others, by one append of the difference, unless `check` raises for the
    newest rules; returns those that were added and removed, in order. Super users stay.
    """
    changed = list[Acl](), list[Acl]()

    def decide(rules: AccessRules) -> list[Record]:
        nonlocal changed
        check(rules)
        added, removed = changed = acl_difference(rules, target)
        return [*map(acl_record, added), *map(partial(acl_record, removed=True), removed)]

    log.change_access(decide)
    return changed


def add_super_user(log: MetadataLog, principal: str) -> None:
    """Let `principal` do everything. Raises InvalidArgument unless it is `User:<name>`."""
    check_super_user(principal)
    log.change_access(lambda rules: [] if principal in rules.super_users else [super_user_record(principal)])


def remove_super_user(log: MetadataLog, principal: str) -> None:
    """Leave `principal` to the ACLs. Raises NotFound, and Conflict for the last one of a secured cluster."""

    def decide(rules: AccessRules) -> list[Record]:
        if principal not in rules.super_users:
            raise NotFound(f"{principal[:100]!r} is no super user; see `lakelog security status`")
        if rules.secured and len(rules.super_users) == 1:
            raise Conflict(f"{principal} is the last super user of a secured cluster; add another one first")
        return [super_user_record(principal, removed=True)]

    log.change_access(decide)


def alter_quotas(log: MetadataLog, changes: Mapping[str, Mapping[str, float | None]]) -> None:
    """Set rates of entities, by the names of `Quota`, and remove those that are None; others stay. All in one
    append.

    Raises InvalidArgument.
    """
    for entity, rates in changes.items():
        check_entity(entity)
        for name in rates:
            check_quota_name(name)
        quota_of({name: rate for name, rate in rates.items() if rate is not None})

    def decide(rules: AccessRules) -> list[Record]:
        records = []
        for entity, rates in changes.items():
            known = rules.quotas.get(entity, Quota())
            made = replace(known, **rates)
            if made != known:
                records.append(quota_record(entity, None if made == Quota() else made))
        return records

    log.change_access(decide)


def quota_difference(
    rules: AccessRules, target: Mapping[str, Quota]
) -> dict[str, tuple[Quota | None, Quota | None]]:
    """By entity the quota now and then, None for none, where `target` differs from those of `rules`."""
    entities = sorted(rules.quotas.keys() | target.keys())
    found = {entity: (rules.quotas.get(entity), target.get(entity)) for entity in entities}
    return {entity: (now, then) for entity, (now, then) in found.items() if now != then}


def replace_quotas(
    log: MetadataLog, target: Mapping[str, Quota]
) -> dict[str, tuple[Quota | None, Quota | None]]:
    """Have the quotas `target` and no others, by one append; returns what has changed, as
    `quota_difference`.
    """
    changed: dict[str, tuple[Quota | None, Quota | None]] = {}

    def decide(rules: AccessRules) -> list[Record]:
        nonlocal changed
        changed = quota_difference(rules, target)
        return [quota_record(entity, then) for entity, (_, then) in changed.items()]

    log.change_access(decide)
    return changed


def remove_quota(log: MetadataLog, entity: str, names: Collection[str] = Quota.__struct_fields__) -> None:
    """Remove the rates `names` of `entity`, by default all. Raises NotFound where it lacks one, or all."""

    def decide(rules: AccessRules) -> list[Record]:
        known = rules.quotas.get(entity)
        if known is None:
            raise NotFound(f"{entity[:100]!r} has no quota of its own; see `lakelog quota list`")
        for name in names if len(names) < len(Quota.__struct_fields__) else ():
            if getattr(known, name, None) is None:
                raise NotFound(f"{entity[:100]!r} has no {name[:40]}; see `lakelog quota list`")
        made = replace(known, **dict.fromkeys(names))
        return [quota_record(entity, None if made == Quota() else made)]

    log.change_access(decide)


def enable_security(log: MetadataLog) -> None:
    """From now on every gateway of the cluster authenticates its clients, or serves nobody.

    Raises Conflict without a super user: nobody could change anything then.
    """

    def decide(rules: AccessRules) -> list[Record]:
        if not rules.super_users:
            raise Conflict("nobody could change anything then: make a key with `lakelog security init` first")
        return [] if rules.secured else [security_record(True)]

    log.change_access(decide)


def disable_security(log: MetadataLog) -> None:
    """Let gateways serve again that authenticate nobody."""
    log.change_access(lambda rules: [security_record(False)] if rules.secured else [])


def add_api_key(log: CredentialLog, key: ApiKeyRecord) -> None:
    """Keep what is known of a new key."""
    log.change(lambda _: [api_key_record(key)])


def revoke_api_keys(log: CredentialLog, ids: Collection[str]) -> None:
    """Remove the keys `ids`, all or none. Raises NotFound when there is no such key."""

    def decide(known: Credentials) -> list[Record]:
        for key_id in ids:
            if key_id not in known.api_keys:
                raise NotFound(f"there is no key {key_id[:40]!r}; see `lakelog key list`")
        return [record for key_id in ids for record in revocations(key_id)]

    log.change(decide)


def note_uses(log: CredentialLog, used_ms: Mapping[str, int]) -> None:
    """Note the last uses of keys by id (milliseconds since 1970) in one append, without those that were noted
    less than an hour before, or that were revoked.
    """

    def decide(known: Credentials) -> list[Record]:
        return [
            use_record(key_id, at_ms)
            for key_id, at_ms in used_ms.items()
            if key_id in known.api_keys and at_ms - known.used_ms.get(key_id, 0) >= USE_NOTED_MS
        ]

    if decide(log.credentials):  # else the log is left alone, and its leader too
        log.change(decide)


def put_user(log: CredentialLog, user: ScramUserRecord) -> None:
    """Add a SCRAM user, or replace the one of the same name."""
    log.change(lambda _: [user_record(user.name, user)])


def remove_user(log: CredentialLog, name: str) -> None:
    """Raises NotFound when there is no such user."""

    def decide(known: Credentials) -> list[Record]:
        if name not in known.users:
            raise NotFound(f"there is no user {name[:40]!r}; see `lakelog user list`")
        return [user_record(name, None)]

    log.change(decide)


def alter_users(
    log: CredentialLog, changes: Mapping[str, Mapping[str, ScramCredential | None]]
) -> frozenset[str]:
    """Set the credentials of SCRAM users by mechanism, and remove those that are None, in one append. A user
    that has none is removed. Returns the users that lack what is to be removed, of which nothing is changed.
    """
    missing = set[str]()

    def decide(known: Credentials) -> list[Record]:
        missing.clear()
        records = []
        for name, wanted in changes.items():
            user = known.users.get(name)
            kept = {} if user is None else user.mechanisms
            if any(found is None and mechanism not in kept for mechanism, found in wanted.items()):
                missing.add(name)
                continue
            made = {mechanism: found for mechanism, found in {**kept, **wanted}.items() if found is not None}
            records.append(user_record(name, ScramUserRecord(name, made) if made else None))
        return records

    log.change(decide)
    return frozenset(missing)
