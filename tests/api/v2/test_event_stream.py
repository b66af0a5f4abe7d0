"""The live tail of a partition: server-sent events, from an offset on, as records come."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import httpx
import pytest

from api.process.app import create_app
from api.process.server import open_gateway
from ingest.settings import Settings
from log_tables.cluster.access_record import Quota, quota_record
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.admin.topic_admin import create_topic
from tests.kit.gateway import RunningGateway, running_gateway, two_gateways
from tests.kit.produce import BINARY, post, records
from tests.kit.secured import Secured, acl, bearer
from tests.kit.support import wait_until

EVENTS = {"Accept": "text/event-stream"}
NOTHING: Mapping[str, str] = MappingProxyType({})


class Event(NamedTuple):
    id: str
    kind: str
    data: Any


class Tail:
    """An open stream, read as a browser reads it."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer, self._lines = answer, answer.iter_lines()

    def blocks(self) -> Iterator[list[str]]:
        block: list[str] = []
        for line in self._lines:
            if line:
                block.append(line)
            else:
                yield block
                block = []

    def events(self) -> Iterator[Event]:
        """The events that have data."""
        for block in self.blocks():
            fields = [line.partition(": ")[::2] for line in block]
            data = "\n".join(value for name, value in fields if name == "data")
            if data:
                named = dict(fields)
                yield Event(named.get("id", ""), named.get("event", "message"), json.loads(data))

    def take(self, count: int) -> list[Event]:
        found = self.events()
        return [next(found) for _ in range(count)]


@contextmanager
def tail(
    gateway: RunningGateway, topic: str, headers: Mapping[str, str] = NOTHING, **query: object
) -> Iterator[Tail]:
    url, params = f"{gateway.url}/topics/{topic}/partitions/0/records", {k: str(v) for k, v in query.items()}
    sent = {**EVENTS, **headers}
    with httpx.Client(timeout=60) as client, client.stream("GET", url, params=params, headers=sent) as answer:
        if answer.status_code != 200:
            answer.read()
        yield Tail(answer)


def offsets(events: list[Event]) -> list[int]:
    assert [int(event.id) for event in events] == [event.data["offset"] for event in events]
    return [event.data["offset"] for event in events]


def test_records_come_as_they_are_appended(gateway: RunningGateway, topic: str) -> None:
    gateway.produce(topic, {"n": 0}, {"n": 1}, partition=0)
    with tail(gateway, topic) as here:
        assert here.answer.headers["content-type"].startswith("text/event-stream")
        assert next(here.blocks()) == ["retry: 2000"]
        assert [event.data["value"] for event in here.take(2)] == [{"n": 0}, {"n": 1}]
        for number in range(2, 5):
            gateway.produce(topic, {"n": number}, partition=0)
            (event,) = here.take(1)
            assert (event.kind, event.id, event.data["value"]) == ("message", str(number), {"n": number})
    fetched = gateway.client.get(f"/topics/{topic}/partitions/0/records").json()
    with tail(gateway, topic) as here:
        assert [event.data for event in here.take(5)] == fetched, "an event has what a fetch has"


def test_a_tail_begins_where_it_is_told_to(gateway: RunningGateway, topic: str) -> None:
    gateway.produce(topic, *range(10), partition=0)
    with tail(gateway, topic, offset=7) as here:
        assert offsets(here.take(3)) == [7, 8, 9]
    with tail(gateway, topic, {"Last-Event-ID": "4"}, offset="earliest") as here:
        assert offsets(here.take(5)) == [5, 6, 7, 8, 9]
    with tail(gateway, topic, offset="latest") as here:
        gateway.produce(topic, "new", partition=0)
        assert offsets(here.take(1)) == [10]


def test_a_tail_from_latest_that_is_cut_before_its_first_record_goes_on_there(
    gateway: RunningGateway, topic: str
) -> None:
    for partition_end in (0, 1):
        with tail(gateway, topic, offset="latest") as here:
            retry, seen = next(here.blocks())
            assert (retry, seen) == ("retry: 2000", f"id: {partition_end - 1}")
        gateway.produce(topic, partition_end, partition=0)
        seen_id = seen.removeprefix("id: ")
        with tail(gateway, topic, {"Last-Event-ID": seen_id}, offset="latest") as here:
            assert offsets(here.take(1)) == [partition_end]


