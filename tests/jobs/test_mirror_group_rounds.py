"""The process of a mirror brings groups over while gateways die, some groups are forbidden, and many are."""

from pathlib import Path

import pytest
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from jobs.mirror import promotion
from jobs.mirror.groups import ASKED_AT_ONCE, GroupState, GroupSync
from jobs.mirror.source import Source
from lakelog.cli.mirror_gateway import GatewayOffsets
from log_tables.cluster.admin import mirror_admin
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.mirror_report import MirrorReport
from log_tables.cluster.process_report import read_report
from log_tables.layout import mirror_directory
from tests.kit.kafka import kafka_gateway
from tests.kit.kafka_broker import Broker
from tests.kit.mirror_groups import commit, committed, group_sync, produce, states
from tests.kit.mirrors import NAME, cluster, level, name, note, running, sound
from tests.kit.support import WAIT_S, wait_until

__all__ = ["cluster", "name"]


def source_of(kafka: Broker, cluster: Cluster, name: str) -> str:
    """A topic of ten records that is to be copied, with its groups."""
    kafka.create_topic(name)
    produce(kafka, name, 10)
    note(cluster, kafka, name, groups=[f"^{name}-.*"])
    return name


def reported(cluster: Cluster) -> list[int]:
    """How many offsets wait, as the processes of the mirror say."""
    listed = [each.path.rsplit("/", 1)[-1] for each in cluster.store.list(mirror_directory(NAME))]
    found = [read_report(cluster.store, mirror_directory(NAME), process, MirrorReport) for process in listed]
    return [each.offsets_behind for each in found if each is not None]


