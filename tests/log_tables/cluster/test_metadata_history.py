"""Versions of settings and rules: they are there for a week, whatever is compacted, and can be had again."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from jobs import key_compaction, segment_compaction
from jobs.state import look
from log_tables.clock import ManualClock
from log_tables.cluster.admin.audit_log import append_events, keep_audit_topic
from log_tables.cluster.admin.changed_by import TOPIC_CHANGES, changed_by
from log_tables.cluster.admin.security_admin import (
    add_acls,
    add_super_user,
    alter_quotas,
    remove_acls,
    replace_acls,
    replace_quotas,
)
from log_tables.cluster.admin.topic_admin import (
    add_partitions,
    alter_topic,
    change_config,
    create_topic,
    delete_topic,
    reverted,
)
from log_tables.cluster.audit_record import AuditKind, AuditRecord
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_history import (
    AccessHistory,
    Difference,
    TopicEvent,
    TopicHistory,
    access_history,
    topic_history,
)
from log_tables.errors import Conflict, InvalidConfig, NotFound, OffsetOutOfRange
from log_tables.layout import CLUSTER_METADATA
from log_tables.limits import METADATA_HISTORY_MS, MIB
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from log_tables.testing import Crash, Fault, FaultyStore, crash_after, crash_before
from tests.kit.acls import acl
from tests.kit.clusters import another
from tests.kit.engines import in_process
from tests.kit.failures import before

DAY_MS = 24 * 60 * 60 * 1000
READ, WRITTEN, MAIL = acl("flights"), acl("cargo", "User:bob"), acl("mail")


def history(cluster: Cluster, name: str = "t") -> TopicHistory:
    cluster.refresh()
    return topic_history(cluster.metadata_log.partition, name)


def rules(cluster: Cluster) -> AccessHistory:
    cluster.refresh()
    return access_history(cluster.metadata_log.partition)


def maintained(cluster: Cluster, now_ms: int) -> int:
    """The metadata log merged and compacted by the jobs; returns how many compactions were due."""
    for job in (segment_compaction, key_compaction):
        states = [state for state in look(cluster)[0] if state.topic == CLUSTER_METADATA]
        steps = (
            job.plan(states, now_ms) if job is segment_compaction else key_compaction.plan(states, now_ms, 1)
        )
        outcomes = [*job.run(in_process, cluster, steps)]
        assert [each.error for each in outcomes if each.error] == []
    return len(steps)


def test_each_change_of_a_topic_is_a_version(cluster: Cluster, clock: ManualClock) -> None:
    create_topic(cluster, "t", 1, {"retention.ms": "5"})
    clock.advance(DAY_MS)
    alter_topic(cluster, "t", {"retention.ms": None, "retention.bytes": "7"})
    add_partitions(cluster, "t", 2)
    delete_topic(cluster, "t")
    create_topic(cluster, "other")
    found = history(cluster)
    assert [each.event for each in found.versions] == ["created", "altered", "grown", "deleted"]
    altered = found.versions[1]
    assert altered.changes == (
        Difference("retention.bytes", None, "7"),
        Difference("retention.ms", "5", None),
    )
    assert altered.at_ms == clock.now_ms()
    assert found.since_ms == 0
    assert found.find(None, clock.now_ms() - 1) == found.versions[0]
    assert found.find(altered.version, None) == altered
    create_topic(cluster, "t", 1)
    with pytest.raises(NotFound, match="of an earlier topic"):
        history(cluster).find(altered.version, None)
    with pytest.raises(NotFound, match="no version 99"):
        found.find(99, None)
    with pytest.raises(
        OffsetOutOfRange, match=r"was nothing of topic 't' yet: .* begins at 20.*; name a later"
    ):
        found.find(None, 1)
    with pytest.raises(NotFound, match="no history"):
        history(cluster, "nobody")


def test_earlier_settings_come_again_by_one_alteration_and_what_cannot_be_is_refused(
    cluster: Cluster,
) -> None:
    create_topic(cluster, "t", 1, {"retention.ms": "5", "value.columns": "a BIGINT"})
    alter_topic(cluster, "t", {"retention.ms": "6", "retention.bytes": "7"})
    created, altered = history(cluster).versions
    change_config(cluster, "t", reverted(created.record.configs))
    assert dict(cluster.topic("t").config.overrides) == created.record.configs
    assert history(cluster).versions[-1].record.configs == created.record.configs
    change_config(cluster, "t", reverted(altered.record.configs))
    with pytest.raises(InvalidConfig, match=r"no\.such"):
        change_config(cluster, "t", reverted({"no.such": "1"}))
    assert dict(cluster.topic("t").config.overrides) == altered.record.configs
    assert check(cluster.store).problems == []


def test_two_who_revert_at_once_take_turns(cluster: Cluster) -> None:
    create_topic(cluster, "t", 1)
    alter_topic(cluster, "t", {"retention.ms": "6"})
    first, second = history(cluster).versions
    other = another(cluster)
    change_config(other, "t", reverted({"retention.bytes": "7"}))
    change_config(cluster, "t", reverted(first.record.configs))
    assert dict(another(cluster).topic("t").config.overrides) == {}, "it is decided on the newest settings"
    assert second.record.configs == {"retention.ms": "6"}


def test_rules_of_one_append_are_one_version(cluster: Cluster, clock: ManualClock) -> None:
    log = cluster.metadata_log
    add_acls(log, [READ, WRITTEN])
    clock.advance(1)
    alter_quotas(log, {"User:ann": {"request_rate": 5.0}})
    clock.advance(1)
    remove_acls(log, lambda each: each == READ)
    found = rules(cluster)
    none, both, quota, fewer = found.versions
    assert (none.version, none.changes) == (-1, ())
    assert both.changes == (Difference(str(WRITTEN), None, "there"), Difference(str(READ), None, "there"))
    assert quota.changes == (Difference("quota of User:ann", None, "request_rate=5"),)
    assert fewer.changes == (Difference(str(READ), "there", None),)
    assert [found.rules(each).acls for each in (none, both, fewer)] == [{*()}, {READ, WRITTEN}, {WRITTEN}]
    assert found.find(None, clock.now_ms() - 1) == quota


def test_acls_are_replaced_by_one_append_and_super_users_stay(cluster: Cluster) -> None:
    log = cluster.metadata_log
    add_acls(log, [READ, WRITTEN])
    add_super_user(log, "User:ann")
    end = log.partition.high_watermark
    assert replace_acls(log, [READ, MAIL]) == ([MAIL], [WRITTEN])
    assert log.partition.high_watermark == end + 2
    assert log.access.super_users == {"User:ann"}
    assert replace_acls(log, [READ, MAIL]) == ([], [])

    def refuse(_rules: object) -> None:
        raise Conflict("not so")

    with pytest.raises(Conflict):
        replace_acls(log, [], refuse)
    assert another(cluster).metadata_log.access.acls == {READ, MAIL}
    alter_quotas(log, {"User:ann": {"request_rate": 5.0}})
    then = dict(log.access.quotas)
    alter_quotas(log, {"User:ann": {"request_rate": 6.0}, "User:bob": {"request_rate": 1.0}})
    assert [*replace_quotas(log, then)] == ["User:ann", "User:bob"]
    assert another(cluster).metadata_log.access.quotas == then


def test_acls_are_replaced_on_the_newest_state_when_another_is_first(
    store: object, clock: ManualClock
) -> None:
    root = open_store("memory://")
    first = Cluster.open(root, clock)
    add_acls(first.metadata_log, [READ])
    racing = Cluster.open(
        FaultyStore(root, [Fault(2, before(lambda: add_acls(another(first).metadata_log, [MAIL])))]), clock
    )
    replace_acls(racing.metadata_log, [WRITTEN])
    assert another(first).metadata_log.access.acls == {WRITTEN}


@pytest.mark.parametrize("failure", [crash_before, crash_after])
def test_a_revert_that_dies_at_any_write_is_made_whole_or_not_at_all(
    clock: ManualClock, failure: object
) -> None:
    for nth in range(1, 20):
        root = open_store("memory://")
        log = Cluster.open(root, clock).metadata_log
        add_acls(log, [READ, WRITTEN])
        try:
            replace_acls(Cluster.open(FaultyStore(root, [Fault(nth, failure)]), clock).metadata_log, [MAIL])  # type: ignore[arg-type]
        except Crash:
            pass
        else:
            break
        found = Cluster.open(root, clock, "http://second").metadata_log.access.acls
        assert found in ({READ, WRITTEN}, {MAIL})
    else:
        pytest.fail("it never ended")


def test_a_week_of_versions_outlives_every_compaction(store_root: Path, clock: ManualClock) -> None:
    cluster = Cluster.open(open_store(store_root), clock, "http://first")
    create_topic(cluster, "t", 1)
    compactions = 0
    for day in range(20):
        alter_topic(cluster, "t", {"retention.ms": str(day + 1)})
        replace_acls(cluster.metadata_log, [acl(f"day-{day}")])
        cluster.metadata_log.register_broker(f"http://{day}")
        compactions += maintained(cluster, clock.now_ms())
        clock.advance(DAY_MS)
        found, access = history(cluster), rules(cluster)
        kept = range(max(0, day - METADATA_HISTORY_MS // DAY_MS + 1), day + 1)
        for each in kept:
            at_ms = clock.now_ms() - (day - each) * DAY_MS - 1
            assert found.find(None, at_ms).record.configs == {"retention.ms": str(each + 1)}
            assert access.rules(access.find(None, at_ms)).acls == {acl(f"day-{each}")}
        assert found.since_ms <= clock.now_ms() - METADATA_HISTORY_MS
    assert compactions, "the log is compacted"
    assert found.versions[0].event is TopicEvent.KEPT
    assert found.since_ms > 0
    assert access.rules(access.versions[0]).acls, "the first version stands for all before it"
    with pytest.raises(OffsetOutOfRange, match="complete since"):
        access.find(None, access.versions[0].at_ms - 1)
    assert check(cluster.store).problems == []


def test_a_log_that_is_too_large_for_a_start_keeps_less_and_says_so(
    store_root: Path, clock: ManualClock
) -> None:
    cluster = Cluster.open(open_store(store_root), clock, "http://first")
    create_topic(cluster, "t", 1)
    gateway = cluster.metadata_log.register_broker("http://a")
    wide = {f"topic-{number}": [*range(2_000)] for number in range(400)}
    for round_ in range(30):
        clock.advance(DAY_MS // 24)
        alter_topic(cluster, "t", {"retention.ms": str(round_ + 1)})
        cluster.metadata_log.publish_broker(replace(gateway, leads=wide, rack=str(round_)))
    clock.advance(DAY_MS // 24)
    assert maintained(cluster, clock.now_ms()), "it is compacted, although nothing is a week old"
    found = history(cluster)
    assert clock.now_ms() - DAY_MS < found.since_ms < clock.now_ms() - 5 * DAY_MS // 24
    kept = [each.record.configs["retention.ms"] for each in found.versions if each.at_ms > found.since_ms]
    assert kept == [str(number) for number in range(31 - len(kept), 31)], "none of them is missing"
    assert sum(each.raw_bytes for each in cluster.metadata_log.partition.snapshot.segments) < 80 * MIB
    assert maintained(cluster, clock.now_ms()) == 0


def test_the_principal_is_that_of_the_nearest_event(cluster: Cluster, clock: ManualClock) -> None:
    assert changed_by(cluster, [clock.now_ms()], TOPIC_CHANGES, "t") == {}
    keep_audit_topic(cluster, {})
    made = AuditRecord(
        uid="0" * 32,
        kind=AuditKind.CHANGE,
        time_ms=clock.now_ms() + 50,
        operation="AlterConfigs",
        principal="User:ann",
        resource_type="TOPIC",
        resource_name="t",
    )
    other = replace(made, principal="User:bob", resource_name="u", time_ms=clock.now_ms() + 1)
    failed = replace(made, principal="User:eve", success=False)
    append_events(cluster, [other, failed, made])
    at_ms = clock.now_ms()
    assert changed_by(cluster, [at_ms, at_ms - DAY_MS], TOPIC_CHANGES, "t") == {at_ms: "User:ann"}
