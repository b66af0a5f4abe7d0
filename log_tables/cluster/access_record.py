"""The records of the metadata log that say who may do what: ACLs, super users, quotas, security itself.

Their keys begin with `!`, as no name of a topic does. A null value removes. A record that cannot be read, or
is of a kind or has a field that this version does not know, stops its reader, which must not act as if there
was no such rule.
"""

import math
from collections.abc import Mapping
from hashlib import blake2b
from typing import Annotated

import msgspec

from log_tables.cluster.acl import ANY, Acl
from log_tables.errors import InvalidArgument
from log_tables.record import Record
from log_tables.spelling import meant

ACCESS_KEY = b"!"
"""The first character of the key of each such record."""

DEFAULT_QUOTA = "<default>"
"""The entity whose quota holds for principals without one of their own, as in Kafka."""

_ACL, _SUPER_USER, _QUOTA, _SECURITY = b"!acl/", b"!super/", b"!quota/", b"!security"
_USER, _GROUP = "User:", "Group:"

_Rate = Annotated[float, msgspec.Meta(gt=0)]


class Quota(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The bounds of one entity at each gateway, by Kafka's names: bytes, requests, and changes of topics and
    partitions a second. None is no bound.
    """

    producer_byte_rate: _Rate | None = None
    consumer_byte_rate: _Rate | None = None
    request_rate: _Rate | None = None
    controller_mutation_rate: _Rate | None = None


class SuperUserRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A super user, whom the key names."""


class SecurityRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether all gateways of the cluster have to authenticate their clients."""

    secured: bool


Rule = Acl | SuperUserRecord | Quota | SecurityRecord


class RuleRecord(msgspec.Struct, frozen=True):
    """The rule of a key; None removes it."""

    key: bytes
    rule: Rule | None


class AccessRules(msgspec.Struct, frozen=True):
    """All of them at one moment. `quotas` is by entity: `User:<name>`, `Group:<name>`, or `<default>`."""

    acls: frozenset[Acl] = frozenset()
    super_users: frozenset[str] = frozenset()
    quotas: Mapping[str, Quota] = {}
    secured: bool = False


class AccessTable:
    """The newest rule of each key."""

    def __init__(self) -> None:
        self._rules: dict[bytes, Rule] = {}

    def take(self, record: RuleRecord) -> None:
        """The next record."""
        if record.rule is None:
            self._rules.pop(record.key, None)
        else:
            self._rules[record.key] = record.rule

    def rules(self) -> AccessRules:
        """All that hold now."""
        found = [*self._rules.items()]
        return AccessRules(
            frozenset(rule for _, rule in found if isinstance(rule, Acl)),
            frozenset(_name(key, _SUPER_USER) for key, rule in found if isinstance(rule, SuperUserRecord)),
            {_name(key, _QUOTA): rule for key, rule in found if isinstance(rule, Quota)},
            any(isinstance(rule, SecurityRecord) and rule.secured for _, rule in found),
        )


def rule_name(key: bytes) -> str:
    """A name for the rule of a key, such as `quota of User:ann`; of an ACL the key says nothing."""
    if key.startswith(_SUPER_USER):
        return f"super user {_name(key, _SUPER_USER)}"
    if key.startswith(_QUOTA):
        return f"quota of {_name(key, _QUOTA)}"
    return "security" if key == _SECURITY else "ACL"


def decode_rule(record: Record) -> RuleRecord:
    """The rule that `record` adds or removes. Raises ValueError for one that cannot be read."""
    key, value = record.key or b"", record.value
    if key.startswith(_ACL):
        rule: Rule | None = _decoded(value, Acl)
        if isinstance(rule, Acl):
            _check_principal(rule.principal)
            if acl_record(rule).key != key:
                raise ValueError("its key is that of another ACL")
    elif key.startswith(_SUPER_USER):
        check_super_user(_name(key, _SUPER_USER))
        rule = _decoded(value, SuperUserRecord)
    elif key.startswith(_QUOTA):
        check_entity(_name(key, _QUOTA))
        rule = _decoded(value, Quota)
    elif key == _SECURITY:
        rule = _decoded(value, SecurityRecord)
    else:
        raise ValueError("this version does not know rules of its kind")
    return RuleRecord(key, rule)


def _decoded(value: bytes | None, kind: type[Rule]) -> Rule | None:
    return None if value is None else msgspec.json.decode(value, type=kind)


def _name(key: bytes, prefix: bytes) -> str:
    return key.removeprefix(prefix).decode()


def _check_principal(principal: str) -> None:
    if not principal.startswith((_USER, _GROUP)) or principal in (_USER, _GROUP):
        raise ValueError("its principal is neither User:<name> nor Group:<name>")


def check_super_user(principal: str) -> None:
    """Raise InvalidArgument unless `principal` is `User:<name>`: groups are what a token says."""
    if not principal.startswith(_USER) or principal in (_USER, _USER + ANY) or not principal.isprintable():
        raise InvalidArgument(f"the super user {principal[:100]!r} is not written as User:NAME; write it so")


def check_entity(entity: str) -> None:
    """Raise InvalidArgument unless `entity` is `User:<name>`, `Group:<name>` or `<default>`."""
    named = entity.startswith((_USER, _GROUP)) and entity not in (_USER, _GROUP, _USER + ANY, _GROUP + ANY)
    if entity != DEFAULT_QUOTA and not (named and entity.isprintable()):
        raise InvalidArgument(
            f"the entity {entity[:100]!r} of a quota is neither User:NAME nor Group:NAME, nor the default; "
            "write it so"
        )


def check_quota_name(name: str) -> None:
    """Raise InvalidArgument for a name that no quota has."""
    known = Quota.__struct_fields__
    if name not in known:
        hint = meant(name[:40], known) or f"use one of {', '.join(known)}"
        raise InvalidArgument(f"there is no quota {name[:40]!r}; {hint}")


def quota_of(rates: Mapping[str, float]) -> Quota:
    """The quota with these rates, by the names of `Quota`. Raises InvalidArgument for others, and for rates
    that are not above 0.
    """
    for name, rate in rates.items():
        check_quota_name(name)
        if not (rate > 0 and math.isfinite(rate)):
            raise InvalidArgument(f"{name} = {rate} is not above 0; use a number of units a second")
    return Quota(**rates)


def acl_record(acl: Acl, *, removed: bool = False) -> Record:
    """The record that adds or removes `acl`. Its key is made of the whole ACL, so there is one of each."""
    value = msgspec.json.encode(acl)
    key = _ACL + blake2b(value, digest_size=16).hexdigest().encode()
    return Record(None if removed else value, key)


def super_user_record(principal: str, *, removed: bool = False) -> Record:
    return Record(
        None if removed else msgspec.json.encode(SuperUserRecord()), _SUPER_USER + principal.encode()
    )


def quota_record(entity: str, quota: Quota | None) -> Record:
    """The record of the quota of `entity`; None removes it."""
    return Record(None if quota is None else msgspec.json.encode(quota), _QUOTA + entity.encode())


def security_record(secured: bool) -> Record:
    return Record(msgspec.json.encode(SecurityRecord(secured)), _SECURITY)
