"""A mirror stops a topic rather than lie about it, says why, and goes on with the others."""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewPartitions
from msgspec.structs import replace

from jobs.mirror.promotion import NotAtItsEnd, promote
from jobs.mirror.runner import copy_mirror
from jobs.mirror.same_source import AnotherCluster
from jobs.mirror.source import Source, UnknownAtSource
from jobs.mirror.verify import verify
from log_tables.clock import ManualClock
from log_tables.cluster.admin import mirror_admin
from log_tables.cluster.admin.internal_log import records_of
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidArgument
from log_tables.layout import MIRROR_GAPS, PARTITION
from log_tables.sql.query import query
from log_tables.store.store import open_store
from log_tables.testing import Crash, Fault, FaultyStore, crash_before
from tests.kit.kafka import produce, read_all
from tests.kit.kafka_broker import Broker
from tests.kit.mirrors import (
    NAME,
    cluster,
    delete_before,
    equal,
    here,
    level,
    name,
    note,
    running,
    sound,
    stopped,
    trouble,
)
from tests.kit.support import WAIT_S, wait_until

__all__ = ["cluster", "name"]

Acl = TypeVar("Acl")

GAP = "the source had deleted them before they were copied"
_LOG = "_delta_log"
OLD, NEW = [b"old%d" % number for number in range(10)], [b"new%d" % number for number in range(20)]


@pytest.fixture
def copied(kafka: Broker, cluster: Cluster, name: str) -> str:
    """A topic whose ten records were copied, by a mirror that does not run now and has another topic, too."""
    kafka.create_topic(name)
    kafka.create_topic(f"{name}-other")
    produce(kafka.bootstrap, name, OLD)
    note(cluster, kafka, f"^{name}.*")
    with running(cluster):
        level(cluster, kafka, name, f"{name}-other")
    return name


def others_go_on(kafka: Broker, cluster: Cluster, topic: str) -> None:
    """Check that the other topic of the mirror is copied."""
    produce(kafka.bootstrap, f"{topic}-other", [b"on"])
    level(cluster, kafka, f"{topic}-other")


def test_a_topic_that_was_recreated_amid_the_copy_is_not_copied_on_top(
    kafka: Broker, cluster: Cluster, copied: str
) -> None:
    log = cluster.topic(copied).partition(0)
    claims = log.snapshot.leader_epoch
    with running(cluster, look_s=WAIT_S):
        wait_until(lambda: log.refresh().leader_epoch > claims, "the mirror has looked")
        others_go_on(kafka, cluster, copied)
        kafka.delete_topic(copied)
        kafka.create_topic(copied)
        produce(kafka.bootstrap, copied, NEW)
        why = stopped(cluster, copied)
        assert f"lakelog mirror promote {NAME} --topic {copied} --now" in why
        others_go_on(kafka, cluster, copied)
    assert [each.value for each in here(cluster, copied)] == OLD
    sound(cluster)


def test_a_deleted_topic_stays_and_stops(kafka: Broker, cluster: Cluster, copied: str) -> None:
    kafka.delete_topic(copied)
    with running(cluster):
        assert "the source has no such topic any more" in stopped(cluster, copied)
    with pytest.raises(InvalidArgument, match=r"has stopped: .* add --now"):
        promote(cluster, NAME, [copied], Source(kafka.bootstrap), 0)
    assert promote(cluster, NAME, [copied], None, 0) == [copied]
    assert [each.value for each in here(cluster, copied)] == OLD


def test_what_was_purged_before_it_was_copied_stops(kafka: Broker, cluster: Cluster, copied: str) -> None:
    produce(kafka.bootstrap, copied, NEW)
    delete_before(kafka, copied, 25)
    with running(cluster):
        assert f"{copied}-0 begins at offset 25, and the copy ends at 10" in stopped(cluster, copied)
        others_go_on(kafka, cluster, copied)
        assert mirror_admin.resume(cluster, NAME) == [copied]
        stopped(cluster, copied)
    assert [each.value for each in here(cluster, copied)] == OLD


def test_with_on_gap_record_the_copy_goes_on_behind_the_gap(
    kafka: Broker, cluster: Cluster, name: str
) -> None:
    kafka.create_topic(name)
    produce(kafka.bootstrap, name, OLD)
    note(cluster, kafka, name, records_gaps=True)
    with running(cluster):
        level(cluster, kafka, name)
    produce(kafka.bootstrap, name, NEW)
    delete_before(kafka, name, 25)
    with running(cluster):
        level(cluster, kafka, name)
    assert cluster.topic(name).partition(0).log_start == 25
    equal(cluster, kafka, name, 5)
    sound(cluster)
    assert noted(cluster, name) == [(NAME, 0, 10, 24, GAP)]


