"""Small changes of the records of a root's own logs, generated: each is named, or listed with the reason why
not.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import pytest

from log_tables.cluster.access_record import (
    Quota,
    acl_record,
    quota_record,
    security_record,
    super_user_record,
)
from log_tables.cluster.acl import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from log_tables.cluster.audit_record import AuditKind, AuditRecord, encode
from log_tables.cluster.credential import ApiKeyRecord, ScramCredential, ScramUserRecord
from log_tables.cluster.credential_log import api_key_record, revocations, use_record, user_record
from log_tables.cluster.group_log import encode as group_record
from log_tables.cluster.metadata_log import (
    BrokerLeft,
    BrokerRecord,
    DeletedTopic,
    MirroredFrom,
    MirrorRecord,
    MirrorRemoved,
    TopicRecord,
)
from log_tables.cluster.metadata_log import encode as metadata_record
from log_tables.errors import CorruptLog
from log_tables.key_hash import MURMUR3, partition_for_key
from log_tables.record import Record
from log_tables.root.access_history import CredentialHistory, check_events
from log_tables.root.group_history import GroupHistory
from log_tables.root.topic_history import TopicHistory
from tests.kit.harmless import RECORDS
from tests.kit.healthy_root import GROUP, group_records
from tests.kit.mutations import Name, of_value

ID, OTHER_ID = "1" * 32, "2" * 32
TOPIC = TopicRecord("t", ID, 1, 2, {"retention.ms": "1000", "value.columns": "n bigint"}, columns="n bigint")
KEPT = TopicRecord("k", "4" * 32, 1, 2, {})
BROKER = BrokerRecord(1, "http://a", ID, 1_000, {}, False, (ID,), True, "a:9092")
ALLOW = Acl(
    ResourceType.CLUSTER,
    CLUSTER_NAME,
    PatternType.LITERAL,
    "User:ann",
    "10.0.0.7",
    Operation.ALTER,
    Permission.ALLOW,
)

MIRROR = MirrorRecord(
    "m", "a:9092", ("c", "^x.*"), ("^g.*",), "/etc/kafka.conf", "cluster", records_gaps=True, created_ms=7
)
COPY = TopicRecord("c", OTHER_ID, 1, 1, {}, mirrored=MirroredFrom("m", "c", "3" * 32))
STOPPED = MirroredFrom("m", "c", "3" * 32, "the source is gone")

METADATA = {
    "topic": metadata_record(TOPIC),
    "topic altered": metadata_record(
        msgspec.structs.replace(TOPIC, configs={}, columns="n bigint, m string")
    ),
    "topic deleted": metadata_record(
        msgspec.structs.replace(TOPIC, live=False, columns="n bigint, m string", deleted={1: 9})
    ),
    "topic to keep": metadata_record(KEPT),
    "topic kept": metadata_record(
        msgspec.structs.replace(
            KEPT, live=False, deleted={1: 9}, kept={1: DeletedTopic(KEPT.topic_id, 2, {})}
        )
    ),
    "topic back": metadata_record(msgspec.structs.replace(KEPT, revived=1)),
    "gateway": metadata_record(BROKER),
    "gateway that leads": metadata_record(msgspec.structs.replace(BROKER, leads={"t": [0, 1]})),
    "gateway that left": metadata_record(BrokerLeft(1)),
    "mirror": metadata_record(MIRROR),
    "mirror paused": metadata_record(msgspec.structs.replace(MIRROR, paused=True)),
    "copy": metadata_record(COPY),
    "copy stopped": metadata_record(msgspec.structs.replace(COPY, mirrored=STOPPED)),
    "copy promoted": metadata_record(msgspec.structs.replace(COPY, mirrored=None)),
    "mirror deleted": metadata_record(MirrorRemoved("m")),
    "acl": acl_record(ALLOW),
    "acl removed": acl_record(ALLOW, removed=True),
    "super user": super_user_record("User:root"),
    "quota": quota_record("User:ann", Quota(producer_byte_rate=7.0, request_rate=1.5)),
    "quota removed": quota_record("User:ann", None),
    "security": security_record(True),
}
"""A history of a metadata log, a record of each kind at least."""

USER = ScramUserRecord("bob", {"SCRAM-SHA-256": ScramCredential(b"salt", 4_096, b"s" * 32, b"k" * 32)})
CREDENTIALS = {
    "key": api_key_record(ApiKeyRecord("a", "User:ann", b"#" * 32, 1_000, 9_000)),
    "use": use_record("a", 2_000),
    "later use": use_record("a", 5_000),
    "key revoked": revocations("a")[0],
    "use revoked": revocations("a")[1],
    "user": user_record("bob", USER),
    "user removed": user_record("bob", None),
}

SEEN = AuditRecord(
    uid=ID,
    kind=AuditKind.CHANGE,
    time_ms=1_000,
    operation="CreateTopics",
    principal="User:ann",
    groups=["Group:ops"],
    address="10.0.0.7",
    resource_type="TOPIC",
    resource_name="t",
    facts={"partitions": 2},
    gateway="http://a",
)
EVENTS = {
    "change": SEEN,
    "denial": msgspec.structs.replace(
        SEEN,
        kind=AuditKind.DENIAL,
        operation="READ",
        success=False,
        error_code=29,
        count=3,
        end_ms=2_000,
        facts={},
    ),
    "refusal": msgspec.structs.replace(
        SEEN,
        kind=AuditKind.REFUSAL,
        operation="LOGON",
        principal=None,
        address="a host",
        success=False,
        groups=[],
        facts={},
    ),
    "access": msgspec.structs.replace(SEEN, kind=AuditKind.ACCESS, operation="WRITE", facts={}),
    "write": msgspec.structs.replace(
        SEEN,
        kind=AuditKind.WRITE,
        operation="WRITE",
        count=4,
        end_ms=2_000,
        facts={"topic_id": ID, "partitions": {"0": [[0, 1], [4, 4]], "2": [[9, 9]]}},
    ),
    "loss": AuditRecord(
        uid=ID, kind=AuditKind.LOSS, time_ms=1_000, operation="LOST", success=False, count=2, end_ms=1_000
    ),
}


def of_metadata(log: Sequence[Record]) -> list[str]:
    history = TopicHistory()
    for record in log:
        history.take(record)
    return history.problems


def of_credentials(log: Sequence[Record]) -> list[str]:
    history = CredentialHistory()
    for record in log:
        history.take(record)
    return history.problems


def of_events(log: Sequence[Record]) -> list[str]:
    return [*check_events(log)]


def of_groups(log: Sequence[Record]) -> list[str]:
    topics = TopicHistory()
    topics.take(METADATA["topic"])
    number = partition_for_key(GROUP.encode(), 2, MURMUR3)
    history = GroupHistory("groups", number, 2, True, topics, {})
    for record in log:
        history.take(record)
    return history.problems


Check = Callable[[Sequence[Record]], list[str]]
LOGS: Mapping[str, tuple[Check, Mapping[str, Record]]] = {
    "metadata": (of_metadata, METADATA),
    "credentials": (of_credentials, CREDENTIALS),
    "audit": (
        of_events,
        {name: Record(encode(event), timestamp_us=event.time_ms * 1000) for name, event in EVENTS.items()},
    ),
    "groups": (
        of_groups,
        {type(value).__name__: group_record(key, value) for key, value in group_records(ID)},
    ),
}


def changes(record: Record) -> Iterator[tuple[str, str, Record]]:
    """(Field, how, the record then) for each small change of a record."""
    key, value = record.key, record.value
    if key is not None:
        forged = key[:-1] + (b"0" if key[-1:] != b"0" else b"1")
        yield "key", "forged", msgspec.structs.replace(record, key=forged)
        yield "key", "missing", msgspec.structs.replace(record, key=None)
    if value is None:
        yield "value", "forged", msgspec.structs.replace(record, value=b"{}")
        return
    yield "value", "missing", msgspec.structs.replace(record, value=None)
    for field, how, changed in of_value({"value": json.loads(value)}):
        if isinstance(changed, dict) and "value" in changed:
            made = msgspec.json.encode(changed["value"])
            yield field.removeprefix("value."), how, msgspec.structs.replace(record, value=made)


def histories(log: str, records: Mapping[str, Record]) -> Iterator[tuple[Name, list[Record]]]:
    """Each small change of a log of these records, and the log then."""
    whole = [msgspec.structs.replace(record, offset=at) for at, record in enumerate(records.values())]
    for at, name in enumerate(records):
        yield Name(log, name, "", "missing"), whole[:at] + whole[at + 1 :]
        yield Name(log, name, "", "doubled"), [*whole[: at + 1], *whole[at:]]
        for field, how, record in changes(whole[at]):
            yield Name(log, name, field, how), [*whole[:at], record, *whole[at + 1 :]]


def is_named(check: Check, log: Sequence[Record]) -> bool:
    try:
        return bool(check(log))
    except CorruptLog:
        return True


@pytest.mark.parametrize("log", LOGS)
def test_each_change_of_each_record_is_named_or_known_to_be_free(log: str) -> None:
    check, records = LOGS[log]
    assert check([*records.values()]) == []
    unnamed = {name for name, changed in histories(log, records) if not is_named(check, changed)}
    assert unnamed == {name for name in RECORDS if name.log == log}
