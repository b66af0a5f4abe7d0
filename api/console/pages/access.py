"""The rules of access on pages: principals, keys and users, ACLs, quotas, and the audit log."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Literal, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from api.console.page import paged, render
from api.console.page_route import PageRoute
from api.console.pages.change import Change, ChangedValue, planned
from api.gateway import Gateway
from api.requests.access import Asked
from api.requests.route_gateway import Here
from api.scalars import decimal
from coordinator.access.acl_argument import SUPPORTED_OPERATIONS, acl_from
from coordinator.access.caller import Caller
from coordinator.access.principal import USER, check_user
from log_tables.cluster.access_record import AccessRules, Quota
from log_tables.cluster.acl import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from log_tables.cluster.admin.audit_log import events_before
from log_tables.cluster.audit_record import AuditKind
from log_tables.cluster.credential_log import Credentials, open_credentials
from log_tables.errors import LakelogError
from log_tables.store.local import LocalStore

router = APIRouter(prefix="/console/access", include_in_schema=False, route_class=PageRoute)

SCANNED_MAX = 5_000
"""Events that one page of the audit log looks through."""

EVENTS_SHOWN = 100

_ALL = "ALL"

CredentialKind = Literal["key", "user"]


class PrincipalView(NamedTuple):
    """Somebody who can get in, or of whom a rule speaks."""

    name: str
    is_super: bool
    keys: int
    has_password: bool
    acls: int
    has_quota: bool


@dataclass(slots=True)
class _AclForm:
    resource_type: Annotated[str, Query()] = ""
    resource_name: Annotated[str, Query()] = ""
    pattern_type: Annotated[str, Query()] = ""
    principal: Annotated[str, Query()] = ""
    host: Annotated[str, Query()] = ""
    operation: Annotated[str, Query()] = ""
    permission: Annotated[str, Query()] = ""


def _acl_fields(form: Annotated[_AclForm, Depends()]) -> dict[str, str]:
    return asdict(form)


_Fields = Annotated[dict[str, str], Depends(_acl_fields)]
"""The fields of an ACL, in the query."""


@router.get("")
def principals(request: Request, here: Here, asked: Asked, page: Annotated[int, Query(ge=1)] = 1) -> Response:
    """Everybody who is known by a credential, an ACL or a quota."""
    rules, known = _rules(here), _credentials(here)
    rows = principals_of(rules, known)
    where = ("--data", _root(here))
    values = {
        "rows": paged(rows, page),
        "credentials": len(known.api_keys) + len(known.users),
        "init": _command("security", "init", *where),
        "serve": _command("serve", *where, "--set", "authentication_methods=api-key"),
        "enable": _command("security", "enable", *where),
    }
    return _page(request, here, asked, "access.html", values)


@router.get("/keys")
def keys(
    request: Request,
    here: Here,
    asked: Asked,
    page: Annotated[int, Query(ge=1)] = 1,
    kind: Annotated[CredentialKind, Query()] = "key",
    name: Annotated[str, Query()] = "",
    days: Annotated[str, Query()] = "",
) -> Response:
    """API keys without their secrets, users with passwords, and the commands that make and end them."""
    known, root = _credentials(here), _root(here)
    rows = sorted(known.api_keys.values(), key=lambda key: (key.principal, key.created_ms))
    shown = paged(rows, page)
    where = ("--data", root)
    values = {
        "rows": shown,
        "used_ms": known.used_ms,
        "users": sorted(known.users),
        "kind": kind,
        "name": name,
        "days": days,
        "made": new_credential(root, kind, name, days) if name else None,
        "revokes": {key.id: _command("key", "revoke", key.id, *where) for key in shown.items},
        "removes": {each: _command("user", "remove", *where, "--", each) for each in known.users},
        "passwords": {each: _command("user", "create", *where, "--", each) for each in known.users},
    }
    return _page(request, here, asked, "access_keys.html", values)


class NewCredential(NamedTuple):
    """The command that makes a credential, for there is no route that does; or why it would not."""

    principal: str
    command: str = ""
    refused: str = ""


def new_credential(root: str, kind: CredentialKind, name: str, days: str) -> NewCredential:
    """The command for a key of `User:name`, which ends after so many days if they are not empty, or for a
    user with this name.
    """
    principal = USER + name.removeprefix(USER)
    try:
        check_user(principal)
    except LakelogError as error:
        return NewCredential(principal, refused=error.message)
    where = ["--data", root]
    if kind == "user":
        made = _command("user", "create", *where, "--", principal.removeprefix(USER))
        return NewCredential(principal, made)
    if days.strip() and not decimal(days.strip()):
        return NewCredential(principal, refused=f"{days[:20]!r} is no number of days; write digits, as 90")
    ends = ["--expires-days", days.strip()] if days.strip() else []
    return NewCredential(principal, _command("key", "create", principal, *ends, *where))


def _command(*words: str) -> str:
    return shlex.join(["lakelog", *words])


@router.get("/acls")
def acls(
    request: Request,
    here: Here,
    asked: Asked,
    search: Annotated[str, Query()] = "",
    page: Annotated[int, Query(ge=1)] = 1,
) -> Response:
    """The ACLs."""
    rows = [acl for acl in sorted(_rules(here).acls) if search.lower() in str(acl).lower()]
    return _page(request, here, asked, "access_acls.html", {"rows": paged(rows, page), "search": search})


@router.get("/acls/new")
def new_acl(request: Request, here: Here, asked: Asked, fields: _Fields) -> Response:
    """The form of an ACL; once it is filled in, the dry run."""
    if not fields["resource_type"]:
        named = {_ALL, *(each for of_type in SUPPORTED_OPERATIONS.values() for each in of_type)}
        values = {
            "types": [*ResourceType],
            "patterns": [*PatternType],
            "operations": sorted(named),
            "permissions": [*Permission],
            "cluster": CLUSTER_NAME,
            "for_principal": fields["principal"] or USER,
        }
        return _page(request, here, asked, "access_acl_new.html", values)
    if fields["resource_type"] == ResourceType.CLUSTER:
        fields["resource_name"] = fields["resource_name"] or CLUSTER_NAME
    refused, facts = "", list[ChangedValue]()
    try:
        made = acl_from(fields)
        exists = made in _rules(here).acls
        facts = [] if exists else [ChangedValue(str(made), "–", "there")]
        refused = "there is such an ACL already" if exists else _not_allowed(asked)
    except LakelogError as error:
        refused = error.message
    change = Change(
        "New ACL",
        "POST",
        f"/v3/clusters/{here.cluster.cluster_id}/acls",
        fields,
        facts,
        "/console/access/acls",
        "/console/access/acls/new",
        "Create the ACL",
        refused=refused,
    )
    return planned(request, asked, change)


@router.get("/acls/delete")
def delete_acl(request: Request, here: Here, asked: Asked, fields: _Fields) -> Response:
    """The dry run of deleting one."""
    acl = acl_from(fields)
    is_there = acl in _rules(here).acls
    change = Change(
        "Delete an ACL",
        "DELETE",
        f"/v3/clusters/{here.cluster.cluster_id}/acls?{urlencode(fields)}",
        None,
        [ChangedValue(str(acl), "there", "–")] if is_there else [],
        "/console/access/acls",
        "/console/access/acls",
        "Delete the ACL",
        _loss(acl),
        _not_allowed(asked) if is_there else "there is no such ACL",
    )
    return planned(request, asked, change)


@router.get("/quotas")
def quotas(request: Request, here: Here, asked: Asked, page: Annotated[int, Query(ge=1)] = 1) -> Response:
    """The quotas."""
    rows = sorted(_rules(here).quotas.items())
    values = {"rows": paged(rows, page), "names": Quota.__struct_fields__}
    return _page(request, here, asked, "access_quotas.html", values)


@router.get("/audit")
def audit(
    request: Request,
    here: Here,
    asked: Asked,
    kind: Annotated[AuditKind | None, Query()] = None,
    text: Annotated[str, Query()] = "",
    before: Annotated[int | None, Query(ge=0)] = None,
) -> Response:
    """The newest events, of some thousand that are looked through."""
    found, first = events_before(here.cluster, before, SCANNED_MAX)
    rows = [
        each for each in found if kind in (None, each["kind"]) and text.lower() in str(each["event"]).lower()
    ]
    shown = rows[:EVENTS_SHOWN]
    older = shown[-1]["offset"] if len(rows) > EVENTS_SHOWN else first
    values = {
        "rows": shown,
        "kinds": [*AuditKind],
        "kind": kind or "",
        "text": text,
        "older": older,
        "scanned": len(found),
    }
    return _page(request, here, asked, "access_audit.html", values)


def principals_of(rules: AccessRules, known: Credentials) -> list[PrincipalView]:
    """Everybody of whom anything is known, by name."""
    of_keys = Counter(key.principal for key in known.api_keys.values())
    with_password = {USER + name for name in known.users}
    of_acls = Counter(acl.principal for acl in rules.acls)
    names = {*of_keys, *with_password, *of_acls, *rules.super_users, *rules.quotas}
    return [
        PrincipalView(
            name,
            name in rules.super_users,
            of_keys[name],
            name in with_password,
            of_acls[name],
            name in rules.quotas,
        )
        for name in sorted(names)
    ]


def _page(
    request: Request, here: Gateway, asked: Caller, template: str, values: Mapping[str, object]
) -> Response:
    methods: Sequence[str] = here.settings.authentication_methods
    return render(request, template, {**values, "is_open": here.access.is_open, "methods": methods}, asked)


def _root(here: Gateway) -> str:
    """The root as commands name it."""
    store = here.cluster.store
    return str(store.root) if isinstance(store, LocalStore) else store.url


def _rules(here: Gateway) -> AccessRules:
    here.cluster.refresh()
    return here.cluster.metadata_log.access


def _credentials(here: Gateway) -> Credentials:
    log = open_credentials(here.cluster.store, here.clock, "")
    return Credentials() if log is None else log.credentials


def _not_allowed(asked: Caller) -> str:
    allowed = asked.allows(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    return "" if allowed else "it needs ALTER on the cluster, which you do not have"


def _loss(acl: Acl) -> str:
    if acl.permission is Permission.DENY:
        return f"{acl.principal} may do it then, if another ACL allows it."
    return f"{acl.principal} may not do it any longer, unless another ACL allows it."
