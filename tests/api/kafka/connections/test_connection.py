"""Connections of Kafka's clients that are wrong, slow or too many: they end, and nothing else does."""

import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.kafka.clients.errors import ErrorCode
from api.kafka.connections.connection import LOGIN_FRAME_MAX_BYTES
from api.kafka.connections.frame_reader import SMALL_FRAME_BYTES
from api.kafka.connections.request_line import FRAMES_MAX
from api.kafka.handlers import HANDLERS
from api.kafka.protocol.apis import APIS, PRODUCE
from api.kafka.protocol.messages.cluster import MetadataRequest
from api.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from api.kafka.protocol.messages.handshake import ApiVersionsRequest
from api.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from log_tables.limits import MIB
from tests.kit.kafka_asking import Asker, Closed, asker, frame, framed
from tests.kit.kafka_requests import VERSIONS, request_of
from tests.kit.kafka_served import KafkaServed, kafka_served
from tests.kit.record_batches import Sent, kafka_python_batch
from tests.kit.run_credential import is_secured
from tests.kit.secured import Secured
from tests.kit.support import wait_until

pytestmark = pytest.mark.skipif(is_secured(), reason="about an open gateway, and its own credentials")

OFFERED = sorted({PRODUCE, *HANDLERS})


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServed]:
    """A gateway whose clients have half a second to send and to take."""
    root = tmp_path_factory.mktemp("root")
    with kafka_served(root, receive_timeout_ms=500, send_timeout_ms=500) as served:
        yield served


@pytest.fixture(autouse=True)
def nothing_is_left(here: KafkaServed) -> Iterator[None]:
    """After each test the gateway holds nothing of its connections."""
    yield
    wait_until(here.is_idle, "nothing is held")


def is_well(here: KafkaServed) -> bool:
    """Whether the listener still answers another client."""
    with asker(here.port) as client:
        return bool(client.ask(MetadataRequest(topics=[])).cluster_id)


def produce(topic: str, size: int, value: bytes = b"x") -> ProduceRequest:
    batch = kafka_python_batch([Sent(None, value * size, 1)])
    topics = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])]
    return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=topics)


def create(here: KafkaServed, topic: str) -> None:
    with asker(here.port) as client:
        client.ask(request_of(MetadataRequest, topic, "g"))


def fetched(client: Asker, topic: str) -> int:
    """The bytes of records in an answer for which little was asked."""
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    topics = [FetchTopic(topic=topic, partitions=[part])]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1_000, topics=topics)
    return len(client.ask(request, 12).responses[0].partitions[0].records)


