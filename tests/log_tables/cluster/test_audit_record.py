"""The events of the audit log, in the shape of OCSF."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_tables.cluster.audit_record import (
    GROUPS_MAX,
    LOGON,
    LOST,
    NAME_MAX_CHARS,
    AuditKind,
    AuditRecord,
    encode,
    row_of,
)

UID = "52e8d279e3a265643e41039e6c7e1c87"
CHANGE = AuditRecord(
    uid=UID,
    kind=AuditKind.CHANGE,
    time_ms=1_795_418_323_846,
    operation="CreateTopics",
    principal="User:ann",
    groups=("Group:all",),
    address="10.0.0.7",
    resource_type="TOPIC",
    resource_name="orders",
    facts={"partitions": 2},
    gateway="https://log",
)
REQUIRED = {
    *("time", "class_uid", "category_uid", "activity_id", "type_uid", "severity_id", "metadata"),
    *("status_id", "src_endpoint"),
}
"""What OCSF wants of each event."""


def about(kind: AuditKind, operation: str) -> AuditRecord:
    return msgspec.structs.replace(
        CHANGE, kind=kind, operation=operation, facts={}, success=False, error_code=1
    )


EVENTS = [
    (CHANGE, 600301, "Create", {"actor", "api", "resources"}),
    (about(AuditKind.CHANGE, "DeleteAcls"), 600304, "Delete", {"actor", "api", "resources"}),
    (about(AuditKind.CHANGE, "RevokeApiKey"), 600304, "Delete", {"actor", "api", "resources"}),
    (about(AuditKind.CHANGE, "AlterConfigs"), 600303, "Update", {"actor", "api", "resources"}),
    (about(AuditKind.DENIAL, "DESCRIBE"), 600302, "Read", {"actor", "api", "resources"}),
    (about(AuditKind.DENIAL, "WRITE"), 600303, "Update", {"actor", "api", "resources"}),
    (about(AuditKind.DENIAL, "CLUSTER_ACTION"), 600399, "Other", {"actor", "api", "resources"}),
    (about(AuditKind.REFUSAL, LOGON), 300201, "Logon", {"user"}),
    (about(AuditKind.ACCESS, "READ"), 600501, "Read", {"actor", "table"}),
    (about(AuditKind.ACCESS, "WRITE"), 600505, "Write", {"actor", "table"}),
    (about(AuditKind.WRITE, "WRITE"), 600505, "Write", {"actor", "table"}),
    (about(AuditKind.LOSS, LOST), 100899, "Lost", {"count"}),
]


@pytest.mark.parametrize(("record", "type_uid", "activity", "fields"), EVENTS)
def test_an_event_has_the_class_of_its_kind(
    record: AuditRecord, type_uid: int, activity: str, fields: set[str]
) -> None:
    found = json.loads(encode(record))
    assert (found["type_uid"], found["activity_name"]) == (type_uid, activity)
    assert found["type_uid"] == found["class_uid"] * 100 + found["activity_id"]
    assert found["class_uid"] // 1000 == found["category_uid"]
    assert found.keys() >= REQUIRED | fields
    assert found["metadata"]["version"] == "1.3.0"
    assert found["metadata"]["product"]["name"] == "lakelog"
    assert (found["status_id"], found["status"]) == ((1, "Success") if record.success else (2, "Failure"))


def test_a_change_says_what_was_asked_for() -> None:
    found = json.loads(encode(CHANGE))
    assert found["actor"] == {"user": {"name": "User:ann", "type_id": 1, "groups": [{"name": "Group:all"}]}}
    assert found["api"] == {"operation": "CreateTopics", "request": {"uid": UID, "data": {"partitions": 2}}}
    assert found["resources"] == [{"type": "TOPIC", "name": "orders"}]
    assert (found["src_endpoint"], found["dst_endpoint"]) == ({"ip": "10.0.0.7"}, {"name": "https://log"})
    assert not {"start_time", "end_time", "status_code"} & found.keys()


def test_events_that_are_counted_say_from_when_to_when() -> None:
    record = msgspec.structs.replace(about(AuditKind.DENIAL, "READ"), count=7, end_ms=CHANGE.time_ms + 5)
    found = json.loads(encode(record))
    assert (found["count"], found["end_time"] - found["start_time"]) == (7, 5)
    assert row_of(encode(record))["count"] == 7


def test_nobody_is_named_where_nobody_is_known() -> None:
    record = msgspec.structs.replace(about(AuditKind.REFUSAL, LOGON), principal=None, groups=())
    assert json.loads(encode(record))["user"] == {"name": "unknown", "type_id": 0}
    assert row_of(encode(record))["principal"] is None


def test_a_command_has_the_name_of_its_machine() -> None:
    record = msgspec.structs.replace(CHANGE, address="laptop", gateway="")
    found = json.loads(encode(record))
    assert found["src_endpoint"] == {"name": "laptop"}
    assert "dst_endpoint" not in found
    row = row_of(encode(record))
    assert (row["address"], row["gateway"]) == ("laptop", None)


def test_names_and_groups_of_any_length_are_cut() -> None:
    record = msgspec.structs.replace(
        CHANGE, resource_name="x" * 10_000, principal="User:" + "y" * 10_000, groups=("Group:z",) * 1_000
    )
    found = json.loads(encode(record))
    assert len(found["resources"][0]["name"]) == len(found["actor"]["user"]["name"]) == NAME_MAX_CHARS
    assert len(found["actor"]["user"]["groups"]) == GROUPS_MAX
    assert len(encode(record)) < 4_000


NAME = st.text(max_size=20)


@given(st.sampled_from(AuditKind), st.sampled_from(["READ", "WRITE"]), NAME, NAME, NAME, st.booleans())
def test_a_row_has_what_its_record_has(
    kind: AuditKind, operation: str, principal: str, name: str, address: str, success: bool
) -> None:
    record = AuditRecord(
        uid=UID,
        kind=kind,
        time_ms=5,
        operation={AuditKind.REFUSAL: LOGON, AuditKind.LOSS: LOST}.get(kind, operation),
        principal=principal,
        address=address,
        resource_type="TOPIC",
        resource_name=name,
        success=success,
    )
    row = row_of(encode(record))
    assert row["kind"] == kind
    assert (row["operation"], row["time"]) == (record.operation, 5_000)
    assert (row["resource_type"], row["resource_name"]) == ("TOPIC", name)
    assert row["principal"] == (None if kind is AuditKind.LOSS else principal)
    assert row["address"] == (address or None)
    assert row["outcome"] == ("Success" if success else "Failure")
    assert json.loads(str(row["event"]))["time"] == 5


@pytest.mark.parametrize("value", [b"", b"{}", b"null", b'{"time": "x"}', b"\xff"])
def test_what_is_no_event_is_refused(value: bytes) -> None:
    with pytest.raises((msgspec.MsgspecError, ValueError)):
        row_of(value)
