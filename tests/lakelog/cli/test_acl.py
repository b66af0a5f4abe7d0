"""`lakelog acl`: Kafka's options, and the ACLs that gateways then go by."""

from pathlib import Path

import msgspec
import pytest

from lakelog.cli.acl_options import Operations, Principals, Resources, acls_of
from log_tables.cluster.acl import CLUSTER_NAME, Acl, Operation, ResourceType
from log_tables.cluster.admin.audit_log import events_before, keep_audit_topic
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store
from tests.kit.acls import acl
from tests.kit.cli import USAGE, Run, lines, printed, wrong
from tests.kit.gateway import RunningGateway


@pytest.fixture
def data(tmp_path: Path) -> str:
    """A root with two topics, one of which was re-created."""
    path = str(tmp_path / "my data")
    cluster = Cluster.open(open_store(path))
    for name in ("flights", "trips"):
        create_topic(cluster, name, 1)
    delete_topic(cluster, "trips")
    create_topic(cluster, "trips", 1)
    return path


def kept(data: str) -> list[Acl]:
    return sorted(Cluster.open(open_store(data)).metadata_log.access.acls)


def created(*names: str, **options: object) -> list[Acl]:
    """The ACLs of options for User:ann."""
    resources = Resources(names, ("crew",) if "consumer" in options else (), False, (), "literal")
    operations = Operations((), bool(options.get("producer")), bool(options.get("consumer")))
    return acls_of(resources, operations, Principals(("User:ann",), (), (), ()))


def test_an_acl_is_created_listed_and_deleted(run: Run, data: str) -> None:
    ann = ("--allow-principal", "User:ann", "--operation", "Read", "--topic", "flights", "--data", data)
    made = printed(run("acl", "create", *ann, "--json"))
    assert made == [
        {
            "resource_type": "TOPIC",
            "resource_name": "flights",
            "pattern_type": "LITERAL",
            "principal": "User:ann",
            "host": "*",
            "operation": "READ",
            "permission": "ALLOW",
        }
    ]
    assert kept(data) == [acl("flights")]
    assert printed(run("acl", "create", *ann, "--json")) == made
    assert printed(run("acl", "list", "--data", data, "--json")) == made
    header, row, _, count = lines(run("acl", "list", "--data", data))
    assert header.split() == [*made[0]]
    assert row.split() == [*made[0].values()]
    assert count == "1 ACL"
    assert printed(run("acl", "delete", *ann, "--json")) == made
    assert kept(data) == []
    wrong(run("acl", "delete", *ann), USAGE, "there is no such ACL; see `lakelog acl list`")


def test_every_principal_host_operation_and_resource_is_combined(run: Run, data: str) -> None:
    options = "--allow-principal User:ann --allow-principal Group:crew --allow-host 10.0.0.1 --allow-host ::1"
    options += " --deny-principal User:bob --operation describe-configs --operation DescribeConfigs"
    options += " --operation ALTER --topic fl --topic trips --resource-pattern-type prefixed"
    assert run("acl", "create", *options.split(), "--data", data).exit_code == 0
    expected = [
        acl(topic, principal, operation, prefixed=True, host=host, deny=principal == "User:bob")
        for topic in ("fl", "trips")
        for operation in (Operation.DESCRIBE_CONFIGS, Operation.ALTER)
        for principal, host in (
            *((name, host) for name in ("User:ann", "Group:crew") for host in ("10.0.0.1", "::1")),
            ("User:bob", "*"),
        )
    ]
    assert kept(data) == sorted(expected)


def test_each_kind_of_resource_has_its_option_and_all_is_the_operation_without_one(
    run: Run, data: str
) -> None:
    options = "--allow-principal User:ann --topic * --group crew --cluster --transactional-id crew"
    assert run("acl", "create", *options.split(), "--data", data).exit_code == 0
    names = {
        ResourceType.TOPIC: "*",
        ResourceType.GROUP: "crew",
        ResourceType.CLUSTER: CLUSTER_NAME,
        ResourceType.TRANSACTIONAL_ID: "crew",
    }
    expected = [acl(name, operation=Operation.ALL, resource_type=kind) for kind, name in names.items()]
    assert kept(data) == sorted(expected)


