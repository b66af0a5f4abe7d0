"""The check of the records of access: rules in the metadata log, the log of credentials, and the audit log.

Nothing else in a root says for which principal a rule or a hash is, or which one did something. So each
record is checked for its form, and for what those before it say; docs/guarantees.md has what cannot be known.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address

from log_tables.cluster.access_record import (
    Rule,
    RuleRecord,
    SecurityRecord,
    SuperUserRecord,
    check_super_user,
)
from log_tables.cluster.acl import ANY, CLUSTER_NAME, Acl, ResourceType
from log_tables.cluster.audit_record import flaw
from log_tables.cluster.credential import ApiKeyRecord, ScramCredential, ScramUserRecord
from log_tables.cluster.credential_log import Credential, decode
from log_tables.errors import InvalidArgument
from log_tables.layout import CREDENTIALS_DIRECTORY
from log_tables.limits import ACL_NAME_MAX_CHARS, SCRAM_ITERATIONS_MAX, SCRAM_ITERATIONS_MIN
from log_tables.record import Record

_SHOWN_CHARS = 100
_HASH_BYTES = {"SCRAM-SHA-256": 32, "SCRAM-SHA-512": 64}
_REMEDY = "make the key or the user again with `lakelog key` or `lakelog user`, or restore credentials/"


@dataclass(slots=True)
class AccessHistory:
    """The rules of access by the metadata log; `whole` if no record was compacted away."""

    whole: bool = True
    rules: dict[bytes, Rule] = field(default_factory=dict)

    def take(self, record: RuleRecord) -> Iterator[str]:
        """The problems of the next record, as what follows "the record …"."""
        known = self.rules.pop(record.key, None)
        if isinstance(record.rule, Acl):
            yield from _acl(record.rule)
        if record.rule is not None:
            self.rules[record.key] = record.rule
        elif isinstance(known, SecurityRecord):
            yield "removes the rule of security, which is only ever set"
        elif known is None and self.whole:
            yield f"removes the rule {_shown(record.key)}, which is not there: another one may still hold"
        if self.whole and isinstance(record.rule or known, SuperUserRecord | SecurityRecord):
            yield from self.lonely()

    def lonely(self) -> Iterator[str]:
        """A secured cluster has a super user: nobody else could change anything."""
        found = [*self.rules.values()]
        secured = any(isinstance(rule, SecurityRecord) and rule.secured for rule in found)
        if secured and not any(isinstance(rule, SuperUserRecord) for rule in found):
            yield "leaves a secured cluster without a super user"


def _acl(acl: Acl) -> Iterator[str]:
    name = acl.resource_name
    if not 1 <= len(name) <= ACL_NAME_MAX_CHARS or not name.isprintable():
        yield f"is an ACL on a resource called {_shown(name)}, which none can be"
    if acl.resource_type is ResourceType.CLUSTER and name != CLUSTER_NAME:
        yield f"is an ACL on the cluster {_shown(name)}, and it is {CLUSTER_NAME!r}"
    if acl.host != ANY and not _is_address(acl.host):
        yield f"is an ACL for the host {_shown(acl.host)}, which is no IP address"


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


@dataclass(slots=True)
class CredentialHistory:
    """The credentials by their log; `whole` if no record was compacted away. No problem has a hash."""

    whole: bool = True
    known: dict[str, Credential] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def take(self, record: Record) -> None:
        """Check the next record. Raises CorruptLog for one that cannot be read."""
        key, value = decode(record)
        before = self.known.pop(key, None)
        said = [*self._removed(key, before)] if value is None else [*self._said(key, value, before)]
        if value is not None:
            self.known[key] = value
        at = f"the record at offset {record.offset} of {CREDENTIALS_DIRECTORY}"
        self.problems += [f"{at} {each}; {_REMEDY}" for each in said]

    def _removed(self, key: str, before: Credential | None) -> Iterator[str]:
        kind, _, name = key.partition("/")
        if kind == "used":  # it is removed right after its key, also where it was never used
            if f"key/{name}" in self.known:
                yield f"removes the last use of the key {_shown(name)}, which is not revoked"
        elif before is None and self.whole:
            yield f"removes {_shown(key)}, which is not there: another one may still be good"

    def _said(self, key: str, value: Credential, before: Credential | None) -> Iterator[str]:
        if isinstance(value, ApiKeyRecord):
            yield from _api_key(value)
            if before is not None:
                yield f"changes the key {_shown(value.id)}, which is only ever made or revoked"
        elif isinstance(value, ScramUserRecord):
            yield from _user(value)
        else:
            if value <= 0 or (isinstance(before, int) and value < before):
                yield f"says that {_shown(key)} at {value}, after {before}"
            if f"key/{key.removeprefix('used/')}" not in self.known:
                yield f"says that {_shown(key)}, and there is no such key"


def _api_key(key: ApiKeyRecord) -> Iterator[str]:
    if len(key.sha256) != 32:
        yield f"has a hash of {len(key.sha256)} bytes for the key {_shown(key.id)}"
    if key.created_ms < 0 or (key.expires_ms is not None and key.expires_ms < key.created_ms):
        yield f"says that the key {_shown(key.id)} was made at {key.created_ms}, and ends at {key.expires_ms}"
    try:
        check_super_user(key.principal)
    except InvalidArgument:
        yield f"gives the key {_shown(key.id)} to {_shown(key.principal)}, which is not written as User:NAME"


def _user(user: ScramUserRecord) -> Iterator[str]:
    if not user.name or not user.mechanisms:
        yield f"has a user {_shown(user.name)} with {len(user.mechanisms)} mechanisms"
    for mechanism, credential in user.mechanisms.items():
        if not _is_usable(mechanism, credential):
            yield f"has a {_shown(mechanism)} of the user {_shown(user.name)} that nobody's password can fit"


def _is_usable(mechanism: str, credential: ScramCredential) -> bool:
    due = _HASH_BYTES.get(mechanism)
    return (
        len(credential.stored_key) == len(credential.server_key) == due
        and len(credential.salt) > 0
        and SCRAM_ITERATIONS_MIN <= credential.iterations <= SCRAM_ITERATIONS_MAX
    )


def check_events(records: Iterable[Record]) -> Iterator[str]:
    """The problems of records of `__audit`."""
    for record in records:
        said = flaw(record.value or b"", record.timestamp_us)
        if said is not None:
            yield f"the event at offset {record.offset} {said}; restore it from a backup, or skip it"


def _shown(text: object) -> str:
    return repr(text)[:_SHOWN_CHARS]
