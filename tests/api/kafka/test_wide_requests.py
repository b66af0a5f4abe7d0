"""The widest requests that there may be: none holds the event loop, and others are served meanwhile."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path as FilePath

import pytest

from api.kafka.clients.errors import ErrorCode
from api.kafka.handlers import RULES
from api.kafka.protocol.apis import APIS, Api
from api.kafka.protocol.messages.cluster import MetadataRequest, MetadataRequestTopic
from api.kafka.protocol.messages.groups import ConsumerGroupHeartbeatRequest
from api.kafka.protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from api.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from api.kafka.protocol.notation import Message
from coordinator.groups.classic.events import CommitOffsets, PendOffsets
from coordinator.groups.events import OffsetAndMetadata
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.limits import AUTO_CREATED_MAX, KAFKA_NAMES_MAX
from log_tables.topic_partition import TopicPartition
from tests.kit.kafka_asking import Asker, asker
from tests.kit.kafka_requests import VERSIONS
from tests.kit.kafka_served import KafkaServed, kafka_served
from tests.kit.kafka_widest import Path, arrays_of, widest
from tests.kit.loop_holds import HELD_MAX_S, Hold, Holds, loop_holds, shortest
from tests.kit.record_batches import Sent, kafka_python_batch
from tests.kit.secured import Secured

PENDED, PENDED_PARTITIONS = "pended", 600

WIDE = [api for api in APIS.values() if not RULES[api.key].is_public]


@dataclass
class Scene:
    """A gateway, and the keys of two clients: one is without any ACL, and one may do everything."""

    served: KafkaServed
    holds: Holds
    keys: dict[str, str]

    @contextmanager
    def client(self, name: str) -> Iterator[Asker]:
        with asker(self.served.port) as made:
            made.key(self.keys[name])
            yield made

    def send_one(self, lone: Asker) -> int:
        """Send a lone record, and return the code of its answer."""
        part = PartitionProduceData(index=0, records=kafka_python_batch([Sent(None, b"v", 1)]))
        topics = [TopicProduceData(name="lone", partition_data=[part])]
        asked = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=topics)
        answer = lone.ask(asked, 9)
        return int(answer.responses[0].partition_responses[0].error_code)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    root: FilePath = tmp_path_factory.mktemp("root")
    secured = Secured(root)
    for name, partitions in (("wide", 100), ("lone", 1), (PENDED, PENDED_PARTITIONS)):
        create_topic(secured.cluster, name, partitions)
    keys = {"poor": secured.key("User:bob"), "rich": secured.key()}
    with kafka_served(root, authentication_methods=("api-key",)) as served, loop_holds(served.loop) as holds:
        yield Scene(served, holds, keys)


def held_by(scene: Scene, api: Api, clients: int, requests: int) -> dict[tuple[str, Path], Hold]:
    """The longest hold of the event loop during the widest requests of `api`, for each array that can be
    wide. Each of `clients` sends `requests` of them without waiting; meanwhile the listener also takes a lone
    record.
    """
    version, held = VERSIONS.get(api.key, api.max_version), {}
    for path in arrays_of(api.request, version):
        wide = widest(api.request, path, KAFKA_NAMES_MAX, "wide", "g")
        small = widest(api.request, path, 1, "wide", "g")
        for name in scene.keys:
            asked = (*[wide] * requests, small)
            held[name, path] = shortest(partial(_hold_of, scene, name, asked, version, clients))
    return held


def _hold_of(scene: Scene, name: str, asked: Sequence[Message], version: int, clients: int) -> Hold:
    """The longest hold while so many `clients` with the key `name` send all that is `asked`, and one waits
    for a lone record.
    """
    with ExitStack() as open_:
        lone = open_.enter_context(scene.client("rich"))
        asking = [open_.enter_context(scene.client(name)) for _ in range(clients)]
        scene.holds.take()
        for client in asking:
            for each in asked:
                client.send(each, version)
        assert scene.send_one(lone) == 0
        for client in asking:
            for _ in asked:
                client.read_frame()
    return scene.holds.take()


@pytest.mark.parametrize("api", WIDE, ids=lambda api: api.name)
def test_the_widest_requests_hold_nobody_up(scene: Scene, api: Api) -> None:
    found = held_by(scene, api, clients=1, requests=1)
    assert {key: each for key, each in found.items() if each[0] > HELD_MAX_S} == {}


@pytest.mark.torture
@pytest.mark.parametrize("api", WIDE, ids=lambda api: api.name)
def test_many_of_the_widest_requests_hold_nobody_up(scene: Scene, api: Api) -> None:
    found = held_by(scene, api, clients=8, requests=4)
    assert {key: each for key, each in found.items() if each[0] > HELD_MAX_S} == {}


def test_an_expression_that_takes_long_holds_nobody_up(scene: Scene) -> None:
    numbers = count()

    def compiled() -> Hold:
        """Each is new to the gateway, and takes some tenths of a second."""
        with scene.client("rich") as client:
            scene.holds.take()
            asked = ConsumerGroupHeartbeatRequest(
                group_id="matched",
                member_id=f"m{next(numbers)}",
                rebalance_timeout_ms=10_000,
                subscribed_topic_regex=f"({'a?b?' * 230}){{0,{350 + next(numbers)}}}",
                topic_partitions=[],
            )
            assert client.ask(asked).error_code == ErrorCode.NONE
        return scene.holds.take()

    assert shortest(compiled)[0] <= HELD_MAX_S


def metadata(*names: str, create: bool = False) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


def test_a_request_that_names_more_than_it_may_is_not_worked_at(scene: Scene) -> None:
    with scene.client("poor") as client:
        client.send(metadata(*map(str, range(KAFKA_NAMES_MAX + 1))), 9)
        assert client.is_closed()


def test_what_is_named_twice_is_answered_once(scene: Scene) -> None:
    latest = ListOffsetsPartition(partition_index=0, timestamp=-1)
    many = ListOffsetsTopic(name="wide", partitions=[latest] * KAFKA_NAMES_MAX)
    with scene.client("rich") as client:
        (unknown,) = client.ask(metadata(*[""] * KAFKA_NAMES_MAX, create=True), 9).topics
        assert unknown.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        (topic,) = client.ask(ListOffsetsRequest(topics=[many, many]), 7).topics
        assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(0, 0)]


def test_a_request_for_metadata_makes_some_topics_and_no_more(scene: Scene) -> None:
    names = [f"made-{number}" for number in range(AUTO_CREATED_MAX + 5)]
    with scene.client("rich") as client:
        codes = [each.error_code for each in client.ask(metadata(*names, create=True), 9).topics]
        assert codes.count(ErrorCode.NONE) == AUTO_CREATED_MAX
        assert codes.count(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) == 5
        again = client.ask(metadata(*names, create=True), 9).topics
        assert {each.error_code for each in again} == {ErrorCode.NONE}


def test_very_many_offsets_that_wait_for_a_transaction_hold_nobody_up(scene: Scene) -> None:
    at = [TopicPartition(PENDED, partition) for partition in range(PENDED_PARTITIONS)]
    commit = CommitOffsets(offsets=dict.fromkeys(at, OffsetAndMetadata(5)), at_ms=1)
    groups = [OffsetFetchRequestGroup(group_id="pended", topics=None)]
    asked, numbers = OffsetFetchRequest(groups=groups, require_stable=True), count()

    def fetched() -> Hold:
        """Nobody has begun with the ids, so the group drops the offsets two seconds later."""
        pending = scene.served.gateway.classic.pend("pended", PendOffsets(f"x{next(numbers)}", 0, 1, commit))
        asyncio.run_coroutine_threadsafe(pending, scene.served.loop).result()
        with scene.client("rich") as client:
            scene.holds.take()
            (found,) = client.ask(asked, 9).groups[0].topics
            assert {each.error_code for each in found.partitions} == {ErrorCode.UNSTABLE_OFFSET_COMMIT}
        return scene.holds.take()

    assert shortest(fetched)[0] <= HELD_MAX_S
