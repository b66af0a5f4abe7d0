"""`lakelog mirror acls`: the ACLs of a real Kafka, beside those here."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from lakelog.cli.common import DENIED
from log_tables.cluster.acl import Acl, Operation
from log_tables.cluster.acl import ResourceType as Kind
from log_tables.cluster.admin.audit_log import keep_audit_topic
from log_tables.cluster.admin.security_admin import add_acls
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store
from tests.kit.acls import acl
from tests.kit.audits import audit_rows, short
from tests.kit.cli import USAGE, Run, lines, on_root, printed, wrong
from tests.kit.kafka_broker import Broker, broker
from tests.kit.kafka_programs import kafka_tool
from tests.kit.support import WAIT_S

__all__ = ["on_root"]

MANY = 1_000
ANY: Any = None


@pytest.fixture
def source(kafka: Broker) -> Iterator[Broker]:
    """The broker, which has the topics `orders` and `others`, and no ACL but one that lets us in."""
    for name in {"orders", "others"} - kafka.admin.list_topics(timeout=WAIT_S).topics.keys():
        kafka.create_topic(name)
    allow(kafka, "kafka-cluster", ResourceType.BROKER, user="ANONYMOUS", operation=AclOperation.ALL)
    yield kafka
    every = AclBindingFilter(
        ResourceType.ANY, ANY, ResourcePatternType.ANY, ANY, ANY, AclOperation.ANY, AclPermissionType.ANY
    )
    for gone in kafka.admin.delete_acls([every]).values():
        gone.result(WAIT_S)


def allow(
    kafka: Broker,
    *names: str | ResourceType,
    user: str = "ann",
    operation: AclOperation = AclOperation.READ,
    prefixed: bool = False,
    deny: bool = False,
    host: str = "*",
) -> None:
    """Make ACLs at the source, on topics, or on what the last of `names` says."""
    kind = names[-1] if isinstance(names[-1], ResourceType) else ResourceType.TOPIC
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    permission = AclPermissionType.DENY if deny else AclPermissionType.ALLOW
    made = [
        AclBinding(kind, name, pattern, f"User:{user}", host, operation, permission)
        for name in names
        if isinstance(name, str)
    ]
    for done in kafka.admin.create_acls(made).values():
        done.result(WAIT_S)


@pytest.fixture
def cluster(source: Broker, on_root: Run, store_root: Path) -> Cluster:
    """A root with the mirror `shop` of `orders` and what begins with `shop.`."""
    create = ("mirror", "create", "shop", "--source", source.bootstrap)
    assert on_root(*create, "--topic", "orders", "--topic", r"^shop\..*").exit_code == 0
    return Cluster.open(open_store(store_root))


def kept(cluster: Cluster) -> list[Acl]:
    cluster.refresh()
    return sorted(cluster.metadata_log.access.acls)


def test_what_concerns_the_mirror_is_added_once_and_nothing_is_deleted(
    source: Broker, cluster: Cluster, on_root: Run
) -> None:
    allow(source, "orders", "others", "*", "shop.later")
    allow(source, "ord", "oth", prefixed=True)
    allow(source, "readers", ResourceType.GROUP, user="bob", host="10.0.0.7")
    allow(source, "tx", ResourceType.TRANSACTIONAL_ID, operation=AclOperation.WRITE)
    allow(source, "orders", user="eve", deny=True)
    ours = [acl("orders", "User:here"), acl("others", "User:here"), acl("own", resource_type=Kind.GROUP)]
    add_acls(cluster.metadata_log, ours)
    wanted = sorted(
        [
            acl("*"),
            acl("orders"),
            acl("shop.later"),
            acl("ord", prefixed=True),
            acl("orders", "User:eve", deny=True),
            acl("readers", "User:bob", host="10.0.0.7", resource_type=Kind.GROUP),
            acl("tx", operation=Operation.WRITE, resource_type=Kind.TRANSACTIONAL_ID),
        ]
    )
    shown = printed(on_root("mirror", "acls", "shop", "--dry-run", "--json"))
    assert [each["resource_name"] for each in shown["missing"]] == [each.resource_name for each in wanted]
    assert [each["resource_name"] for each in shown["only_here"]] == ["own", "orders"]
    assert shown["added"] == []
    assert shown["not_copied"] == {"the cluster": 1, "topics that the mirror does not copy": 2}
    assert kept(cluster) == sorted(ours)

    done = printed(on_root("mirror", "acls", "shop", "--json"))
    assert done["added"] == shown["missing"]
    assert kept(cluster) == sorted([*ours, *wanted])
    again = printed(on_root("mirror", "acls", "shop", "--json"))
    assert (again["added"], again["missing"], again["equal"]) == ([], [], len(wanted))
    assert kept(cluster) == sorted([*ours, *wanted])


def test_people_see_what_cannot_be_here_and_what_reaches_further(
    source: Broker, cluster: Cluster, on_root: Run
) -> None:
    for name in ("own-1", "own-2", "own-3", "own-4"):
        create_topic(cluster, name, 1)
    allow(source, "*")
    allow(source, "readers", ResourceType.GROUP, operation=AclOperation.WRITE)
    allow(source, "orders", host="client.example.com", deny=True)
    tool = ("AclCommand", "--bootstrap-server", source.bootstrap, "--add", "--allow-principal", "User:ann")
    kafka_tool(*tool, "--transactional-id", "tx", "--operation", "TwoPhaseCommit")
    kafka_tool(*tool, "--delegation-token", "token", "--operation", "Describe")
    kafka_tool(*tool, "--user-principal", "User:bob", "--operation", "CreateTokens")
    said = lines(on_root("mirror", "acls", "shop", "--dry-run"))
    assert said[1].split() == ["missing", "TOPIC", "*", "LITERAL", "User:ann", "*", "READ", "ALLOW"]
    assert said[2] == "1 ACL missing, 0 equal, 0 only here, which stay"
    deny, of_transaction, of_group = said[3:6]
    assert "DENY READ on LITERAL TOPIC orders to User:ann from client.example.com: the host" in deny
    assert "ALLOW WRITE on LITERAL GROUP readers to User:ann from *: GROUP has no operation WRITE" in of_group
    assert "TRANSACTIONAL_ID tx to User:ann from *: its operation or its kind of pattern" in of_transaction
    assert said[6] == (
        "covers topics here that are no copies of shop: ALLOW READ on LITERAL TOPIC * to User:ann from *: "
        "own-1, own-2, own-3 and 1 more"
    )
    assert sorted(said[7:]) == [
        "not copied: 1 ACL on the cluster",
        "not copied: 2 ACLs on delegation tokens or users",
        "this root is not secured: ACLs count from `lakelog security enable` on",
    ]


def test_a_thousand_come_in_one_commit_and_are_audited(
    source: Broker, cluster: Cluster, on_root: Run, store_root: Path
) -> None:
    allow(source, *(f"group-{number}" for number in range(MANY)), ResourceType.GROUP)
    keep_audit_topic(cluster, {})
    before = cluster.metadata_log.partition.refresh().version
    assert len(printed(on_root("mirror", "acls", "shop", "--json"))["added"]) == MANY
    log = cluster.metadata_log.partition
    assert log.refresh().version == before + 2, "a claim and one commit"
    assert len(kept(cluster)) == MANY
    ((event,),) = short(audit_rows(store_root, "operation = 'CreateAcls'"), "event")
    assert event.count("ALLOW READ on LITERAL GROUP group-") == MANY


def test_a_source_that_does_not_show_its_acls_says_what_is_needed(
    source: Broker, cluster: Cluster, on_root: Run
) -> None:
    cluster_rule = ("kafka-cluster", ResourceType.BROKER)
    allow(source, *cluster_rule, user="ANONYMOUS", operation=AclOperation.DESCRIBE, deny=True)
    wrong(on_root("mirror", "acls", "shop"), DENIED, "kafka-acls --add --allow-principal User:NAME")
    assert kept(cluster) == []


def test_a_source_without_an_authorizer_has_no_acls(tmp_path: Path, on_root: Run) -> None:
    with broker(tmp_path / "open", authorizer_class_name="") as source:
        source.create_topic("orders")
        create = ("mirror", "create", "shop", "--source", source.bootstrap, "--topic", "orders")
        assert on_root(*create).exit_code == 0
        wrong(on_root("mirror", "acls", "shop"), USAGE, "make the ACLs that are wanted here")
