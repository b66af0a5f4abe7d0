"""Who may do what is changed by one append at a time: all of it or nothing, whoever else writes, or dies."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jobs import key_compaction
from jobs.state import look
from log_tables.clock import ManualClock, SystemClock
from log_tables.cluster.access_record import (
    AccessRules,
    Quota,
    acl_record,
    security_record,
    super_user_record,
)
from log_tables.cluster.admin.security_admin import (
    add_acls,
    add_super_user,
    alter_quotas,
    disable_security,
    enable_security,
    remove_acls,
    remove_quota,
    remove_super_user,
)
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import Conflict, InvalidArgument, NotFound
from log_tables.layout import CLUSTER_METADATA, METADATA_DIRECTORY
from log_tables.limits import METADATA_HISTORY_MS
from log_tables.root.copy import copy_root
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from log_tables.testing import Crash, Fault, FaultyStore, crash_after, crash_before
from tests.kit.acls import acl
from tests.kit.clusters import another, names
from tests.kit.engines import in_process
from tests.kit.failures import before
from tests.kit.support import WAIT_S

HOUR_MS = 60 * 60 * 1000
READ, WRITTEN = acl("flights"), acl("cargo", "User:bob")


def rules(cluster: Cluster) -> AccessRules:
    """The access rules of the root, which this process and a new one must read alike."""
    cluster.refresh()
    assert another(cluster).metadata_log.access == cluster.metadata_log.access
    return cluster.metadata_log.access


def ends(cluster: Cluster) -> int:
    return another(cluster).metadata_log.partition.high_watermark


# Changes.


def test_acls_are_added_in_one_append_and_each_once(cluster: Cluster) -> None:
    log = cluster.metadata_log
    version = log.partition.refresh().version
    assert add_acls(log, [READ, WRITTEN, READ]) == [WRITTEN, READ]
    assert log.partition.snapshot.version == version + 2  # a claim, and the append
    assert add_acls(another(cluster).metadata_log, [READ]) == []
    assert rules(cluster).acls == frozenset({READ, WRITTEN})
    assert ends(cluster) == 2


def test_what_is_removed_is_told(cluster: Cluster) -> None:
    add_acls(cluster.metadata_log, [READ, WRITTEN, acl("mail")])
    gone = remove_acls(another(cluster).metadata_log, lambda each: each.resource_name != "mail")
    assert gone == [WRITTEN, READ]
    assert remove_acls(cluster.metadata_log, lambda each: each in gone) == []
    assert rules(cluster).acls == {acl("mail")}


def test_super_users_come_and_go_and_a_secured_cluster_keeps_one(cluster: Cluster) -> None:
    log = cluster.metadata_log
    with pytest.raises(Conflict, match="lakelog security init"):
        enable_security(log)
    for principal in ("User:ann", "User:bob", "User:ann"):
        add_super_user(log, principal)
    assert rules(cluster).super_users == frozenset({"User:ann", "User:bob"})
    assert ends(cluster) == 2
    enable_security(log)
    enable_security(log)
    assert (rules(cluster).secured, ends(cluster)) == (True, 3)
    remove_super_user(another(cluster).metadata_log, "User:ann")
    with pytest.raises(Conflict, match="User:bob is the last super user"):
        remove_super_user(log, "User:bob")
    with pytest.raises(NotFound, match="'User:ann' is no super user"):
        remove_super_user(log, "User:ann")
    disable_security(log)
    remove_super_user(log, "User:bob")
    assert rules(cluster) == AccessRules()


@pytest.mark.parametrize("principal", ["ann", "User:", "User:*", "Group:ops", "User:a\nb"])
def test_only_a_user_can_be_a_super_user(cluster: Cluster, principal: str) -> None:
    with pytest.raises(InvalidArgument, match="write it so"):
        add_super_user(cluster.metadata_log, principal)


def test_rates_are_set_and_removed_and_others_stay(cluster: Cluster) -> None:
    log = cluster.metadata_log
    for entity, rate in (("User:ann", 1.0), ("Group:ops", 2.0), ("<default>", 3.0), ("User:ann", 4.0)):
        alter_quotas(log, {entity: {"request_rate": rate}})
    alter_quotas(log, {"User:ann": {"request_rate": 4.0}})
    remove_quota(log, "Group:ops")
    assert rules(cluster).quotas == {
        "User:ann": Quota(request_rate=4.0),
        "<default>": Quota(request_rate=3.0),
    }
    assert ends(cluster) == 5
    with pytest.raises(NotFound, match="'Group:ops' has no quota"):
        remove_quota(log, "Group:ops")
    with pytest.raises(InvalidArgument, match="neither User:NAME nor Group:NAME"):
        alter_quotas(log, {"ann": {"request_rate": 1.0}})
    alter_quotas(log, {"User:ann": {"producer_byte_rate": 9.0}})
    assert rules(cluster).quotas["User:ann"] == Quota(producer_byte_rate=9.0, request_rate=4.0)
    with pytest.raises(NotFound, match="has no consumer_byte_rate"):
        remove_quota(log, "User:ann", ["request_rate", "consumer_byte_rate"])
    remove_quota(log, "User:ann", ["request_rate"])
    assert rules(cluster).quotas["User:ann"] == Quota(producer_byte_rate=9.0)
    remove_quota(log, "User:ann", ["producer_byte_rate"])
    assert rules(cluster).quotas.keys() == {"<default>"}


def test_rules_that_did_not_change_are_the_same_object(cluster: Cluster) -> None:
    log = cluster.metadata_log
    add_acls(log, [READ])
    known = log.access
    create_topic(cluster, "t")
    log.remove_broker(log.register_broker("http://a"))
    assert log.access is known
    version = cluster.version
    add_acls(another(cluster).metadata_log, [WRITTEN])
    cluster.refresh()
    assert log.access is not known
    assert known.acls == {READ}
    assert cluster.version == version


def test_readers_of_the_rules_wait_for_no_store(cluster: Cluster) -> None:
    """The event loop of a gateway asks for them, while a thread of it reads the log."""
    add_acls(cluster.metadata_log, [READ])
    readers, found = list[Cluster](), list[AccessRules]()

    def asked(reader: Cluster) -> AccessRules:
        return reader.metadata_log.access

    def looked() -> None:
        found.extend(pool.submit(asked, reader).result(WAIT_S) for reader in readers)

    segments = f"{METADATA_DIRECTORY}/0"
    faults = [Fault(nth, before(looked), {"get", "get_range"}, segments) for nth in range(1, 20)]
    with ThreadPoolExecutor(1) as pool:
        readers.append(another(cluster, FaultyStore(cluster.store, faults)))
        add_acls(cluster.metadata_log, [WRITTEN])
        readers[0].refresh()
    assert {each.acls for each in found} == {frozenset({READ})}
    assert readers[0].metadata_log.access.acls == frozenset({READ, WRITTEN})


# Several writers, and those that die.


def test_writers_at_once_lose_nothing(store_root: Path) -> None:
    processes = [Cluster.open(open_store(store_root), SystemClock(), f"http://{n}") for n in range(3)]
    start = threading.Barrier(3)

    def run(process: Cluster) -> None:
        start.wait()
        for number in range(3):
            add_acls(process.metadata_log, [acl(f"{process.url}{number}"), acl("shared")])

    with ThreadPoolExecutor(3) as pool:
        assert [*pool.map(run, processes)] == [None] * 3
    assert len(rules(processes[0]).acls) == 10
    assert ends(processes[0]) == 10


def test_who_changes_at_once_with_another_decides_again(cluster: Cluster) -> None:
    """Between the look at the log and the append somebody else removes the other super user."""
    for principal in ("User:ann", "User:bob"):
        add_super_user(cluster.metadata_log, principal)
    enable_security(cluster.metadata_log)
    other = before(lambda: remove_super_user(another(cluster).metadata_log, "User:bob"))
    slow = another(cluster, FaultyStore(cluster.store, [Fault(1, other, {"put_new"})]))
    with pytest.raises(Conflict, match="last super user"):
        remove_super_user(slow.metadata_log, "User:ann")
    assert rules(cluster).super_users == {"User:ann"}


@pytest.mark.parametrize("failure", [crash_before, crash_after])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_writer_that_dies_has_done_all_or_nothing(cluster: Cluster, nth: int, failure: object) -> None:
    add_acls(cluster.metadata_log, [READ])

    def moved(known: AccessRules) -> list:  # type: ignore[type-arg]
        secured = [super_user_record("User:root"), security_record(True)]
        return [acl_record(READ, removed=True), acl_record(WRITTEN), *secured]

    dying = another(cluster, FaultyStore(cluster.store, [Fault(nth, failure)]))  # type: ignore[arg-type]
    with pytest.raises(Crash):
        dying.metadata_log.change_access(moved)
    done = nth == 3 and failure is crash_after
    assert rules(cluster).acls == frozenset({WRITTEN if done else READ})
    assert rules(cluster).secured == done
    assert add_acls(cluster.metadata_log, [acl("mail")]) == [acl("mail")]
    assert check(cluster.store).problems == []


# The log goes on.


def compacted(cluster: Cluster, now_ms: int) -> None:
    states = [state for state in look(cluster)[0] if state.topic == CLUSTER_METADATA]
    steps = key_compaction.plan(states, now_ms, dirty_records_min=1)
    (outcome,) = key_compaction.run(in_process, cluster, steps)
    assert outcome.error is None


def test_compaction_keeps_what_holds_and_who_slept_through_it_forgets_what_was_removed(
    store_root: Path, clock: ManualClock
) -> None:
    """A tombstone goes a day after the history: a process that was suspended for longer must not keep the
    rule.
    """
    cluster = Cluster.open(open_store(store_root), clock, "http://first")
    create_topic(cluster, "t")
    stays, left = (cluster.metadata_log.register_broker(f"http://{name}") for name in "ab")
    add_super_user(cluster.metadata_log, "User:ann")
    add_super_user(cluster.metadata_log, "User:bob")
    add_acls(cluster.metadata_log, [READ, WRITTEN])
    sleeper = another(cluster)
    remove_super_user(cluster.metadata_log, "User:ann")
    remove_acls(cluster.metadata_log, lambda each: each == READ)
    cluster.metadata_log.remove_broker(left)
    create_topic(cluster, "u")
    clock.advance(METADATA_HISTORY_MS + HOUR_MS)
    compacted(cluster, clock.now_ms())
    add_acls(cluster.metadata_log, [acl("mail")])
    clock.advance(METADATA_HISTORY_MS + 25 * HOUR_MS)
    compacted(cluster, clock.now_ms())
    cluster.metadata_log.partition.refresh()
    assert cluster.metadata_log.partition.snapshot.cleaned
    for reader in (sleeper, cluster, another(cluster)):
        reader.refresh()
        access = reader.metadata_log.access
        assert access.super_users == frozenset({"User:bob"})
        assert access.acls == frozenset({WRITTEN, acl("mail")})
        assert (dict(reader.metadata_log.brokers), names(reader)) == ({stays.id: stays}, ["t", "u"])
    assert check(cluster.store).problems == []


def test_a_copy_of_a_root_has_its_rules(tmp_path: Path, clock: ManualClock) -> None:
    cluster = Cluster.open(open_store(tmp_path / "here"), clock)
    add_super_user(cluster.metadata_log, "User:ann")
    add_acls(cluster.metadata_log, [READ])
    alter_quotas(cluster.metadata_log, {"<default>": {"request_rate": 1.0}})
    enable_security(cluster.metadata_log)
    copy_root(cluster.store, open_store(tmp_path / "copy"), clock)
    copy = Cluster.open(open_store(tmp_path / "copy"), clock, create=False)
    assert copy.metadata_log.access == cluster.metadata_log.access