def test_a_gap_is_noted_before_the_copy_goes_on_and_once(kafka: Broker, cluster: Cluster, name: str) -> None:
    kafka.create_topic(name)
    produce(kafka.bootstrap, name, OLD)
    note(cluster, kafka, name, records_gaps=True)
    with running(cluster):
        level(cluster, kafka, name)
    produce(kafka.bootstrap, name, NEW)
    delete_before(kafka, name, 25)
    log = cluster.topic(name).partition(0)
    note_commit, goes_on = f"{MIRROR_GAPS}/{PARTITION}=0/{_LOG}", f"{log.directory}/{_LOG}"
    for path, nth in {note_commit: 2, goes_on: 2}.items():  # the first is the claim, or makes the table
        store = FaultyStore(open_store(cluster.store.url), [Fault(nth, crash_before, path=path)])
        with pytest.raises(Crash):
            copy_mirror(Cluster.open(store), NAME, threading.Event())
        assert log.refresh().high_watermark == 10
        assert noted(cluster, name) == []  # the copy has not gone on
    assert len([*records_of(cluster, MIRROR_GAPS)]) >= 1
    delete_before(kafka, name, 27)
    with running(cluster):
        level(cluster, kafka, name)
    assert noted(cluster, name) == [(NAME, 0, 10, 26, GAP)]
    promote(cluster, NAME, [name], None, 0)
    assert noted(cluster, name) == [(NAME, 0, 10, 26, GAP)]


def noted(cluster: Cluster, topic: str) -> list[tuple[object, ...]]:
    """The gaps of a topic, as SQL has them."""
    cluster.refresh()
    found = query(
        cluster,
        "select mirror, partition, first_offset, last_offset, reason from mirror_gaps "
        f"where topic = '{topic}' and noted_at > now() - interval '1 hour'",
    )
    return [tuple(row.values()) for row in found.to_pylist()]


def test_a_topic_that_may_not_be_read_any_more_stops_until_it_may(
    kafka: Broker, cluster: Cluster, copied: str
) -> None:
    rules = [
        _rule(AclBinding, copied, AclOperation.ALL, AclPermissionType.ALLOW),
        _rule(AclBinding, copied, AclOperation.READ, AclPermissionType.DENY),
    ]
    produce(kafka.bootstrap, copied, NEW)
    for made in kafka.admin.create_acls(rules).values():
        made.result(WAIT_S)
    with running(cluster):
        assert "Topic authorization failed" in stopped(cluster, copied)
        others_go_on(kafka, cluster, copied)
        every = _rule(AclBindingFilter, copied, AclOperation.ANY, AclPermissionType.ANY)
        for gone in kafka.admin.delete_acls([every]).values():
            gone.result(WAIT_S)
        mirror_admin.resume(cluster, NAME)
        level(cluster, kafka, copied)
    equal(cluster, kafka, copied, 30)


def test_a_topic_whose_settings_may_not_be_seen_any_more_is_copied_on_and_holds_up_no_other(
    kafka: Broker, cluster: Cluster, copied: str, seed: int
) -> None:
    hidden = _rule(AclBinding, copied, AclOperation.DESCRIBE_CONFIGS, AclPermissionType.DENY)
    rules = [hidden, _rule(AclBinding, copied, AclOperation.ALL, AclPermissionType.ALLOW)]
    clock = ManualClock(seed=seed)
    with running(Cluster.open(open_store(cluster.store.url), clock)):
        others_go_on(kafka, cluster, copied)
        for made in kafka.admin.create_acls(rules).values():
            made.result(WAIT_S)
        clock.advance(60_000)
        kafka.create_topic(f"{copied}-new")
        produce(kafka.bootstrap, copied, NEW)
        level(cluster, kafka, copied, f"{copied}-new")


def _rule(
    kind: Callable[..., Acl], topic: str, operation: AclOperation, permission: AclPermissionType
) -> Acl:
    """An ACL of the topic for everybody, or a filter of such."""
    where = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
    return kind(*where, "User:ANONYMOUS", "*", operation, permission)


def test_a_paused_mirror_copies_nothing_and_cannot_be_promoted_before_its_end(
    kafka: Broker, cluster: Cluster, copied: str
) -> None:
    mirror_admin.pause(cluster, NAME)
    produce(kafka.bootstrap, copied, NEW)
    with running(cluster):
        with pytest.raises(NotAtItsEnd, match=rf"{copied}-0 is at offset 10, and its source ends at 30"):
            promote(cluster, NAME, [copied], Source(kafka.bootstrap), 0.2)
        mirror_admin.resume(cluster, NAME)
        level(cluster, kafka, copied)
    equal(cluster, kafka, copied, 30)


