"""Events of groups and what came of them, as gateways send them to one another."""

import pytest

from coordinator.access.principal import Principal, RequestContext
from coordinator.groups.classic.events import (
    CommitOffsets,
    DeleteOffsets,
    GroupHeartbeat,
    JoinAnswer,
    JoinedMember,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    LeftMember,
    SyncAnswer,
    SyncGroup,
)
from coordinator.groups.events import Delete, OffsetAndMetadata
from coordinator.groups.group_wire import (
    Forwarded,
    Result,
    decode_event,
    decode_result,
    encode_event,
    encode_result,
)
from log_tables.errors import InvalidArgument, MemberIdRequired, UnknownMember, UnknownTopic
from tests.kit.driven_group import T0

BOB = RequestContext(Principal("User:bob", ("Group:g",)), "10.0.0.1")
JOIN = JoinGroup(
    new_member_id="c-1",
    protocol_type="consumer",
    protocols=(("range", b"\x00\xff"), ("sticky", b"")),
    session_timeout_ms=1,
    instance_id="i",
    context=BOB,
)
EVENTS: list[Forwarded] = [
    JOIN,
    SyncGroup(member_id="m", generation=3, assignments={"m": b"\xfe"}),
    GroupHeartbeat("m", 3, "i"),
    LeaveGroup((LeftMember("m"), LeftMember("", "i", "why"))),
    CommitOffsets(offsets={T0: OffsetAndMetadata(1, "note")}, at_ms=2, context=BOB),
    DeleteOffsets(frozenset({T0})),
    Delete(),
]
RESULTS: list[Result] = [
    JoinAnswer(
        member_id="m",
        generation=1,
        protocol_type="consumer",
        protocol="range",
        leader="m",
        members=(JoinedMember("m", None, b"\xff"),),
        skip_assignment=True,
    ),
    SyncAnswer("consumer", "range", b""),
    LeaveAnswer((None,)),
    None,
    {},
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_arrives_as_it_was_sent(event: Forwarded) -> None:
    assert decode_event(encode_event("g", event)) == ("g", event)


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_a_result_arrives_as_it_was_sent(result: Result) -> None:
    assert decode_result(encode_result(result)) == result


def test_an_error_arrives_with_its_details() -> None:
    with pytest.raises(MemberIdRequired, match="again") as raised:
        decode_result(encode_result(MemberIdRequired("come again", member_id="c-1")))
    assert raised.value.details == {"member_id": "c-1"}


def test_the_errors_of_parts_arrive() -> None:
    left = decode_result(encode_result(LeaveAnswer((None, UnknownMember("gone")))))
    assert isinstance(left, LeaveAnswer)
    assert [type(error) for error in left.errors] == [type(None), UnknownMember]
    refused = decode_result(encode_result({T0: UnknownTopic("none")}))
    assert isinstance(refused, dict)
    assert isinstance(refused[T0], UnknownTopic)


@pytest.mark.parametrize("body", [b"", b"\x93\xa1g\xa4Else\x80", b"\x93\xa1g\xa9JoinGroup\x80", b"{}"])
def test_any_other_body_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidArgument):
        decode_event(body)
