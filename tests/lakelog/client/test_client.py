"""Both faces of a client against a real gateway: topics, offsets, reading, an error for each refusal."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import httpx
import pytest

from lakelog import AsyncClient, Client, Record
from lakelog.client.client import READ_BYTES, Offsets
from log_tables import errors
from log_tables.clock import ManualClock
from log_tables.errors import LakelogError, Unreachable
from log_tables.record import RECORD_SCHEMA
from tests.kit.faces import Face
from tests.kit.gateway import RunningGateway
from tests.kit.produce import JSON, records
from tests.kit.support import free_port


@pytest.fixture(scope="module")
def client(face: Face, gateway: RunningGateway) -> Iterator[Client]:
    with face.client(gateway.url + "/") as running:
        yield running


def test_a_topic_lives_from_creation_to_deletion(face: Face, client: Client) -> None:
    name = f"client-life-{face.name}"
    client.create_topic(name, 2, {"compression.type": "lz4"})
    assert name in client.topics()
    assert client.topic(name)["configs"]["compression.type"] == "lz4"
    client.alter_topic(name, {"compression.type": None, "file.delete.delay.ms": "1000"})
    configs = client.topic(name)["configs"]
    assert (configs["compression.type"], configs["file.delete.delay.ms"]) == ("zstd", "1000")
    client.add_partitions(name, 3)
    assert client.partition_count(name) == 3
    client.delete_topic(name)
    assert name not in client.topics()
    client.create_topic(name)
    assert client.partition_count(name) == 1


def test_offsets_are_found_and_records_deleted(client: Client, gateway: RunningGateway, topic: str) -> None:
    assert client.offsets(topic, 0) == Offsets(0, 0)
    rows = [{"value": number, "timestamp": 1_000 * number} for number in range(5)]
    path = f"/topics/{topic}/partitions/0"
    assert client.post(path, records(*rows), {"Content-Type": JSON}).json()["offsets"][4]["offset"] == 4
    assert client.offsets(topic, 0, timestamp_ms=2_500) == Offsets(0, 5, 3)
    assert client.offsets(topic, 0, timestamp_ms=9_000).at is None
    assert client.delete_records(topic, 0, 2) == 2
    assert client.offsets(topic, 0) == Offsets(2, 5)


def test_a_fetch_is_a_table_and_says_where_to_go_on(
    client: Client, gateway: RunningGateway, topic: str
) -> None:
    gateway.produce(topic, *range(5), partition=0)
    got = client.fetch(topic, 0, 3)
    assert got.records.schema.equals(RECORD_SCHEMA)
    assert got.records["value"].to_pylist() == [b"3", b"4"]
    assert (got.next_offset, got.log_start_offset, got.high_watermark) == (5, 0, 5)
    assert client.fetch(topic, 0, "latest").records.num_rows == 0
    assert client.fetch(topic, 0, "latest", timeout_ms=20).next_offset == 5


def test_reading_goes_from_an_offset_to_the_end(client: Client, gateway: RunningGateway, topic: str) -> None:
    for start in range(0, 9, 3):
        gateway.produce(topic, *range(start, start + 3), partition=1)
    read = list(client.read(topic, 1, 2))
    assert all(isinstance(record, Record) for record in read)
    assert [(record.offset, record.value) for record in read] == [(n, b"%d" % n) for n in range(2, 9)]
    assert list(client.read(topic, 0)) == []
    assert sum(table.num_rows for table in client.read_tables(topic, 1)) == 9


def test_reading_goes_over_many_answers(client: Client, gateway: RunningGateway, topic: str) -> None:
    count = 3 * READ_BYTES // 1_000_000
    for number in range(count):
        gateway.produce(topic, f"{number:04}" * 250_000, partition=0)
    assert [int((record.value or b"")[1:5]) for record in client.read(topic, 0)] == [*range(count)]
    first = next(client.read(topic, 0, count - 2))  # and nobody reads the rest
    assert first.offset == count - 2
    assert sum(table.num_rows for table in client.read_tables(topic, 0)) == count
    assert len([*client.read_tables(topic, 0)]) > 1


def test_following_sees_what_comes_later(client: Client, gateway: RunningGateway, topic: str) -> None:
    gateway.produce(topic, "old", partition=0)
    following = client.read(topic, 0, follow=True)
    assert next(following).value == b'"old"'
    gateway.produce(topic, "new", "newer", partition=0)
    assert [record.value for record in islice(following, 2)] == [b'"new"', b'"newer"']


STAMP = {"Producer-Id": "1", "Producer-Epoch": "1", "Producer-Seq": "0"}


@pytest.mark.parametrize(
    ("path", "body", "headers", "kind", "details"),
    [
        ("/topics/nowhere", records({"value": 1}), {}, errors.UnknownTopic, {}),
        ("/topics/T/partitions/9", records({"value": 1}), {}, errors.UnknownPartition, {}),
        ("/topics/T", records(), {}, errors.InvalidRecord, {}),
        ("/topics/T?acks=7", records({"value": 1}), {}, errors.InvalidRequest, {}),
        ("/topics/T", records({"value": "x" * 2_000_000}), {}, errors.RecordTooLarge, {}),
        ("/topics/T", b"{", {}, errors.InvalidRequest, {}),
        ("/no/such/path", b"", {}, errors.NotFound, {}),
        (
            "/topics/T/partitions/0",
            records({"value": 1}),
            {"Expected-Offset": "3"},
            errors.OffsetMismatch,
            {"log_end_offset": 1},
        ),
        (
            "/topics/T/partitions/0",
            records({"value": 1}),
            STAMP | {"Producer-Seq": "5"},
            errors.SequenceGap,
            {"expected": 1},
        ),
        (
            "/topics/T/partitions/0",
            records({"value": 1}),
            STAMP | {"Producer-Epoch": "0"},
            errors.StaleProducerEpoch,
            {"current": 1},
        ),
    ],
)
def test_each_refusal_is_an_error_of_its_own(
    client: Client,
    topic: str,
    path: str,
    body: bytes,
    headers: dict[str, str],
    kind: type[LakelogError],
    details: dict[str, Any],
) -> None:
    client.post(f"/topics/{topic}/partitions/0", records({"value": 0}), {"Content-Type": JSON, **STAMP})
    with pytest.raises(LakelogError) as caught:
        client.post(path.replace("/T", f"/{topic}"), body, {"Content-Type": JSON, **headers})
    assert type(caught.value) is kind
    assert details.items() <= caught.value.details.items()
    assert client.offsets(topic, 0).end == 1


def test_reading_what_is_not_there_is_an_error_of_its_own(client: Client, topic: str) -> None:
    with pytest.raises(errors.OffsetOutOfRange) as caught:
        client.fetch(topic, 0, 7)
    assert (caught.value.details["log_start_offset"], caught.value.details["high_watermark"]) == (0, 0)
    with pytest.raises(errors.UnknownPartition):
        client.fetch(topic, 2)
    for ask in (client.topic, client.delete_topic, client.partition_count):
        with pytest.raises(errors.UnknownTopic, match="nowhere"):
            ask("nowhere")
    for name in ("../etc", "a b", "x" * 250):
        with pytest.raises(errors.InvalidRequest):
            client.create_topic(name)
    with pytest.raises(errors.InvalidRequest, match="colour"):
        client.alter_topic(topic, {"colour": "red"})
    with pytest.raises(errors.InvalidRequest):
        client.add_partitions(topic, 1)


def test_no_gateway_is_unreachable(face: Face) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with face.client(url) as client, pytest.raises(Unreachable, match=url):
        client.topics()


def answering(face: Face, *answers: httpx.Response) -> tuple[Client, list[httpx.Request]]:
    """A client whose network gives these answers, and the requests that it has seen."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return answers[min(len(seen), len(answers)) - 1]

    transport = httpx.MockTransport(answer)
    return face.client("http://gateway", transport=transport, clock=ManualClock()), seen


