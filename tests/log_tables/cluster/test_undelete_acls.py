"""Who could read a deleted topic can read it under its new name, and nobody else."""

from msgspec.structs import replace

from log_tables.clock import ManualClock
from log_tables.cluster.acl import Acl, Operation, PatternType, Permission, ResourceType
from log_tables.cluster.admin.security_admin import add_acls, remove_acls
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.admin.undelete import undelete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.root.fsck import check
from log_tables.store.store import Store
from log_tables.testing import ClockedStore, Fault, FaultyStore
from tests.kit.clusters import another
from tests.kit.failures import before


def acl(user: str, name: str = "t", permission: Permission = Permission.ALLOW) -> Acl:
    literal = PatternType.LITERAL
    return Acl(ResourceType.TOPIC, name, literal, f"User:{user}", "*", Operation.READ, permission)


EARLY, REVOKED, LATE, OTHER = acl("early"), acl("revoked"), acl("late"), acl("other", "x")
FORBIDDEN = acl("forbidden", permission=Permission.DENY)
PREFIXED = replace(acl("prefixed"), pattern_type=PatternType.PREFIXED)
OF_A_GROUP = replace(acl("group"), resource_type=ResourceType.GROUP)
BEFORE = {EARLY, REVOKED, OTHER, PREFIXED, OF_A_GROUP}


def test_acls_that_it_had_and_that_are_still_there_are_those_of_its_new_name(
    cluster: Cluster, store: Store
) -> None:
    log = cluster.metadata_log
    create_topic(cluster, "t")
    add_acls(log, BEFORE)
    delete_topic(cluster, "t")
    create_topic(cluster, "t")
    add_acls(log, [LATE, FORBIDDEN])
    remove_acls(log, lambda each: each == REVOKED)
    undelete_topic(cluster, "t", new_name="u")
    kept = BEFORE - {REVOKED} | {LATE, FORBIDDEN}
    moved = {replace(EARLY, resource_name="u"), replace(FORBIDDEN, resource_name="u")}
    assert another(cluster).metadata_log.access.acls == kept | moved
    undelete_topic(cluster, "t", new_name="u", topic_id=cluster.topic("u").topic_id)  # a repeat
    remove_acls(log, lambda each: each in moved)
    undelete_topic(cluster, "t", new_name="u", topic_id=cluster.topic("u").topic_id)
    assert log.access.acls == kept
    assert check(store).problems == []


def test_under_its_own_name_nothing_changes(cluster: Cluster) -> None:
    create_topic(cluster, "t")
    add_acls(cluster.metadata_log, BEFORE)
    delete_topic(cluster, "t")
    add_acls(cluster.metadata_log, [LATE])
    undelete_topic(cluster, "t")
    assert cluster.metadata_log.access.acls == BEFORE | {LATE}


def test_those_of_its_last_deletion_count(cluster: Cluster) -> None:
    create_topic(cluster, "t")
    delete_topic(cluster, "t")
    undelete_topic(cluster, "t")
    add_acls(cluster.metadata_log, [EARLY])
    delete_topic(cluster, "t")
    add_acls(cluster.metadata_log, [LATE])
    undelete_topic(cluster, "t", new_name="u")
    assert cluster.metadata_log.access.acls == {EARLY, LATE, replace(EARLY, resource_name="u")}


def test_one_that_is_revoked_at_the_same_time_does_not_come_along(
    cluster: Cluster, clock: ManualClock, store: Store
) -> None:
    create_topic(cluster, "t")
    add_acls(cluster.metadata_log, [EARLY, REVOKED])
    delete_topic(cluster, "t")

    def revoke() -> None:
        remove_acls(another(cluster).metadata_log, lambda each: each == REVOKED)

    slow = another(cluster, FaultyStore(store, [Fault(1, before(revoke), path="topics/__cluster_metadata")]))
    undelete_topic(slow, "t", new_name="u")
    assert another(cluster).metadata_log.access.acls == {EARLY, replace(EARLY, resource_name="u")}
    assert check(ClockedStore(store, clock)).problems == []