def test_a_producer_and_a_consumer_need_what_they_need_in_kafka() -> None:
    topic = [
        acl("t", operation=operation) for operation in (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
    ]
    assert created("t", producer=True) == topic
    assert created("t", consumer=True) == [
        acl("t", operation=Operation.READ),
        acl("t", operation=Operation.DESCRIBE),
        acl("crew", operation=Operation.READ, resource_type=ResourceType.GROUP),
    ]


def test_what_is_not_named_is_any_when_acls_are_deleted(run: Run, data: str) -> None:
    options = [
        "--allow-principal",
        "User:ann",
        "--allow-principal",
        "User:bob",
        "--topic",
        "flights",
        "--topic",
        "fl",
    ]
    for each in ((), ("--resource-pattern-type", "prefixed")):
        assert run("acl", "create", *options, *each, "--operation", "READ", "--data", data).exit_code == 0
    gone = printed(run("acl", "delete", "--allow-principal", "User:bob", "--data", data, "--json"))
    assert [each["principal"] for each in gone] == ["User:bob"] * 4
    wrong(run("acl", "delete", "--topic", "flight", "--data", data), USAGE, "there is no such ACL")
    gone = printed(run("acl", "delete", "--topic", "flights", "--data", data, "--json"))
    assert [(each["resource_name"], each["pattern_type"]) for each in gone] == [("flights", "LITERAL")]
    matching = ("--topic", "flights", "--resource-pattern-type", "match")
    listed = printed(run("acl", "list", *matching, "--data", data, "--json"))
    assert [each["resource_name"] for each in listed] == ["fl", "flights"]
    assert printed(run("acl", "list", "--principal", "User:bob", "--data", data, "--json")) == []
    assert printed(run("acl", "delete", *matching, "--data", data, "--json")) == listed
    assert kept(data) == [acl("fl")]


def test_what_makes_a_producer_is_deleted_and_nothing_else(run: Run, data: str) -> None:
    bob = ("--allow-principal", "User:bob", "--data", data)
    run("acl", "create", *bob, "--topic", "flights", "--transactional-id", "tx", "--producer")
    run("acl", "create", *bob, "--topic", "flights", "--operation", "READ")
    run("acl", "create", *bob, "--group", "crew", "--cluster", "--operation", "DESCRIBE")
    gone = printed(run("acl", "delete", *bob, "--producer", "--json"))
    assert sorted((each["resource_type"], each["operation"]) for each in gone) == [
        ("TOPIC", "CREATE"),
        ("TOPIC", "DESCRIBE"),
        ("TOPIC", "WRITE"),
        ("TRANSACTIONAL_ID", "DESCRIBE"),
        ("TRANSACTIONAL_ID", "WRITE"),
    ]
    assert {acl.resource_type for acl in kept(data)} == {"CLUSTER", "GROUP", "TOPIC"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            "--allow-principal User:ann",
            "an ACL is about a resource; add one of --topic, --group, --cluster, ",
        ),
        ("--topic t", "an ACL is for a principal; add --allow-principal or --deny-principal"),
        ("--topic t --allow-host ::1", "--allow-host is for --allow-principal; add one, as User:* for all"),
        ("--topic t --allow-principal ann", "is neither User:<name> nor Group:<name>; write it so"),
        (
            "--topic t --allow-principal User:ann --allow-host home",
            "the host 'home' is neither an IP address",
        ),
        (
            "--topic t --allow-principal User:ann --operation Reed",
            "--operation 'Reed' is not known; use one of",
        ),
        ("--cluster --allow-principal User:ann --operation READ", "CLUSTER has no operation READ"),
        ("--topic t --allow-principal User:ann --producer --operation READ", "leave out --operation"),
        ("--group g --allow-principal User:ann --producer", "--producer says nothing about --group; name an"),
        ("--topic t --allow-principal User:ann --resource-pattern-type match", "type 'match' is not known"),
    ],
)
def test_options_that_make_no_acl_are_refused(run: Run, data: str, options: str, says: str) -> None:
    wrong(run("acl", "create", *options.split(), "--data", data), USAGE, says)
    assert kept(data) == []


def test_nobody_deletes_all_acls_by_leaving_out_everything(run: Run, data: str) -> None:
    for options in ((), ("--operation", "READ")):
        wrong(run("acl", "delete", *options, "--data", data), USAGE, "name a resource or a principal")


