"""Records of who may do what: what cannot be understood stops its reader, and is never skipped."""

import pytest
from msgspec.structs import replace

from log_tables.cluster.access_record import (
    DEFAULT_QUOTA,
    AccessRules,
    Quota,
    RuleRecord,
    acl_record,
    quota_of,
    quota_record,
    security_record,
    super_user_record,
)
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import decode
from log_tables.errors import CorruptLog, InvalidArgument
from log_tables.partition.partition import AppendRequest
from log_tables.record import Record, input_batch
from log_tables.root.fsck import check
from tests.kit.acls import acl
from tests.kit.clusters import another

ACL = acl("flights")
QUOTA = Quota(producer_byte_rate=1024.0, request_rate=0.5)
ACL_VALUE = acl_record(ACL).value or b""


@pytest.mark.parametrize(
    ("record", "key", "rule"),
    [
        (quota_record("User:ann", QUOTA), b"!quota/User:ann", QUOTA),
        (quota_record("Group:ops", None), b"!quota/Group:ops", None),
        (quota_record(DEFAULT_QUOTA, Quota()), b"!quota/<default>", Quota()),
        (super_user_record("User:ann", removed=True), b"!super/User:ann", None),
    ],
)
def test_records_come_back_as_they_were(record: Record, key: bytes, rule: object) -> None:
    assert decode(record) == RuleRecord(key, rule)  # type: ignore[arg-type]


def test_every_acl_has_a_key_of_its_own() -> None:
    others = [replace(ACL, **{name: "x"}) for name in ("resource_name", "principal", "host")]
    keys = {acl_record(each).key for each in [ACL, acl("flights", deny=True), *others]}
    assert len(keys) == 5
    assert acl_record(ACL, removed=True).key == acl_record(ACL).key
    assert decode(acl_record(ACL)) == RuleRecord(acl_record(ACL).key or b"", ACL)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"!acl/0", ACL_VALUE),
        (acl_record(ACL).key, acl_record(acl("cargo")).value),
        (acl_record(ACL).key, b"{}"),
        (acl_record(ACL).key, ACL_VALUE[:-1] + b',"until_ms":5}'),
        (acl_record(replace(ACL, principal="ann")).key, acl_record(replace(ACL, principal="ann")).value),
        (b"!super/", b"{}"),
        (b"!super/Group:ops", b"{}"),
        (b"!super/User:\xff", b"{}"),
        (b"!super/User:ann", b'{"on":"mondays"}'),
        (b"!super/User:ann", b""),
        (b"!quota/ann", b"{}"),
        (b"!quota/User:", None),
        (b"!quota/User:ann", b'{"request_rate":0}'),
        (b"!quota/User:ann", b'{"request_rate":-1}'),
        (b"!quota/User:ann", b'{"requests":1}'),
        (b"!security", b"{}"),
        (b"!security", b'{"secured":"yes"}'),
        (b"!security/", b'{"secured":true}'),
        (b"!role/ops", b"{}"),
        (b"!", None),
    ],
)
def test_a_spoilt_or_unknown_rule_stops_every_reader_and_the_known_ones_stay(
    cluster: Cluster, key: bytes, value: bytes | None
) -> None:
    create_topic(cluster, "t")
    cluster.metadata_log.change_access(lambda _: [super_user_record("User:root")])
    known = cluster.metadata_log.access
    good = Record(acl_record(acl("*")).value, acl_record(acl("*")).key)
    cluster.metadata_log.partition.append([AppendRequest(input_batch([good, Record(value, key)], 0))])
    for reader in (cluster.refresh, cluster.refresh, lambda: another(cluster)):
        with pytest.raises(CorruptLog, match="offset 3 of topics/__cluster_metadata/partition=0"):
            reader()
    assert cluster.metadata_log.access is known
    with pytest.raises(CorruptLog):
        cluster.metadata_log.change_access(lambda _: [security_record(False)])
    assert "the metadata log cannot be read" in check(cluster.store).problems[0]


def test_nothing_is_secured_and_nobody_is_allowed_anything_in_a_new_cluster(cluster: Cluster) -> None:
    assert cluster.metadata_log.access == AccessRules(frozenset(), frozenset(), {}, False)


@pytest.mark.parametrize(
    "rates",
    [{"request_rate": 0.0}, {"request_rate": float("nan")}, {"request_rate": float("inf")}, {"rate": 1.0}],
)
def test_a_rate_that_can_bound_nothing_is_refused(rates: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument):
        quota_of(rates)
