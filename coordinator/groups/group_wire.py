"""Requests of Kafka's clients to a group, as bodies between gateways: events, and what came of them. Pure."""

from typing import get_args

import msgspec

from coordinator.groups.classic.events import (
    CommitOffsets,
    DeleteOffsets,
    EndPending,
    GroupHeartbeat,
    JoinAnswer,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    PendOffsets,
    SyncAnswer,
    SyncGroup,
)
from coordinator.groups.events import Configure, ConsumerHeartbeat, Delete, HeartbeatAnswer
from log_tables.errors import Detail, InvalidArgument, LakelogError, error_named
from log_tables.topic_partition import TopicPartition

Forwarded = (
    JoinGroup
    | SyncGroup
    | GroupHeartbeat
    | LeaveGroup
    | ConsumerHeartbeat
    | Configure
    | CommitOffsets
    | PendOffsets
    | EndPending
    | DeleteOffsets
    | Delete
)
Refused = dict[TopicPartition, LakelogError]
Result = JoinAnswer | SyncAnswer | LeaveAnswer | HeartbeatAnswer | Refused | None

_EVENTS: dict[str, type[Forwarded]] = {kind.__name__: kind for kind in get_args(Forwarded)}


class _Request(msgspec.Struct, array_like=True):
    group: str
    kind: str
    event: msgspec.Raw


class _Error(msgspec.Struct, array_like=True):
    code: str
    message: str
    details: dict[str, Detail]


class _Outcome(msgspec.Struct, omit_defaults=True):
    """One of these; none of them for an event that has no answer."""

    error: _Error | None = None
    joined: JoinAnswer | None = None
    synced: SyncAnswer | None = None
    heard: HeartbeatAnswer | None = None
    left: list[_Error | None] | None = None
    refused: list[tuple[TopicPartition, _Error]] | None = None


_requests = msgspec.msgpack.Decoder(_Request)
_outcomes = msgspec.msgpack.Decoder(_Outcome)


def encode_event(group_id: str, event: Forwarded) -> bytes:
    """An event of a group as one body."""
    raw = msgspec.Raw(msgspec.msgpack.encode(event))
    return msgspec.msgpack.encode(_Request(group_id, type(event).__name__, raw))


def decode_event(body: bytes) -> tuple[str, Forwarded]:
    """The group and the event of such a body. Raises InvalidArgument for any other."""
    try:
        asked = _requests.decode(body)
        return asked.group, msgspec.msgpack.decode(asked.event, type=_EVENTS[asked.kind])
    except (msgspec.MsgspecError, KeyError):
        raise InvalidArgument("the body is not what gateways send; use the public API") from None


def encode_result(result: Result | LakelogError) -> bytes:
    """The body that says the result of an event."""
    match result:
        case LakelogError():
            made = _Outcome(_error(result))
        case JoinAnswer():
            made = _Outcome(joined=result)
        case SyncAnswer():
            made = _Outcome(synced=result)
        case HeartbeatAnswer():
            made = _Outcome(heard=result)
        case LeaveAnswer():
            made = _Outcome(left=[None if error is None else _error(error) for error in result.errors])
        case None:
            made = _Outcome()
        case _:
            made = _Outcome(refused=[(at, _error(error)) for at, error in result.items()])
    return msgspec.msgpack.encode(made)


def decode_result(body: bytes) -> Result:
    """The result in such a body. Raises the error that it says; ValueError for any other body."""
    found = _outcomes.decode(body)
    if found.error is not None:
        raise _raised(found.error)
    if found.left is not None:
        return LeaveAnswer(tuple(None if each is None else _raised(each) for each in found.left))
    if found.refused is not None:
        return {at: _raised(error) for at, error in found.refused}
    return found.joined or found.synced or found.heard


def _error(error: LakelogError) -> _Error:
    return _Error(error.code, error.message, error.details)


def _raised(error: _Error) -> LakelogError:
    return error_named(error.code, error.message, error.details)