@st.composite
def wrong_bytes(draw: st.DrawFn) -> bytes:
    """Frames that are cut, changed, long, or nothing of the kind."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=300)) if draw(st.booleans()) else framed(draw(st.binary(max_size=300)))
    key = draw(st.sampled_from(OFFERED))
    versions = APIS[key].request.versions
    version = draw(st.integers(versions.first, VERSIONS.get(key, versions.last)))
    sent = bytearray(frame(request_of(APIS[key].request, "fuzzed", "fuzzed"), version)[4:])
    for _ in range(draw(st.integers(0, 4))):
        sent[draw(st.integers(0, len(sent) - 1))] = draw(st.integers(0, 255))
    cut = draw(st.integers(0, len(sent)))
    return framed(bytes(sent[:cut] if draw(st.booleans()) else sent))


@settings(max_examples=150, deadline=None)
@given(st.lists(wrong_bytes(), min_size=1, max_size=4))
def test_random_frames_end_their_connection_alone(here: KafkaServed, sent: list[bytes]) -> None:
    with asker(here.port) as client, suppress(Closed, OSError):
        for each in sent:
            client.write(each)
        client.socket.shutdown(socket.SHUT_WR)
        while True:
            client.read_frame()
    assert is_well(here)


@pytest.mark.parametrize("size", [-1, 0, 7, 2**31 - 1])
def test_a_frame_of_no_allowed_size_ends_the_connection(here: KafkaServed, size: int) -> None:
    with asker(here.port) as client:
        client.write(struct.pack(">i", size) + b"x")
        assert client.is_closed()


def test_what_is_not_offered_ends_the_connection(here: KafkaServed) -> None:
    for key, version in ((999, 0), (-1, 0), (3, 99), (27, 1), (24, 4)):
        with asker(here.port) as client:
            client.write(framed(struct.pack(">hhih", key, version, 1, -1) + b"\0" * 8))
            assert client.is_closed()


def test_an_unknown_version_of_api_versions_is_told_those_that_there_are(here: KafkaServed) -> None:
    with asker(here.port) as client:
        client.write(framed(struct.pack(">hhih", 18, 99, 1, -1) + b"\0"))
        answer = client.answer(ApiVersionsRequest, 0)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert {each.api_key for each in answer.api_keys} == {PRODUCE, *HANDLERS}
        assert client.ask(ApiVersionsRequest()).error_code == 0


def test_announced_bytes_hold_nothing(here: KafkaServed) -> None:
    create(here, "announced")
    with ExitStack() as open_:
        for _ in range(300):
            client = open_.enter_context(asker(here.port))
            client.write((32 * MIB).to_bytes(4, "big") + b"\0" * (SMALL_FRAME_BYTES - 100))
        with asker(here.port) as honest:
            answer = honest.ask(produce("announced", MIB), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
        assert here.gateway.buffer.used == 0


def test_half_a_request_ends_in_time_and_gives_back_its_room(here: KafkaServed) -> None:
    with ExitStack() as open_:
        clients = [open_.enter_context(asker(here.port)) for _ in range(3)]
        for client in clients:
            client.write((MIB).to_bytes(4, "big") + b"\0" * (SMALL_FRAME_BYTES + 100))
        wait_until(lambda: here.gateway.buffer.used >= 3 * MIB, "they hold room")
        assert is_well(here)
        assert all(client.is_closed() for client in clients)


def test_a_client_that_takes_nothing_of_its_answers_is_closed(here: KafkaServed) -> None:
    create(here, "untaken")
    with asker(here.port) as client:
        for _ in range(12):
            client.ask(produce("untaken", MIB), 9)
        part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=8 * MIB)
        topics = [FetchTopic(topic="untaken", partitions=[part])]
        request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=8 * MIB, topics=topics)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        for _ in range(5):
            client.send(request, 12)
        wait_until(lambda: here.listener.answers.used > MIB, "an answer is held")
        assert is_well(here)
        wait_until(lambda: len(here.listener) == 0, "the connection is closed")


def test_an_answer_without_memory_has_no_records_until_there_is_some(here: KafkaServed) -> None:
    create(here, "crowded")
    with asker(here.port) as client, here.listener.answers.room("others") as others:
        client.ask(produce("crowded", MIB // 2), 9)
        others.settle(here.listener.answers.limit_bytes - MIB // 4)
        assert fetched(client, "crowded") == 0
        others.settle(0)
        assert fetched(client, "crowded") > MIB // 2


def test_many_large_requests_leave_room_for_what_is_made_of_them(tmp_path: Path) -> None:
    with kafka_served(tmp_path, max_request_bytes=MIB, buffer_memory=8 * MIB) as small, ExitStack() as open_:
        create(small, "many")
        clients = [open_.enter_context(asker(small.port)) for _ in range(16)]
        sent = produce("many", MIB // 2 + MIB // 4)
        threads = [Thread(target=client.send, args=(sent, 9)) for client in clients]  # some wait unread
        for thread in threads:
            thread.start()
        answers = [client.answer(ProduceRequest, 9) for client in clients]
        for thread in threads:
            thread.join()
        codes = [each.responses[0].partition_responses[0].error_code for each in answers]
        assert codes == [ErrorCode.NONE] * len(clients)


def test_requests_that_are_sent_ahead_are_answered_in_their_order(here: KafkaServed) -> None:
    with asker(here.port) as client:
        create(here, "ahead")
        count = 3 * FRAMES_MAX
        for number in range(count):
            client.send(produce("ahead", 1) if number % 3 else MetadataRequest(topics=[]), 9)
        for number in range(count):
            (found,) = struct.unpack(">i", client.read_frame()[:4])
            assert found == number + 1


@pytest.mark.parametrize(("key", "version"), [(45, 0), (PRODUCE, 99), (999, 0)])
def test_what_comes_before_a_request_that_is_not_offered_is_answered(
    here: KafkaServed, key: int, version: int
) -> None:
    """The connection ends, as Kafka's does, but no answer is lost with it."""
    with asker(here.port) as client:
        create(here, f"before-{key}")
        for _ in range(5):
            client.send(produce(f"before-{key}", 1), 9)
        client.write((15).to_bytes(4) + struct.pack(">hhih5s", key, version, 6, 4, b"mine\0"))
        codes = [client.answer(ProduceRequest, 9).responses[0].partition_responses[0] for _ in range(5)]
        assert [(each.error_code, each.base_offset) for each in codes] == [(0, at) for at in range(5)]
        assert client.is_closed()