def test_partitions_that_are_not_here_yet_are_not_forgotten(
    kafka: Broker, cluster: Cluster, copied: str
) -> None:
    kafka.admin.create_partitions([NewPartitions(copied, 2)])[copied].result(WAIT_S)
    source = Source(kafka.bootstrap)
    wait_until(lambda: source.topics()[copied] == 2, "the source has two partitions")
    with pytest.raises(NotAtItsEnd, match=f"the source of {copied} has 2 partitions, and the copy 1"):
        promote(cluster, NAME, [copied], source, 0)
    one, two = verify(cluster, NAME, source, [copied])
    assert one.is_equal
    assert (two.partition, two.is_equal) == (1, False)
    assert "it is not here yet" in two.failed


def lose_all(kafka: Broker, topic: str) -> None:
    """Let the source lose all records of a topic, which it keeps."""
    kafka.program.kill()
    shutil.rmtree(Path(kafka.data, f"{topic}-0"))
    kafka.program.start()
    kafka.await_ready()
    wait_until(lambda: read_all(kafka.bootstrap, topic) == [], "the source is empty")


def test_a_source_that_lost_records_stops(kafka: Broker, cluster: Cluster, copied: str) -> None:
    lose_all(kafka, copied)
    with running(cluster):
        assert f"{copied}-0 ends at offset 0, and the copy at 10" in stopped(cluster, copied)
        others_go_on(kafka, cluster, copied)
    assert [each.value for each in here(cluster, copied)] == OLD


def test_the_file_with_the_settings_of_the_source_is_read_again_once_it_is_mended(
    kafka: Broker, cluster: Cluster, copied: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "source.properties"
    mirror_admin.change_mirror(cluster, NAME, lambda known: replace(known, config=str(file)))
    produce(kafka.bootstrap, copied, NEW)
    with running(cluster):
        trouble(cluster, f"the file {file} of --config cannot be read")
        file.write_text("security.protocol=nonsense")
        for _ in range(3):
            trouble(cluster, "librdkafka refuses the settings", again=True)
        file.write_text("security.protocol=SSL\nreconnect.backoff.max.ms=200\n")
        trouble(cluster, "does not answer")
        file.write_text("security.protocol=PLAINTEXT")
        level(cluster, kafka, copied)
    equal(cluster, kafka, copied, 30)
    assert caplog.text.count("copies nothing: librdkafka refuses the settings") == 1


def test_a_mirror_that_was_noted_without_asking_its_source_learns_whose_copy_it_is(
    kafka: Broker, cluster: Cluster, copied: str
) -> None:
    mirror_admin.change_mirror(cluster, NAME, lambda known: replace(known, cluster_id=""))
    with running(cluster):
        wait_until(lambda: bool(known_cluster(cluster)), "the id of the cluster is noted")
    assert known_cluster(cluster) == Source(kafka.bootstrap).cluster_id()


def known_cluster(cluster: Cluster) -> str:
    """The id of the cluster that the mirror copies, as noted."""
    cluster.refresh()
    return cluster.metadata_log.mirrors[NAME].cluster_id


def test_records_that_others_took_the_offsets_of_while_no_mirror_ran_are_noticed(
    kafka: Broker, cluster: Cluster, copied: str
) -> None:
    """As an unclean election leaves it: the source is longer than the copy again."""
    lose_all(kafka, copied)
    produce(kafka.bootstrap, copied, NEW)
    with running(cluster):
        assert "another record at offset 9 than was copied" in stopped(cluster, copied)
        others_go_on(kafka, cluster, copied)
        mirror_admin.resume(cluster, NAME)
        stopped(cluster, copied)
    assert [each.value for each in here(cluster, copied)] == OLD


def test_a_source_that_was_made_anew_or_lost_records_is_not_promoted_even_if_nobody_has_looked(
    kafka: Broker, cluster: Cluster, copied: str
) -> None:
    source = Source(kafka.bootstrap)
    kafka.delete_topic(copied)
    with pytest.raises(UnknownAtSource):
        promote(cluster, NAME, [copied], source, 0.2)
    kafka.create_topic(copied)
    with pytest.raises(UnknownAtSource, match=f"deleted and re-created the topic {copied}"):
        promote(cluster, NAME, [copied], source, 0.2)
    mirror_admin.change_copy(cluster, NAME, copied, lambda known: replace(known, topic_id=""))
    with pytest.raises(NotAtItsEnd, match=f"{copied}-0 is at offset 10, and its source ends at 0: .* lost"):
        promote(cluster, NAME, [copied], source, 0.2)
    mirror_admin.change_mirror(cluster, NAME, lambda known: replace(known, cluster_id="another"))
    with pytest.raises(AnotherCluster, match="the mirror copy copies another"):
        promote(cluster, NAME, [copied], source, 0.2)
    assert promote(cluster, NAME, [copied], None, 0.2) == [copied]
