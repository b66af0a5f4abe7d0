"""A client that has read what a promoted standby lacks is told so, also once the new log is longer."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from api.kafka.clients.errors import ErrorCode
from api.kafka.logs.list_offsets import OffsetSpec
from api.kafka.protocol.messages.cluster import MetadataRequest, MetadataRequestTopic
from api.kafka.protocol.messages.fetch import EpochEndOffset, FetchPartition, FetchRequest, FetchTopic
from api.kafka.protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from log_tables.clock import SystemClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.root.fsck import check
from log_tables.root.promote import promote
from log_tables.segments import rewrite
from log_tables.store.store import Store, open_store
from tests.kit.kafka_asking import Asker, asker
from tests.kit.kafka_served import kafka_served
from tests.kit.partitions import append, append_each
from tests.kit.standby import follow

CAME_OVER, LOST, SINCE = 3, 4, 9
NONE = -1


@dataclass
class Scene:
    """A promoted standby, served: CAME_OVER records are those of the original, SINCE came afterwards."""

    client: Asker
    epoch: int

    def end_of(self, epoch: int, known: int = NONE, version: int = 4) -> tuple[int, int, int]:
        """The code, and the epoch and the end that are told."""
        part = OffsetForLeaderPartition(partition=0, current_leader_epoch=known, leader_epoch=epoch)
        asked = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic("t", [part])])
        ((found,),) = (topic.partitions for topic in self.client.ask(asked, version).topics)
        return found.error_code, found.leader_epoch, found.end_offset

    def fetch(self, offset: int, known: int = NONE, last: int = NONE) -> Any:
        part = FetchPartition(
            partition=0,
            current_leader_epoch=known,
            fetch_offset=offset,
            last_fetched_epoch=last,
            partition_max_bytes=1 << 20,
        )
        asked = FetchRequest(max_wait_ms=100, topics=[FetchTopic(topic="t", partitions=[part])])
        return self.client.ask(asked, 12).responses[0].partitions[0]

    def at(self, time: int, known: int = NONE) -> tuple[int, int, int]:
        """The code, and the offset and the epoch of this time."""
        part = ListOffsetsPartition(partition_index=0, current_leader_epoch=known, timestamp=time)
        answer = self.client.ask(ListOffsetsRequest(topics=[ListOffsetsTopic("t", [part])]))
        found = answer.topics[0].partitions[0]
        return found.error_code, found.offset, found.leader_epoch

    def commit(self, group: str, epoch: int) -> int:
        """Commit with this epoch; returns the one that is told then."""
        part = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_leader_epoch=epoch
        )
        topics = [OffsetCommitRequestTopic(name="t", partitions=[part])]
        answer = self.client.ask(OffsetCommitRequest(group_id=group, topics=topics), 9)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        of_group = OffsetFetchRequestGroup(
            group_id=group, topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
        )
        (found,) = self.client.ask(OffsetFetchRequest(groups=[of_group]), 9).groups
        return int(found.topics[0].partitions[0].committed_leader_epoch)


def standby_of(directory: Path) -> Store:
    """A standby in `directory`, whose original went on by LOST records after the last that came over."""
    cluster = Cluster.open(open_store(str(directory / "a")), SystemClock())
    log, target = cluster.claim(create_topic(cluster, "t", 1), 0), open_store(str(directory / "b"))
    append_each(log, [b"old"] * CAME_OVER)
    follow(cluster.store, target)
    append_each(log, [b"lost"] * LOST)
    return target


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp("roots")
    store = standby_of(directory)
    promote(store, SystemClock())
    cluster = Cluster.open(store, SystemClock(), create=False)
    log = cluster.claim(cluster.topic("t"), 0)
    append_each(log, [b"new"] * SINCE)
    both = log.snapshot.segments[CAME_OVER - 1 : CAME_OVER + 1]
    merged = rewrite.merge(store, log.directory, both, "zstd", cluster.clock)
    assert rewrite.commit_merge(log.table, both, merged)
    with kafka_served(directory / "b") as served, asker(served.port) as client:
        yield Scene(client, cluster.log_epochs.newest)
    assert check(store).problems == []


def epochs(records: Any) -> list[tuple[int, int, int]]:
    """The base offset, the epoch and the count of each batch."""
    data, found = bytes(records), []
    while data:
        base, length, epoch = struct.unpack_from(">qii", data)
        found.append((base, epoch, struct.unpack_from(">i", data, 57)[0]))
        data = data[12 + length :]
    return found


def test_the_end_of_what_both_have_is_told(scene: Scene) -> None:
    """A client at an offset behind CAME_OVER has read what was lost."""
    assert scene.epoch > 0
    for version in (2, 3, 4):
        assert scene.end_of(0, scene.epoch, version) == (ErrorCode.NONE, 0, CAME_OVER)
    assert scene.end_of(1) == (ErrorCode.NONE, 0, CAME_OVER), "an epoch of another root between"
    assert scene.end_of(scene.epoch) == (ErrorCode.NONE, scene.epoch, CAME_OVER + SINCE)
    for unknown in (scene.epoch + 1, NONE):
        assert scene.end_of(unknown) == (ErrorCode.NONE, NONE, NONE)


def test_a_client_that_knows_the_old_root_is_sent_for_the_metadata(scene: Scene) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    assert scene.client.ask(asked, 9).topics[0].partitions[0].leader_epoch == scene.epoch
    for known, code in (
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (scene.epoch, ErrorCode.NONE),
        (scene.epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        assert scene.fetch(CAME_OVER + LOST, known).error_code == code
        assert scene.at(OffsetSpec.LATEST, known)[0] == code
        assert scene.end_of(0, known)[0] == code


def test_each_batch_has_the_epoch_of_its_records(scene: Scene) -> None:
    """Also where records of two epochs are read at once, or are in one file."""
    both = [(0, 0, CAME_OVER), (CAME_OVER, scene.epoch, SINCE)]
    assert epochs(scene.fetch(0).records) == both
    assert epochs(scene.fetch(CAME_OVER - 1).records) == [(CAME_OVER - 1, 0, 1), both[1]]
    assert epochs(scene.fetch(CAME_OVER).records) == both[1:]


def test_a_fetch_that_names_the_epoch_of_its_last_record_hears_where_both_part(scene: Scene) -> None:
    """As those of kafka-python do."""
    found = scene.fetch(CAME_OVER + 1, scene.epoch, last=0)
    assert (found.error_code, bytes(found.records)) == (ErrorCode.NONE, b"")
    assert found.diverging_epoch == EpochEndOffset(0, CAME_OVER)
    for offset, last in ((CAME_OVER, 0), (CAME_OVER + 1, scene.epoch), (CAME_OVER - 1, 0), (5, NONE)):
        found = scene.fetch(offset, scene.epoch, last)
        assert (found.diverging_epoch, bool(found.records)) == (None, True)


def test_an_offset_has_the_epoch_of_its_record(scene: Scene) -> None:
    assert scene.at(OffsetSpec.EARLIEST) == (ErrorCode.NONE, 0, 0)
    assert scene.at(OffsetSpec.LATEST) == (ErrorCode.NONE, CAME_OVER + SINCE, scene.epoch)
    assert scene.at(2**50) == (ErrorCode.NONE, NONE, NONE)


def test_an_epoch_of_another_cluster_is_not_told_again(scene: Scene) -> None:
    """Java would ask for the metadata for ever if it heard one that is above ours, and go back to a wrong
    offset if it heard one below.
    """
    assert [scene.commit("g", epoch) for epoch in (0, scene.epoch)] == [0, scene.epoch]
    assert [scene.commit("g", epoch) for epoch in (NONE, 7, scene.epoch + 1)] == [NONE] * 3


def test_each_new_state_of_a_root_has_another_epoch(tmp_path: Path) -> None:
    """A new topic begins with that of its root, and a table that nobody writes to knows none before."""
    store, clock = standby_of(tmp_path), SystemClock()
    promote(store, clock)
    first = Cluster.open(store, clock, create=False)
    made = first.claim(create_topic(first, "new", 1), 0)
    append(made, b"v")
    again = open_store(str(tmp_path / "c"))
    follow(store, again)
    promote(again, clock, keep_id=True)
    second = Cluster.open(again, clock, create=False)
    one, two = first.log_epochs.newest, second.log_epochs.newest
    assert 0 < one < two
    assert second.topic("new").partition(0).snapshot.log_epochs == ((0, 0), (one, 0), (two, 1))
    assert second.topic("t").partition(0).snapshot.log_epochs == ((0, 0), (one, CAME_OVER), (two, CAME_OVER))
    assert check(again).problems == []