def test_offsets_wait_for_a_gateway_and_for_the_next(
    kafka: Broker, cluster: Cluster, name: str, store_root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = source_of(kafka, cluster, name), f"{name}-g"
    commit(kafka, topic, {0: 2}, group)
    with GatewayOffsets(cluster) as set_offsets, running(cluster, set_offsets=set_offsets):
        level(cluster, kafka, topic)
        with group_sync(cluster, kafka) as sync:
            assert states(sync, group) == {0: (2, None, "not set yet")}
            assert "no gateway is listed on this root" in sync.trouble
        wait_until(lambda: reported(cluster) == [1], "the process reports what waits")
        with kafka_gateway(store_root) as gateway:
            for offset in (2, 4):
                wait_until(
                    lambda offset=offset: committed(gateway.bootstrap, group) == {(topic, 0): (offset, "")},  # type: ignore[misc]
                    f"the offset {offset} is here",
                )
                gateway.kill()
                commit(kafka, topic, {0: offset + 2}, group)
                gateway.start()
            wait_until(
                lambda: committed(gateway.bootstrap, group) == {(topic, 0): (6, "")}, "the last one, too"
            )
            wait_until(lambda: "offsets of groups are set again" in caplog.text, "that is said")
    assert caplog.text.count("no gateway is listed on this root") == 1
    sound(cluster)


def test_a_group_that_is_forbidden_or_has_a_name_that_none_here_has_holds_up_no_other(
    kafka: Broker, cluster: Cluster, name: str, store_root: Path
) -> None:
    topic = source_of(kafka, cluster, name)
    groups = [f"{name}-{each}" for each in ("a", "secret", "a/b")]
    commit(kafka, topic, {0: 5}, *groups)
    denied = AclBinding(
        ResourceType.GROUP,
        groups[1],
        ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        AclOperation.DESCRIBE,
        AclPermissionType.DENY,
    )
    (done,) = kafka.admin.create_acls([denied]).values()
    done.result(WAIT_S)
    with running(cluster):
        level(cluster, kafka, topic)
    with kafka_gateway(store_root) as gateway, group_sync(cluster, kafka) as sync:
        wait_until(
            lambda: len(states(sync, groups[1])) == 1 and not sync.look(groups)[1].topic, "it is denied"
        )
        sync.round()
        assert committed(gateway.bootstrap, groups[0]) == {(topic, 0): (5, "")}
        found = {each.group: each for each in sync.look(groups)}
        assert found[groups[0]].state is GroupState.EQUAL
        assert found[groups[1]].state is GroupState.REFUSED
        assert "Group authorization failed" in found[groups[1]].reason
        assert "cannot be called" in found[groups[2]].reason


def test_many_groups_are_asked_for_in_turn(
    kafka: Broker, cluster: Cluster, name: str, store_root: Path
) -> None:
    topic = source_of(kafka, cluster, name)
    groups = [f"{name}-{number}" for number in range(ASKED_AT_ONCE + 20)]
    commit(kafka, topic, {0: 5}, *groups)
    with running(cluster):
        level(cluster, kafka, topic)
    with kafka_gateway(store_root) as gateway, group_sync(cluster, kafka) as sync:
        with GatewayOffsets(cluster) as set_offsets:
            source = Source(kafka.bootstrap)
            owner = GroupSync(cluster, NAME, source, set_offsets, lambda group: group == groups[-1])
            owner.round()
        assert committed(gateway.bootstrap, groups[-1]) == {(topic, 0): (5, "")}
        assert committed(gateway.bootstrap, groups[0]) == {}
        sync.round()
        sync.round()
        for group in (groups[0], groups[-1]):
            assert committed(gateway.bootstrap, group) == {(topic, 0): (5, "")}
        assert sync.behind == 0
        commit(kafka, topic, {0: 6}, groups[7])
        sync.round()
        sync.round()
        assert committed(gateway.bootstrap, groups[7]) == {(topic, 0): (6, "")}
    sound(cluster)


def test_a_topic_that_was_re_created_sets_nothing_back(
    kafka: Broker, cluster: Cluster, name: str, store_root: Path
) -> None:
    topic, group = source_of(kafka, cluster, name), f"{name}-g"
    commit(kafka, topic, {0: 8}, group)
    with running(cluster):
        level(cluster, kafka, topic)
    with kafka_gateway(store_root) as gateway, group_sync(cluster, kafka) as sync:
        assert states(sync, group) == {0: (8, 8, "equal")}
        kafka.delete_topic(topic)
        kafka.create_topic(topic)
        produce(kafka, topic, 10)
        commit(kafka, topic, {0: 1}, group)
        assert states(sync, group) == {0: (1, 8, "copy has stopped")}
        assert committed(gateway.bootstrap, group) == {(topic, 0): (8, "")}


def test_what_is_stopped_promoted_or_gone_here_is_not_set_or_set_again(
    kafka: Broker, cluster: Cluster, name: str, store_root: Path
) -> None:
    topic, group = source_of(kafka, cluster, name), f"{name}-g"
    commit(kafka, topic, {0: 8}, group)
    with running(cluster):
        level(cluster, kafka, topic)
    with kafka_gateway(store_root) as gateway, group_sync(cluster, kafka) as sync:
        mirror_admin.pause(cluster, NAME)
        sync.round()
        assert committed(gateway.bootstrap, group) == {}
        mirror_admin.resume(cluster, NAME)
        sync.round()
        assert committed(gateway.bootstrap, group) == {(topic, 0): (8, "")}
        gateway.running.client.delete(f"/consumers/{group}").raise_for_status()  # as if it had expired
        with group_sync(cluster, kafka) as another:
            another.round()
        assert committed(gateway.bootstrap, group) == {(topic, 0): (8, "")}
        mirror_admin.stop_copy(cluster, NAME, topic, "a test")
        commit(kafka, topic, {0: 9}, group)
        assert states(sync, group) == {0: (9, None, "copy has stopped")}
        promotion.promote(cluster, NAME, [topic], None, 0)
        assert states(sync, group) == {}
        assert committed(gateway.bootstrap, group) == {(topic, 0): (8, "")}
