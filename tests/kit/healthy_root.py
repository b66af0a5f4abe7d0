"""A root in which everything has happened, for changes of what it says."""

from pathlib import Path

from log_tables.clock import SystemClock
from log_tables.cluster.acl import Acl, Operation, PatternType, Permission, ResourceType
from log_tables.cluster.admin.audit_log import append_events, keep_audit_topic
from log_tables.cluster.admin.security_admin import (
    add_acls,
    add_api_key,
    add_super_user,
    alter_quotas,
    enable_security,
    note_uses,
    remove_acls,
    revoke_api_keys,
)
from log_tables.cluster.admin.topic_admin import alter_topic, create_topic, delete_topic
from log_tables.cluster.audit_record import AuditKind, AuditRecord
from log_tables.cluster.credential import ApiKeyRecord
from log_tables.cluster.credential_log import create_credentials
from log_tables.cluster.group_log import (
    Act,
    ClassicKey,
    ClassicMemberValue,
    ClassicValue,
    GroupKey,
    GroupValue,
    Key,
    MemberConfig,
    MemberKey,
    MemberValue,
    OffsetKey,
    OffsetValue,
    Retry,
    RetryKey,
    TransactionsKey,
    TransactionsValue,
    UndoKey,
    UndoValue,
    Value,
    encode,
)
from log_tables.cluster.topic_fold import fold
from log_tables.key_hash import MURMUR3, partition_for_key
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.limits import KEPT_PRODUCER_ID_MIN
from log_tables.partition.partition import AppendRequest, ProducerStamp
from log_tables.record import input_batch
from log_tables.segments import rewrite
from log_tables.store.store import Store
from tests.kit.partitions import append, entry
from tests.kit.tiers import move_topic, tiered_cluster

HERE = "topics/t/partition=0"
COMPACTED = "topics/c/partition=0"
GROUP = "readers"
ACL = Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:ann", "*", Operation.READ, Permission.ALLOW)


class HealthyRoot:
    """A root in which everything has happened, at rest."""

    def __init__(self, directory: Path) -> None:
        self.clock = SystemClock()
        self.cluster = tiered_cluster(directory, self.clock)
        self.directory = directory
        configs = {"remote.storage.enable": "true", "value.columns": "n bigint"}
        self.topic = create_topic(self.cluster, "t", 1, configs)
        self.cluster.begin_log_epoch()
        partition = self.cluster.claim(self.topic, 0)
        for number in range(6):
            append(partition, b'{"n":1}', b"b", producer=ProducerStamp(7, 0, 2 * number))
        transacted = ProducerStamp(KEPT_PRODUCER_ID_MIN, 1, 0, kept=True)
        append(partition, b"c", producer=transacted)
        fold(self.topic)
        store = self.cluster.store
        inputs = partition.snapshot.segments[2:4]
        assert rewrite.commit_merge(
            partition.table, inputs, rewrite.merge(store, HERE, inputs, "zstd", self.clock)
        )
        partition.checkpoint()
        alter_topic(self.cluster, "t", {"value.columns": "n bigint, m string"})
        declared = partition.refresh(wait=True).declared
        last = partition.snapshot.segments[-1]
        made = rewrite.retype(store, HERE, last, declared, "zstd", self.clock)
        assert rewrite.commit_retype(partition.table, [last], [made], declared)
        partition.truncate(3)
        append(partition, b"d")
        fold(self.topic)
        self.topic.table().checkpoint(0)
        move_topic(self.cluster, "t", [1])
        fold(self.topic)
        append(partition, b"e", producer=ProducerStamp(7, 0, 12))
        compacted = self.cluster.claim(create_topic(self.cluster, "c", 1, {"cleanup.policy": "compact"}), 0)
        for keys, values in (((b"k", b"l"), (b"1", b"2")), ((b"k", b"m"), (b"3", b"4")), ((b"m",), (None,))):
            compacted.append([entry(*values, keys=keys)])
        assert rewrite.compact_by_key(compacted.table, "zstd", segment_bytes=1)
        create_topic(self.cluster, "gone", 1)
        delete_topic(self.cluster, "gone")
        self._secure()
        groups = create_topic(self.cluster, CONSUMER_OFFSETS, 2, internal=True)
        self.number = partition_for_key(GROUP.encode(), 2, MURMUR3)
        self.group_log = self.cluster.claim(groups, self.number)
        said = [encode(key, value) for key, value in group_records(self.topic.topic_id)]
        self.group_log.append([AppendRequest(input_batch(said, self.clock.now_us()))])

    def _secure(self) -> None:
        log, credentials = self.cluster.metadata_log, create_credentials(self.cluster.store, self.clock, "")
        left = log.register_broker("http://left")
        log.register_broker("http://stays")
        log.remove_broker(left)
        add_acls(log, [ACL])
        remove_acls(log, lambda _: True)
        alter_quotas(log, {"User:ann": {"request_rate": 5.0}})
        add_super_user(log, "User:root")
        enable_security(log)
        now_ms = self.clock.now_ms()
        add_api_key(credentials, ApiKeyRecord("a", "User:ann", b"#" * 32, now_ms))
        note_uses(credentials, {"a": now_ms})
        revoke_api_keys(credentials, ["a"])
        keep_audit_topic(self.cluster, {})
        uid, name = self.clock.unique_id(), "User:ann"
        event = AuditRecord(
            uid=uid, kind=AuditKind.CHANGE, time_ms=now_ms, operation="CreateApiKey", principal=name
        )
        append_events(self.cluster, [event])

    @property
    def store(self) -> Store:
        return self.cluster.store


def group_records(topic_id: str) -> list[tuple[Key, Value]]:
    """A record of each kind of a group that consumes the topic `t`."""
    producer = KEPT_PRODUCER_ID_MIN
    member = ClassicMemberValue(10_000, 20_000)
    return [
        (GroupKey(GROUP), GroupValue(3, 1_700_000_000_000)),
        (
            MemberKey(GROUP, "m"),
            MemberValue(MemberConfig(), ["t"], owned={"t": [0]}, epoch=3, topic_ids={"t": topic_id}),
        ),
        (OffsetKey(GROUP, "t", 0), OffsetValue(5, topic_id, "note", 1_700_000_000_000, "m", 1)),
        (
            UndoKey(GROUP),
            UndoValue((Act("reset", 1_700_000_000_000, (("t", 0, OffsetValue(4, topic_id)),), "User:ann"),)),
        ),
        (TransactionsKey(GROUP), TransactionsValue(producer, 1)),
        (RetryKey(GROUP, "k"), Retry(1, "5d41", 1_700_000_000_000, ())),
        (ClassicKey(GROUP), ClassicValue(4, 0, "consumer", "range", "a", {"a": member})),
    ]