def test_acls_are_exported_for_the_directories_that_topics_have(run: Run, data: str) -> None:
    ann = ["--allow-principal", "User:ann", "--operation", "READ", "--topic", "trips", "--topic", "later"]
    assert run("acl", "create", *ann, "--data", data).exit_code == 0
    script = lines(run("acl", "export", "--format", "posix", "--data", data))
    assert script[0] == "#!/bin/sh"
    assert f"cd '{data}'" in script
    assert [line for line in script if "topics/flights" in line] == [
        "grant topics/flights g::---,m::rX,o::---"
    ]
    granted = [line for line in script if "u:ann:rX" in line and "__" not in line]
    rights = "g::---,m::rX,u:ann:rX,o::---"
    assert granted == [f"grant schemas {rights}", f"grant 'topics/trips~2' {rights}"]
    wrong(run("acl", "export", "--format", "gcs", "--data", data), USAGE, "use --format posix")


def test_a_gateway_is_asked_instead_of_the_store(run: Run, gateway: RunningGateway) -> None:
    at = ("--url", gateway.url)
    zoe = ("--allow-principal", "User:zoe", "--topic", "zoe-1", "--group", "zoe-2")
    made = printed(run("acl", "create", *zoe, "--operation", "READ", *at, "--json"))
    assert [(each["resource_type"], each["operation"]) for each in made] == [
        ("GROUP", "READ"),
        ("TOPIC", "READ"),
    ]

    def of_zoe() -> list[Acl]:
        return [each for each in kept(gateway.data) if each.principal == "User:zoe"]

    assert of_zoe() == [msgspec.convert(row, Acl) for row in made]
    assert printed(run("acl", "list", "--principal", "User:zoe", *at, "--json")) == made
    assert printed(run("acl", "list", "--topic", "zoe-1", *at, "--json")) == made[1:]
    assert printed(run("acl", "delete", *zoe[:4], *at, "--json")) == made[1:]
    assert printed(run("acl", "delete", "--allow-principal", "User:zoe", *at, "--json")) == made[:1]
    wrong(run("acl", "delete", *zoe, *at), USAGE, "there is no such ACL")
    wrong(run("acl", "list", *at, "--data", gateway.data), USAGE, "name one of them")
    assert of_zoe() == []


def test_acls_go_back_to_a_version_of_their_history(run: Run, data: str) -> None:
    for topic in ("flights", "trips"):
        run(
            "acl",
            "create",
            "--allow-principal",
            "User:ann",
            "--operation",
            "Read",
            "--topic",
            topic,
            "--data",
            data,
        )
    newest, older, base = printed(run("acl", "history", "--data", data, "--json"))["data"]
    assert [each["event"] for each in (newest, older, base)] == ["altered", "altered", "kept"]
    assert str(acl("trips")) in run("acl", "history", "--data", data).stdout
    back = ("acl", "revert", "--to", str(older["version"]), "--data", data)
    plan = printed(run(*back, "--dry-run", "--json"))
    assert plan["changes"] == [{"name": str(acl("trips")), "old": "there", "new": None}]
    assert kept(data) == [acl("flights"), acl("trips")]
    cluster = Cluster.open(open_store(data), create=False)
    keep_audit_topic(cluster, {})
    for _ in range(2):  # the second one changes nothing, and is no event
        run(*back)
        assert kept(data) == [acl("flights")]
    assert [each["operation"] for each in events_before(cluster, None, 10)[0]] == ["RevertAcls"]
    run("quota", "set", "User:ann", "request_rate=5", "--data", data)
    run("quota", "remove", "User:ann", "--data", data)
    version = printed(run("quota", "history", "--data", data, "--json"))["data"][1]["version"]
    shown = lines(run("quota", "revert", "--to", str(version), "--data", data))
    assert shown[1].split() == ["User:ann", "–", "request_rate=5"]
    wrong(run("acl", "revert", "--data", data), USAGE, "use one of them")
    wrong(run("acl", "revert", "--to-time", "soon", "--data", data), USAGE, "no ISO-8601 time")
    wrong(run("acl", "revert", "--to", "99", "--data", data), USAGE, "no version 99")


def test_a_gateway_is_asked_for_the_history_and_the_way_back(run: Run, gateway: RunningGateway) -> None:
    url = ("--url", gateway.url)
    before = printed(run("acl", "history", *url, "--json"))["data"][0]["version"]
    run("acl", "create", "--allow-principal", "User:zoe", "--operation", "Read", "--topic", "x", *url)
    shown = run("acl", "revert", "--to", str(before), "--dry-run", *url).stdout
    assert "User:zoe" in shown
    run("acl", "revert", "--to", str(before), *url)
    assert printed(run("acl", "list", "--principal", "User:zoe", *url, "--json")) == []