def test_a_key_chooses_records_and_the_place_moves_on(gateway: RunningGateway, topic: str) -> None:
    path = f"/topics/{topic}/partitions/0"
    post(gateway, path, records(*({"key": f"k{n % 3}", "value": n} for n in range(9))))
    post(gateway, path, records({"key": "azE=", "value": "Mg=="}), BINARY)  # k1 without quotes
    with tail(gateway, topic, key="k1") as here:
        assert [event.data["value"] for event in here.take(3)] == [1, 4, 7]
    with tail(gateway, topic, key="nobody") as here:
        found = here.blocks()
        assert [next(found), next(found)] == [["retry: 2000"], ["id: 9"]]
    with tail(gateway, topic, key="azE=", format="binary") as here:
        assert offsets(here.take(1)) == [9]


def test_values_with_line_breaks_are_one_event(gateway: RunningGateway, topic: str) -> None:
    values = ['{\n "a": 1,\r\n "b":\r"x\\ny"}', "[\n]"]
    bodies = ",".join(f'{{"value":{value}}}' for value in values)
    body = f'{{"records":[{bodies}]}}'.encode()
    assert post(gateway, f"/topics/{topic}/partitions/0", body).status_code == 200
    with tail(gateway, topic) as here:
        assert [event.data["value"] for event in here.take(2)] == [{"a": 1, "b": "x\ny"}, []]


def test_a_record_that_cannot_be_shown_ends_the_events_and_says_how_it_can(
    gateway: RunningGateway, topic: str
) -> None:
    gateway.produce(topic, 1, partition=0)
    post(gateway, f"/topics/{topic}/partitions/0", records({"value": "/w=="}), BINARY)
    with tail(gateway, topic) as here:
        first, last = here.events()
        assert (first.id, last.id, last.kind) == ("0", "", "failure")
        assert last.data["error_code"] == 42203
        assert "offset 1" in last.data["message"]
    with tail(gateway, topic, format="binary", offset=1) as here:
        assert here.take(1)[0].data["value"] == "/w=="


@pytest.mark.parametrize(
    ("query", "status", "code", "says"),
    [
        ({"offset": "9"}, 416, 41601, "9"),
        ({"offset": "-1"}, 400, 40002, "-1"),
        ({"offset": "x"}, 400, 40002, "'x'"),
        ({"format": "arrow"}, 400, 40002, "'arrow'"),
        ({"format": "binary", "key": "?"}, 400, 40002, "base64"),
        ({"timeout": "1"}, 400, 40002, "timeout"),
        ({"max_bytes": "1"}, 400, 40002, "max_bytes"),
    ],
)
def test_what_is_wrong_is_refused_before_the_first_event(
    query: dict[str, str], status: int, code: int, says: str, gateway: RunningGateway, topic: str
) -> None:
    with tail(gateway, topic, NOTHING, **query) as here:
        assert (here.answer.status_code, here.answer.json()["error_code"]) == (status, code)
        assert says in here.answer.json()["message"]


def test_what_is_for_events_is_refused_elsewhere(gateway: RunningGateway, topic: str) -> None:
    path = f"/topics/{topic}/partitions/0/records"
    for query in ({"key": "k"}, {"format": "json"}):
        told = gateway.client.get(path, params=query)
        assert (told.status_code, "text/event-stream" in told.json()["message"]) == (400, True)
    with tail(gateway, topic, {"Last-Event-ID": "x"}) as here:
        assert here.answer.status_code == 400
    with tail(gateway, "nowhere") as here:
        assert here.answer.status_code == 404


def test_events_come_from_any_gateway(tmp_path: Path) -> None:
    with two_gateways(tmp_path) as (first, second):
        first.create_topic("t")
        assert first.produce("t", 0, partition=0).status_code == 200
        with tail(second, "t") as here:
            assert offsets(here.take(1)) == [0]
            first.produce("t", 1, 2, partition=0)
            assert offsets(here.take(2)) == [1, 2]


