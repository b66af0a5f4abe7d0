"""The rules of access on pages: principals, keys and users, ACLs, quotas, and the audit log."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, NamedTuple
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
from coordinator.access.acl_argument import SUPPORTED_OPERATIONS, acl_from
from coordinator.access.caller import Caller
from coordinator.access.principal import USER
from log_tables.cluster.access_record import AccessRules, Quota
from log_tables.cluster.acl import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from log_tables.cluster.admin.audit_log import events_before
from log_tables.cluster.audit_record import AuditKind
from log_tables.cluster.credential_log import Credentials, open_credentials
from log_tables.errors import LakelogError

router = APIRouter(prefix="/console/access", include_in_schema=False, route_class=PageRoute)

SCANNED_MAX = 5_000
"""Events that one page of the audit log looks through."""

EVENTS_SHOWN = 100

_ALL = "ALL"


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
    return _page(request, here, asked, "access.html", {"rows": paged(rows, page)})


@router.get("/keys")
def keys(request: Request, here: Here, asked: Asked, page: Annotated[int, Query(ge=1)] = 1) -> Response:
    """API keys without their secrets, and users with passwords."""
    known = _credentials(here)
    rows = sorted(known.api_keys.values(), key=lambda key: (key.principal, key.created_ms))
    values = {"rows": paged(rows, page), "used_ms": known.used_ms, "users": sorted(known.users)}
    return _page(request, here, asked, "access_keys.html", values)


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
