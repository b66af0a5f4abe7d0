"""The values of the records of `__audit`: events in JSON, in the shape of OCSF (schema.ocsf.io)."""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from ipaddress import ip_address

import msgspec
from msgspec import UNSET, UnsetType

from log_tables.layout import AUDIT
from log_tables.version import VERSION

OCSF_VERSION = "1.3.0"

GROUPS_MAX = 20
"""Groups of a principal that an event names: a token may have hundreds."""

NAME_MAX_CHARS = 300
"""Characters of a name in an event: a name that was refused may be of any length."""


_UID = re.compile("[0-9a-f]{32}")


class AuditKind(StrEnum):
    """The kinds of events."""

    CHANGE = "change"
    """Somebody changed something, or tried to and failed."""
    DENIAL = "denial"
    """No ACL allowed it, or one denied it."""
    REFUSAL = "refusal"
    """A credential was wrong, or there was none."""
    ACCESS = "access"
    """The first time in an hour that a principal may read or write records of a topic."""
    WRITE = "write"
    """The offsets that a principal has written to a topic, `count` records in all."""
    LOSS = "loss"
    """So many events are in no record."""


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One event, or `count` of the same between `time_ms` and `end_ms`; for a write, `count` records.

    `principal` is None where it is not known. `facts` say what was changed; they have no secrets, no records
    and no bodies of requests. `gateway` is its URL, empty for a command.
    """

    uid: str
    kind: AuditKind
    time_ms: int
    operation: str
    principal: str | None = None
    groups: Sequence[str] = ()
    address: str = ""
    resource_type: str = ""
    resource_name: str = ""
    success: bool = True
    error_code: int = 0
    count: int = 1
    end_ms: int = 0
    facts: Mapping[str, object] = {}
    gateway: str = ""


class _EventKind(msgspec.Struct, frozen=True):
    """A class of OCSF and its category."""

    uid: int
    name: str
    category: int


_API = _EventKind(6003, "API Activity", 6)
_CLASSES = {
    AuditKind.CHANGE: _API,
    AuditKind.DENIAL: _API,
    AuditKind.REFUSAL: _EventKind(3002, "Authentication", 3),
    AuditKind.ACCESS: _EventKind(6005, "Datastore Activity", 6),
    AuditKind.WRITE: _EventKind(6005, "Datastore Activity", 6),
    AuditKind.LOSS: _EventKind(1008, "Event Log Activity", 1),
}
_OTHER = (99, "Other")
_CREATE, _READ, _UPDATE, _DELETE = (1, "Create"), (2, "Read"), (3, "Update"), (4, "Delete")
_OF_API = {
    **dict.fromkeys(["Create", "CREATE"], _CREATE),
    **dict.fromkeys(["READ", "DESCRIBE", "DESCRIBE_CONFIGS"], _READ),
    **dict.fromkeys(["WRITE", "ALTER", "ALTER_CONFIGS"], _UPDATE),
    **dict.fromkeys(["Delete", "Remove", "Revoke", "DELETE"], _DELETE),
}
_OF_DATASTORE = {"READ": (1, "Read"), "WRITE": (5, "Write")}
LOGON, LOST = "LOGON", "LOST"
"""The operations of refusals and of losses."""
_INFORMATIONAL, _LOW, _MEDIUM = 1, 2, 3
_SUCCESS, _FAILURE = 1, 2
_UNKNOWN_USER, _USER, _TABLE = 0, 1, 3


class _Name(msgspec.Struct):
    name: str


class _User(msgspec.Struct):
    name: str
    type_id: int
    groups: list[_Name] | UnsetType = UNSET


class _Actor(msgspec.Struct):
    user: _User


class _Endpoint(msgspec.Struct):
    ip: str | UnsetType = UNSET
    name: str | UnsetType = UNSET


class _Product(msgspec.Struct):
    name: str = "lakelog"
    vendor_name: str = "lakelog"
    version: str = VERSION


class _Metadata(msgspec.Struct):
    uid: str
    event_code: str
    version: str = OCSF_VERSION
    log_name: str = AUDIT
    product: _Product = msgspec.field(default_factory=_Product)


class _Request(msgspec.Struct):
    uid: str
    data: dict[str, object] | UnsetType = UNSET


class _Api(msgspec.Struct):
    operation: str
    request: _Request | UnsetType = UNSET


class _Resource(msgspec.Struct):
    type: str
    name: str


class _Writes(msgspec.Struct):
    """The facts of a write: by partition, ranges of offsets."""

    topic_id: str
    partitions: dict[str, list[tuple[int, int]]]


class _Event(msgspec.Struct):
    """The part of OCSF that is used."""

    time: int
    class_uid: int
    class_name: str
    category_uid: int
    activity_id: int
    activity_name: str
    type_uid: int
    severity_id: int
    status_id: int
    status: str
    metadata: _Metadata
    src_endpoint: _Endpoint
    status_code: str | UnsetType = UNSET
    count: int = 1
    start_time: int | UnsetType = UNSET
    end_time: int | UnsetType = UNSET
    actor: _Actor | UnsetType = UNSET
    user: _User | UnsetType = UNSET
    api: _Api | UnsetType = UNSET
    resources: list[_Resource] | UnsetType = UNSET
    table: _Name | UnsetType = UNSET
    type_id: int | UnsetType = UNSET
    dst_endpoint: _Endpoint | UnsetType = UNSET
    unmapped: dict[str, object] | UnsetType = UNSET


def encode(record: AuditRecord) -> bytes:
    """The JSON of an event."""
    return msgspec.json.encode(_event(record))


def _event(record: AuditRecord) -> _Event:
    kind, of_class = record.kind, _CLASSES[record.kind]
    activity, caption = _activity(kind, record.operation)
    user = _user(record)
    failed = _MEDIUM if kind is AuditKind.LOSS else _LOW
    event = _Event(
        time=record.time_ms,
        class_uid=of_class.uid,
        class_name=of_class.name,
        category_uid=of_class.category,
        activity_id=activity,
        activity_name=caption,
        type_uid=of_class.uid * 100 + activity,
        severity_id=_INFORMATIONAL if record.success else failed,
        status_id=_SUCCESS if record.success else _FAILURE,
        status="Success" if record.success else "Failure",
        status_code=str(record.error_code) if record.error_code else UNSET,
        metadata=_Metadata(uid=record.uid, event_code=kind),
        src_endpoint=_endpoint(record.address),
        dst_endpoint=_Endpoint(name=record.gateway) if record.gateway else UNSET,
        count=record.count,
    )
    if record.count > 1:
        event.start_time, event.end_time = record.time_ms, record.end_ms
    if kind is AuditKind.REFUSAL:
        event.user = user
    elif kind is not AuditKind.LOSS:
        event.actor = _Actor(user)
    if of_class is _API:
        event.api = _Api(record.operation)
        if record.facts:
            event.api.request = _Request(record.uid, dict(record.facts))
    if kind is AuditKind.WRITE and record.facts:
        event.unmapped = dict(record.facts)
    if kind in (AuditKind.ACCESS, AuditKind.WRITE):
        event.table, event.type_id = _Name(record.resource_name[:NAME_MAX_CHARS]), _TABLE
    if record.resource_type:
        event.resources = [_Resource(record.resource_type, record.resource_name[:NAME_MAX_CHARS])]
    return event


def may_be(kind: AuditKind, value: bytes) -> bool:
    """Whether an event in JSON can be of this kind: False for most of the others, without decoding them."""
    return b'"%s"' % kind.encode() in value


def decode(value: bytes) -> AuditRecord:
    """The event that `encode` has written. Raises ValueError for any other value."""
    return _record_of(_DECODER.decode(value))


def flaw(value: bytes, timestamp_us: int | None) -> str | None:
    """The problem of a record of `__audit`, as what follows "the event …"; None for one as `encode` has
    written it. Versions may be others, and a writer may add fields.
    """
    try:
        event = _DECODER.decode(value)
        record = _record_of(event)
        due = _event(record)
    except ValueError as error:  # those of msgspec are, too
        return f"cannot be read ({error})"
    due.metadata.version = event.metadata.version
    due.metadata.product.version = event.metadata.product.version
    for name in event.__struct_fields__:
        if getattr(event, name) != getattr(due, name):
            return f"has a {name} that does not fit the rest of it"
    if event.time * 1000 != timestamp_us:
        return f"is of {event.time}, and its record has another time"
    if record.count < 1 or min(record.time_ms, record.end_ms) < 0:
        return f"is {record.count} times from {record.time_ms} to {record.end_ms}"
    if record.principal == "" or not _UID.fullmatch(record.uid):
        return f"has the principal {record.principal!r} and the id {record.uid[:40]!r}"
    return _flaw_of_writes(record) if record.kind is AuditKind.WRITE else None


def writes_of(record: AuditRecord) -> tuple[str, dict[int, list[tuple[int, int]]]]:
    """The id of the topic of an event `write`, and by partition the ranges (first, last) of offsets that it
    tells. Raises ValueError.
    """
    try:
        facts = msgspec.convert(record.facts, _Writes)
        return facts.topic_id, {int(partition): ranges for partition, ranges in facts.partitions.items()}
    except ValueError as error:  # those of msgspec are, too
        raise ValueError(f"it tells no ranges of offsets: {error}") from None


def _flaw_of_writes(record: AuditRecord) -> str | None:
    try:
        topic_id, partitions = writes_of(record)
    except ValueError as error:
        return f"cannot be read ({error})"
    count = sum(last - first + 1 for ranges in partitions.values() for first, last in ranges)
    if record.principal is None or not topic_id or count != record.count:
        return f"tells of {count} records, and says {record.count}, by {record.principal} to {topic_id!r}"
    for ranges in partitions.values():
        begins = 0
        for first, last in ranges:
            if not begins <= first <= last:
                return f"has the range {first} to {last}, which does not follow the one before"
            begins = last + 2  # one that follows at once is the same range
    return None


def _record_of(event: _Event) -> AuditRecord:
    user = event.user or (event.actor.user if event.actor else None)
    resource = event.resources[0] if event.resources else None
    known = user is not None and user.type_id != _UNKNOWN_USER
    return AuditRecord(
        uid=event.metadata.uid,
        kind=AuditKind(event.metadata.event_code),
        time_ms=event.time,
        operation=event.api.operation if event.api else event.activity_name.upper(),
        principal=user.name if known and user else None,
        groups=[group.name for group in user.groups or ()] if user else (),
        address=event.src_endpoint.ip or event.src_endpoint.name or "",
        resource_type=resource.type if resource else "",
        resource_name=resource.name if resource else (event.table.name if event.table else ""),
        success=event.status == "Success",
        error_code=int(event.status_code or 0),
        count=event.count,
        end_ms=event.end_time or 0,
        facts=_facts(event),
        gateway=(event.dst_endpoint.name or "") if event.dst_endpoint else "",
    )


def _facts(event: _Event) -> Mapping[str, object]:
    asked = event.api.request.data if event.api and event.api.request else event.unmapped
    return asked or {}


def _activity(kind: AuditKind, operation: str) -> tuple[int, str]:
    """The number and the name of an activity in the class of its event."""
    match kind:
        case AuditKind.REFUSAL:
            return 1, "Logon"
        case AuditKind.LOSS:
            return _OTHER[0], "Lost"
        case AuditKind.ACCESS | AuditKind.WRITE:
            return _OF_DATASTORE.get(operation, _OTHER)
        case AuditKind.DENIAL:
            return _OF_API.get(operation, _OTHER)
    return next((found for verb, found in _OF_API.items() if operation.startswith(verb)), _UPDATE)


def _user(record: AuditRecord) -> _User:
    if record.principal is None:
        return _User("unknown", _UNKNOWN_USER)
    named = [_Name(name[:NAME_MAX_CHARS]) for name in record.groups[:GROUPS_MAX]]
    return _User(record.principal[:NAME_MAX_CHARS], _USER, named or UNSET)


def _endpoint(address: str) -> _Endpoint:
    """An IP address, or the name of a machine."""
    try:
        return _Endpoint(ip=str(ip_address(address)))
    except ValueError:
        return _Endpoint(name=address[:NAME_MAX_CHARS])


def row_of(value: bytes) -> dict[str, object]:
    """The columns of an event that `encode` has written, by name; `event` is all of it.

    Raises msgspec.MsgspecError for any other value.
    """
    event = _DECODER.decode(value)
    user = event.user or (event.actor.user if event.actor else None)
    resource = event.resources[0] if event.resources else None
    return {
        "time": event.time * 1000,
        "kind": event.metadata.event_code,
        "principal": user.name if user and user.type_id != _UNKNOWN_USER else None,
        "address": event.src_endpoint.ip or event.src_endpoint.name or None,
        "operation": event.api.operation if event.api else event.activity_name.upper(),
        "resource_type": resource.type if resource else None,
        "resource_name": resource.name if resource else None,
        "outcome": event.status,
        "error_code": int(event.status_code) if event.status_code else None,
        "count": event.count,
        "gateway": (event.dst_endpoint.name or None) if event.dst_endpoint else None,
        "event": value.decode(),
    }


_DECODER = msgspec.json.Decoder(_Event)