def test_a_connection_that_ends_amid_its_requests_leaves_nothing(here: KafkaServed) -> None:
    create(here, "left")
    for size in (1, 100_000, MIB):
        with asker(here.port) as client:
            for _ in range(10):
                client.send(produce("left", size), 9)
    assert is_well(here)


def test_connections_are_bounded(tmp_path: Path) -> None:
    with kafka_served(tmp_path, most=3) as few, ExitStack() as open_:
        clients = [open_.enter_context(asker(few.port)) for _ in range(3)]
        assert all(client.ask(MetadataRequest(topics=[])).cluster_id for client in clients)
        with asker(few.port) as more, pytest.raises(Closed):
            more.ask(MetadataRequest(topics=[]))
    with kafka_served(tmp_path, max_connections_per_ip=2) as few, ExitStack() as open_:
        clients = [open_.enter_context(asker(few.port)) for _ in range(2)]
        assert all(client.ask(MetadataRequest(topics=[])).cluster_id for client in clients)
        with asker(few.port) as more, pytest.raises(Closed):
            more.ask(MetadataRequest(topics=[]))
        with asker(few.port, source="127.0.0.9") as other:
            assert other.ask(MetadataRequest(topics=[])).cluster_id


def test_a_connection_without_a_login_gives_way_to_a_new_one(tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    key = secured.key()
    with kafka_served(tmp_path, most=3, authentication_methods=("api-key",)) as few, ExitStack() as open_:
        known = open_.enter_context(asker(few.port))
        known.key(key)
        silent = [open_.enter_context(asker(few.port)) for _ in range(2)]
        silent[1].ask(ApiVersionsRequest())
        silent[1].write((LOGIN_FRAME_MAX_BYTES).to_bytes(4, "big"))
        for closed in silent:
            new = open_.enter_context(asker(few.port))
            assert new.key(key).error_code == 0
            assert closed.is_closed()
        assert known.ask(MetadataRequest(topics=[])).cluster_id
        with asker(few.port) as more, pytest.raises(Closed):
            more.key(key)


def test_an_idle_connection_is_closed(tmp_path: Path) -> None:
    with kafka_served(tmp_path, kafka_connections_max_idle_ms=300) as idle, asker(idle.port) as client:
        assert client.ask(MetadataRequest(topics=[])).cluster_id
        assert client.is_closed()


def test_metrics_count_requests_errors_and_connections(here: KafkaServed) -> None:
    with asker(here.port) as client:
        client.ask(request_of(APIS[PRODUCE].request, "no such topic", "g"), 9)
        text = here.gateway.metrics.render().decode()
    assert 'lakelog_kafka_request_seconds_count{api="Produce"}' in text
    assert 'lakelog_kafka_errors_total{error="INVALID_TOPIC_EXCEPTION"}' in text or "UNKNOWN_TOPIC" in text
    assert "lakelog_kafka_connections 1.0" in text
