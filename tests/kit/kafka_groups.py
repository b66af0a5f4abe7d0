"""The requests of members to their groups, as a test sends them itself."""

from itertools import count
from typing import Any

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from coordinator.groups.classic.consumer_protocol import encode_assignment, encode_subscription
from log_tables.topic_partition import TopicPartition
from tests.kit.kafka_asking import Asker

_NUMBERS = count(1)


def unique(prefix: str) -> str:
    """A name that no other test has, in one process."""
    return f"{prefix}-of-groups-{next(_NUMBERS)}"


def join(group: str, member: str = "", **asked: Any) -> JoinGroupRequest:
    """A JoinGroup of a consumer of one topic, which has the group's name."""
    metadata = encode_subscription([f"topic-{group}"])
    return JoinGroupRequest(
        **{
            "group_id": group,
            "member_id": member,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name="range", metadata=metadata)],
            **asked,
        }
    )


def joined(asking: Asker, group: str, **asked: Any) -> Any:
    """The answer to a new member, which comes twice."""
    first = asking.ask(join(group, **asked))
    if first.error_code != ErrorCode.MEMBER_ID_REQUIRED:
        return first
    return asking.ask(join(group, first.member_id, **asked))


def sync(group: str, answer: Any, **asked: Any) -> SyncGroupRequest:
    """A SyncGroup that gives the member that sends it the topic's only partition."""
    assigned = encode_assignment([TopicPartition(f"topic-{group}", 0)])
    own = SyncGroupRequestAssignment(member_id=answer.member_id, assignment=assigned)
    return SyncGroupRequest(
        group_id=group,
        generation_id=answer.generation_id,
        member_id=answer.member_id,
        assignments=[own],
        **asked,
    )


def heartbeat(group: str, answer: Any, generation: int | None = None) -> HeartbeatRequest:
    """A Heartbeat of the member that was answered so."""
    shown = answer.generation_id if generation is None else generation
    return HeartbeatRequest(group_id=group, generation_id=shown, member_id=answer.member_id)