def refusal(status: int, code: int, **details: Any) -> httpx.Response:
    return httpx.Response(status, json={"error_code": code, "message": "said", **details})


def test_a_request_that_may_be_repeated_is_repeated(face: Face) -> None:
    busy = refusal(429, 42901, retry_after_s=1)
    client, seen = answering(face, busy, refusal(503, 50003), busy, httpx.Response(200, json=["t"]))
    assert client.topics() == ["t"]
    assert len(seen) == 4


class NoThreads(ThreadPoolExecutor):
    def submit(self, /, *_: Any, **__: Any) -> Any:
        raise AssertionError("the threads of an event loop are those of the program")


def test_pauses_on_an_event_loop_need_no_thread_of_it() -> None:
    answers = iter([refusal(503, 50003), refusal(503, 50003), httpx.Response(200, json=["t"])])

    async def asked() -> list[str]:
        asyncio.get_running_loop().set_default_executor(NoThreads())
        transport = httpx.MockTransport(lambda _: next(answers))
        async with AsyncClient(transport=transport, clock=ManualClock()) as client:
            return await client.topics()

    assert asyncio.run(asked()) == ["t"]


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [(429, 42901, errors.BufferFull), (503, 50003, errors.Retriable), (503, 50304, errors.NotLeader)],
)
def test_repeating_ends(face: Face, status: int, code: int, kind: type[LakelogError]) -> None:
    client, seen = answering(face, refusal(status, code, retry_after_s=1))
    with pytest.raises(kind, match="said"):
        client.topics()
    assert len(seen) == 31


def test_an_unknown_outcome_and_a_post_are_not_repeated(face: Face) -> None:
    client, seen = answering(face, refusal(503, 50303))
    with pytest.raises(errors.OutcomeUnknown):
        client.topics()
    client, posted = answering(face, refusal(503, 50304))
    with pytest.raises(errors.NotLeader):
        client.post("/topics/t", b"", {})
    assert (len(seen), len(posted)) == (1, 1)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"error_code": "x", "message": ""}', b"null"])
def test_an_answer_of_something_else_is_an_error_too(face: Face, body: bytes) -> None:
    client, _ = answering(face, httpx.Response(502, content=body))
    with pytest.raises(LakelogError, match="502"):
        client.topics()


@pytest.mark.parametrize(
    ("name", "configs", "kind"),
    [
        ("TAKEN", {}, errors.TopicExists),
        ("a b", {}, errors.InvalidTopicName),
        ("fine", {"retention.ms": "soon"}, errors.InvalidConfig),
        ("fine", {"no.such.setting": "1"}, errors.InvalidConfig),
    ],
)
def test_why_a_topic_is_not_created_is_a_class(
    client: Client, topic: str, name: str, configs: dict[str, str], kind: type[LakelogError]
) -> None:
    with pytest.raises(LakelogError) as refused:
        client.create_topic(name.replace("TAKEN", topic), 1, configs)
    assert type(refused.value) is kind
    assert "error" not in refused.value.details
