"""The policies that READ ACLs amount to let read what the ACLs let read, and never more."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.access.acl_export import exported
from coordinator.access.iam_policy import OPERATORS_MAX
from log_tables import layout
from log_tables.cluster.acl import Acl, Operation, PatternType, Permission, ResourceType
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic_fold import fold
from log_tables.errors import InvalidArgument, StoreUnavailable
from log_tables.layout import CLUSTER_METADATA, INTERNAL_TOPICS, RESERVED_PREFIX
from log_tables.partition.partition import AppendRequest
from log_tables.record import Record, input_batch, to_records
from log_tables.store.store import Store, open_store
from log_tables.store.wrapper import StoreWrapper
from log_tables.testing import ManualClock
from tests.kit.acls import acl, asks, scanned
from tests.kit.policies import BUCKET, PREFIX, aws_allows, gcs_allows

T = TypeVar("T")
READS = {"get", "get_range", "head", "list", "list_dirs"}
S3, GCS = f"s3://{BUCKET}/{PREFIX}", f"gs://{BUCKET}/{PREFIX}"
TOPICS = ["a", "ab", "abc", "b", "_a", "__consumer_offsets"]
DIRECTORIES = {topic: [f"topics/{topic}"] for topic in TOPICS}

ACLS = st.builds(
    Acl,
    st.sampled_from([ResourceType.TOPIC, ResourceType.TOPIC, ResourceType.GROUP]),
    st.sampled_from(["a", "ab", "abc", "b", "*", "a*", "?", "_", "__", "__consumer_offsets", "ab/"]),
    st.sampled_from(PatternType),
    st.sampled_from(["User:ann", "User:*", "Group:crew"]),
    st.just("*"),
    st.sampled_from([Operation.READ, Operation.READ, Operation.ALL, Operation.WRITE, Operation.DESCRIBE]),
    st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
)


def policies(acls: list[Acl], root: str = S3) -> Any:
    return json.loads(exported("aws-iam", acls, [root], DIRECTORIES))["policies"]


def bindings(acls: list[Acl]) -> tuple[Any, list[str]]:
    found = json.loads(exported("gcs", acls, [GCS], DIRECTORIES))
    return found["bindings"], found["not_expressed"]


def may_read(acls: list[Acl], topic: str, user: str = "ann", *groups: str) -> bool:
    allowed = scanned(acls, asks(user, *groups), Operation.READ, ResourceType.TOPIC, topic)
    return allowed and not topic.startswith("__")


def segments(topic: str) -> list[str]:
    """Objects of the topic, of one that was re-created, and of the table over it."""
    paths = ("partition=0/0.parquet", "_delta_log/0.json")
    return [f"topics/{topic}{again}/{path}" for again in ("", "~2", "~13") for path in paths]


@given(st.lists(ACLS, max_size=8))
def test_aws_lets_a_user_with_its_policies_read_what_the_acls_let_it_read(acls: list[Acl]) -> None:
    found = policies(acls)
    attached = [found[each] for each in ("User:ann", "User:*", "Group:crew") if each in found]
    for topic in TOPICS:
        for path in segments(topic):
            assert aws_allows(attached, path) == may_read(acls, topic, "ann", "crew"), path


@given(st.lists(ACLS, max_size=8))
def test_google_lets_a_member_read_what_the_acls_of_its_name_let_it_read(acls: list[Acl]) -> None:
    found, lost = bindings(acls)
    own = [
        each
        for each in acls
        if each.principal == "User:ann" or (each.principal == "User:*" and each.permission is Permission.DENY)
    ]
    for topic in TOPICS:
        for path in segments(topic):
            read, meant = gcs_allows(found.get("User:ann", []), path), may_read(own, topic)
            assert read == meant or (meant and any("too many denials" in line for line in lost)), path


@pytest.mark.parametrize(
    "hidden",
    [
        "credentials/log/0.parquet",
        "staging/0-1.arrow",
        "audit/0.jsonl",
        "brokers/1",
        "mirrors/shop/1",
        "home/anchor",
    ],
)
def test_nothing_but_topics_is_read_however_much_is_allowed(hidden: str) -> None:
    acls = [acl("*", operation=Operation.ALL), acl("", prefixed=True)]
    assert not aws_allows(policies(acls).values(), hidden)
    assert not gcs_allows(bindings(acls)[0]["User:ann"], hidden)


def test_credentials_are_denied_even_to_those_whom_another_policy_lets_read_the_bucket() -> None:
    everything = {"Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    for acls in ([acl("a")], [acl("a", deny=True)]):
        attached = [everything, *policies(acls).values()]
        assert not aws_allows(attached, "credentials/log/_delta_log/0.json")
        assert not aws_allows(attached, "topics/__consumer_offsets/partition=0/_delta_log/0.json")


def test_a_reader_reads_schemas_the_log_that_names_the_topics_and_no_other_internal_one() -> None:
    metadata = f"topics/{CLUSTER_METADATA}/partition=0/_delta_log/0.json"
    for acls in ([acl("a")], [acl("*")]):
        for path in (metadata, "schemas/files/1.avsc"):
            assert aws_allows([policies(acls)["User:ann"]], path)
            assert gcs_allows(bindings(acls)[0]["User:ann"], path)
    assert not aws_allows(policies([acl("a", deny=True)]).values(), metadata)
    internal = {value for value in vars(layout).values() if isinstance(value, str) and value.startswith("__")}
    assert internal - {vars(layout)["__name__"], vars(layout)["__doc__"]} == {
        CLUSTER_METADATA,
        *INTERNAL_TOPICS,
        RESERVED_PREFIX,
    }


def test_all_topics_of_a_remote_root_are_in_the_policy_too() -> None:
    text = exported("aws-iam", [acl("a")], [S3, "s3a://other"], DIRECTORIES)
    assert "arn:aws:s3:::other/topics/a/*" in text
    assert f"arn:aws:s3:::{BUCKET}/{PREFIX}topics/a/*" in text


def test_what_has_a_meaning_in_a_policy_is_escaped() -> None:
    text = exported("aws-iam", [acl("a")], ["s3://lake/we*rd$?"], DIRECTORIES)
    assert "arn:aws:s3:::lake/we${*}rd${$}${?}/topics/a/*" in text


def test_a_permission_for_a_host_is_left_out_and_a_denial_for_a_host_is_for_all() -> None:
    acls = [acl("a", host="10.0.0.1"), acl("b"), acl("b", host="10.0.0.1", deny=True)]
    found = json.loads(exported("aws-iam", acls, [S3], DIRECTORIES))
    assert not any(aws_allows(found["policies"].values(), path) for path in [*segments("a"), *segments("b")])
    allowed, denied = found["not_expressed"]
    assert allowed.startswith(
        "the ACL that allows READ on LITERAL a to User:ann from host 10.0.0.1 is left out"
    )
    assert denied.startswith(
        "the ACL that denies READ on LITERAL b to User:ann from host 10.0.0.1 is for all"
    )


def test_google_takes_a_few_denials_within_a_permission_and_more_are_named() -> None:
    few = [acl("*"), acl("a", deny=True), acl("b", deny=True)]
    found, lost = bindings(few)
    assert [line.partition(":")[0] for line in lost] == ["denials of User"]
    expressions = [each["condition"]["expression"] for each in found["User:ann"]]
    assert all(sum(text.count(each) for each in ("&&", "||", "!(")) <= OPERATORS_MAX for text in expressions)
    many, lost = bindings([*few, *(acl(f"a{number}", deny=True) for number in range(9))])
    assert many == {}
    assert "READ on * for User:ann is left out: it has too many denials" in lost


def test_google_is_asked_for_no_more_bindings_than_it_takes() -> None:
    lost = bindings([acl(f"a{number}") for number in range(30)])[1]
    assert lost == ["User:ann has 62 bindings, Google takes 20 for one member"]


def test_a_policy_that_is_too_long_for_aws_is_named() -> None:
    long = [acl(f"topic-{number:050}") for number in range(50)]
    (line,) = json.loads(exported("aws-iam", long, [S3], DIRECTORIES))["not_expressed"]
    assert line.startswith("the policy of User:ann has ")
    assert line.endswith("characters, AWS takes 6144: allow prefixes of names instead of names")


@pytest.mark.parametrize(
    ("form", "roots", "message"),
    [
        ("aws", [S3], "the format 'aws' is not known; use one of aws-iam, gcs, posix"),
        ("gcs", [S3], f"gcs is for none of {S3}; use --format aws-iam"),
        ("posix", [GCS], "use --format gcs"),
        ("aws-iam", ["/data"], "aws-iam is for none of /data; use --format posix"),
        ("aws-iam", ["az://lake"], "use the tools of that store"),
    ],
)
def test_a_format_that_is_not_of_the_root_is_refused(form: str, roots: list[str], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        exported(form, [acl("a")], roots, DIRECTORIES)


def test_a_root_of_another_kind_is_named() -> None:
    found = json.loads(exported("gcs", [acl("a")], [GCS, S3], DIRECTORIES))
    assert found["not_expressed"] == [f"the root {S3} is elsewhere: --format aws-iam is for it"]


class KeptStore(StoreWrapper):
    """A store that lets its client read what policies let it read."""

    def __init__(self, inner: Store, attached: list[Any]) -> None:
        super().__init__(inner)
        self._attached = attached

    def _call(self, operation: str, path: str, perform: Callable[[], T]) -> T:
        if operation not in READS or not aws_allows(self._attached, path):
            raise StoreUnavailable(f"{operation} of {path} is denied")
        return perform()


def test_a_reader_with_such_a_policy_reads_its_topic_and_no_other(tmp_path: Path, clock: ManualClock) -> None:
    cluster = Cluster.open(open_store(str(tmp_path)), clock)
    for name in ("mine", "theirs"):
        topic = create_topic(cluster, name, 1)
        cluster.claim(topic, 0).append([AppendRequest(input_batch([Record(b"a record", b"key")], 1_000))])
        fold(topic)
    attached = [policies([acl("mine")])["User:ann"]]
    reader = Cluster.open(KeptStore(cluster.store, attached), clock, create=False)
    log = reader.topic("mine").partition(0)
    log.refresh()
    (batch,) = log.read(log.plan_read(0, 1_000))
    assert [record.value for record in to_records(batch)] == [b"a record"]
    with pytest.raises(StoreUnavailable, match="is denied"):
        reader.topic("theirs").partition(0)