def test_a_deleted_topic_and_a_stopping_gateway_end_the_events(tmp_path: Path) -> None:
    with running_gateway(tmp_path, linger_ms=0) as gateway:
        for name in ("gone", "there"):
            gateway.create_topic(name)
            gateway.produce(name, 0, partition=0)
        with tail(gateway, "gone") as here:
            here.take(1)
            gateway.client.delete("/topics/gone").raise_for_status()
            (last,) = here.events()
            assert (last.kind, last.data["error_code"]) == ("failure", 40401)
        with tail(gateway, "there") as here:
            here.take(1)
            ending = threading.Thread(target=gateway.stop)
            ending.start()
            assert [*here.events()] == [], "the answer ends in order"
            ending.join()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Secured, RunningGateway]]:
    """A gateway that authenticates its clients, and whose own client is a super user's."""
    data = tmp_path_factory.mktemp("tails")
    root = Secured(data)
    key = root.key()
    with running_gateway(data, linger_ms=0, authentication_methods="api-key") as gateway:
        gateway.client.headers.update(bearer(key))
        wait_until(lambda: gateway.client.get("/topics").is_success, "the key is known")
        yield root, gateway


def test_without_the_right_to_read_there_are_no_events_any_more(
    secured: tuple[Secured, RunningGateway],
) -> None:
    root, gateway = secured
    key, read = root.key("User:ann"), acl("User:ann", Operation.READ, ResourceType.TOPIC, "read")
    gateway.create_topic("read")
    gateway.produce("read", 0, partition=0)
    with tail(gateway, "read") as here:
        assert here.answer.status_code == 401

    def status() -> int:
        return gateway.client.get("/topics/read/partitions/0/records", headers=bearer(key)).status_code

    ends: list[Callable[[], None]] = [lambda: root.disallow(read), lambda: root.revoke(key)]
    for before, end in enumerate(ends):
        root.allow(read)
        wait_until(lambda: status() == 200, "the ACL is known")
        with tail(gateway, "read", bearer(key)) as here:
            here.take(1 + before)
            end()
            wait_until(lambda: status() != 200, "the change is known")
            gateway.produce("read", "secret", partition=0)
            (last,) = here.events()
            assert last.kind == "failure"
            assert last.data["error_code"] in (40101, 40301)


def test_a_tail_keeps_to_the_quota_of_its_principal(secured: tuple[Secured, RunningGateway]) -> None:
    root, gateway = secured
    key, quota = root.key("User:bob"), quota_record("User:bob", Quota(consumer_byte_rate=100_000))
    root.allow(acl("User:bob", Operation.READ, ResourceType.TOPIC, "paid"))
    root.cluster.metadata_log.change_access(lambda _: [quota])
    gateway.create_topic("paid")
    gateway.produce("paid", "x" * 250_000, partition=0)
    path = "/topics/paid/partitions/0/records?offset=latest"
    wait_until(lambda: gateway.client.get(path, headers=bearer(key)).is_success, "the key is known")
    with tail(gateway, "paid", bearer(key)) as here:
        here.take(1)
        gateway.produce("paid", "y", partition=0)
        blocks = here.blocks()
        assert next(blocks) == [":"], "it waits until the first record is paid for"
        assert offsets(here.take(1)) == [1]


def test_a_client_that_does_not_read_holds_up_no_other(gateway: RunningGateway, topic: str) -> None:
    for _ in range(10):
        gateway.produce(topic, *["x" * 1_000] * 1_000, partition=0)
    with tail(gateway, topic) as slow:
        slow.take(1)
        with tail(gateway, topic) as quick:
            assert len(quick.take(10_000)) == 10_000
        assert slow.take(1)[0].id == "1"


def test_a_tail_whose_client_has_left_ends_and_leaves_the_event_loop_to_others(tmp_path: Path) -> None:
    """To send to nobody and to ask whether the client is there both return at once, so neither lets others
    run.
    """
    gateway = open_gateway(Settings(data=str(tmp_path)), "http://test")
    create_topic(gateway.cluster, "t", 1)
    path, left, taken = "/topics/t/partitions/0/records", asyncio.Event(), list[bytes]()
    scope = {
        "type": "http",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"accept", b"text/event-stream")],
    }

    async def receive() -> dict[str, str]:
        if not left.is_set():
            await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.body":
            left.set()
            taken.append(message["body"])
            assert len(taken) < 10, "nobody takes them"

    asyncio.run(create_app(gateway)(scope, receive, send))
    assert taken[0] == b"retry: 2000\n\n"
