"""Reading over HTTP what a mirror has copied: from inside gaps, over them, and from the gap at the end."""

import json
from typing import Any

import httpx
import pyarrow as pa
import pytest

from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.store.store import open_store
from tests.kit.gateway import RunningGateway
from tests.kit.mirrored import END, OFFSETS, copy, key_of, mirrored_topic, promote, value_of
from tests.kit.produce import ARROW, BINARY, JSON, TEXT
from tests.kit.support import WAIT_S

EVENTS = "text/event-stream"


@pytest.fixture
def cluster(gateway: RunningGateway) -> Cluster:
    """The root of the gateway, as a mirror's process opens it."""
    return Cluster.open(open_store(gateway.data))


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> Topic:
    return mirrored_topic(cluster, request.node.name.replace("[", "-").replace("]", ""))


def fetch(gateway: RunningGateway, topic: Topic, accept: str = JSON, **query: Any) -> httpx.Response:
    answer = gateway.client.get(
        f"/topics/{topic.name}/partitions/0/records", params=query, headers={"Accept": accept}
    )
    assert answer.status_code == 200, answer.text
    return answer


def place(answer: httpx.Response) -> tuple[int, int]:
    return int(answer.headers["Next-Offset"]), int(answer.headers["High-Watermark"])


def test_each_offset_is_read_in_each_format(gateway: RunningGateway, topic: Topic) -> None:
    for start in range(END + 1):
        expected = [offset for offset in OFFSETS if offset >= start]
        for form in (JSON, BINARY, TEXT):
            answer = fetch(gateway, topic, form, offset=start)
            assert [each["offset"] for each in answer.json()] == expected
            assert place(answer) == (END, END)
        answer = fetch(gateway, topic, ARROW, offset=start)
        assert pa.ipc.open_stream(answer.content).read_all()["offset"].to_pylist() == expected
    found = fetch(gateway, topic).json()
    assert [json.dumps(each["value"], separators=(",", ":")).encode() for each in found] == [
        value_of(offset) for offset in OFFSETS
    ]
    assert [json.dumps(each["key"]).encode() for each in found] == [key_of(offset) for offset in OFFSETS]


def test_small_fetches_get_on_to_the_end(gateway: RunningGateway, topic: Topic) -> None:
    offset, found = 0, []
    while offset < END:
        answer = fetch(gateway, topic, offset=offset, max_bytes=1)
        found += [each["offset"] for each in answer.json()]
        assert place(answer)[0] > offset
        offset = place(answer)[0]
    assert found == [*OFFSETS]


def test_a_long_poll_in_the_gap_says_where_to_go_on_and_one_at_the_end_waits(
    gateway: RunningGateway, cluster: Cluster, topic: Topic
) -> None:
    wait_ms = int(WAIT_S * 1_000)
    answer = fetch(gateway, topic, offset=17, timeout=wait_ms)
    assert (answer.json(), place(answer)) == ([], (END, END))
    assert fetch(gateway, topic, offset=END, timeout=1).json() == []
    copy(cluster, topic, 0, [23], 25)
    assert [each["offset"] for each in fetch(gateway, topic, offset=END, timeout=wait_ms).json()] == [23]


@pytest.mark.parametrize("start", [0, 10, 14, 17])
def test_events_come_over_gaps_and_from_the_gap_at_the_end(
    gateway: RunningGateway, cluster: Cluster, topic: Topic, start: int
) -> None:
    expected = [offset for offset in OFFSETS if offset >= start]
    path = f"/topics/{topic.name}/partitions/0/records"
    with gateway.client.stream(
        "GET", path, params={"offset": start}, headers={"Accept": EVENTS}, timeout=WAIT_S
    ) as answer:
        ids = (int(line[4:]) for line in answer.iter_lines() if line.startswith("id: "))
        assert [next(ids) for _ in expected] == expected
        copy(cluster, topic, 0, [23], 25)
        assert next(ids) == 23
    after = {"Accept": EVENTS, "Last-Event-ID": "15"}
    with gateway.client.stream("GET", path, headers=after, timeout=WAIT_S) as answer:
        assert next(line for line in answer.iter_lines() if line.startswith("id: ")) == "id: 23"


def test_offsets_are_looked_up(gateway: RunningGateway, topic: Topic) -> None:
    def looked_up(**query: int) -> Any:
        path = f"/topics/{topic.name}/partitions/0/offsets"
        answer = gateway.client.get(path, params=query)
        return answer.json().get("offset", answer.status_code)

    assert [looked_up(newest=count) for count in (0, 1, 2, 3, 5, 9)] == [20, 15, 13, 9, 7, 7]
    assert looked_up(timestamp=0) == 7
    assert looked_up(timestamp=0, newest=1) == 400
    assert looked_up(newest=-1) == 400


@pytest.mark.parametrize("max_bytes", [None, 1])
def test_a_group_reads_it_to_the_end_and_has_no_lag_then(
    gateway: RunningGateway, cluster: Cluster, topic: Topic, max_bytes: int | None
) -> None:
    instance = f"/consumers/{topic.name}/instances/i"

    def ask(method: str, path: str, **given: Any) -> Any:
        answer = gateway.client.request(method, path, **given)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def polled() -> list[tuple[int, Any]]:
        query = {"timeout": 0} if max_bytes is None else {"timeout": 0, "max_bytes": max_bytes}
        found = ask("GET", f"{instance}/records", params=query, headers={"Accept": JSON})
        return [(each["offset"], each["value"]) for each in found]

    def read() -> list[tuple[int, Any]]:
        found = [record for _ in range(2 * len(OFFSETS)) for record in polled()]
        ask("POST", f"{instance}/offsets", headers={"Content-Type": "application/json"})
        return found

    def lag() -> tuple[int, int]:
        group = f"{gateway.cluster}/consumer-groups/{topic.name}/lags"
        (one,) = ask("GET", group)["data"]
        return one["current_offset"], one["lag"]

    ask(
        "POST",
        f"/consumers/{topic.name}",
        json={"name": "i", "format": "json", "auto.offset.reset": "earliest"},
    )
    ask("POST", f"{instance}/subscription", json={"topics": [topic.name]})
    assert read() == [(offset, {"n": offset}) for offset in OFFSETS]
    assert lag() == (END, 0)
    copy(cluster, topic, 0, [], 30)
    assert read() == []
    assert lag() == (30, 0)
    promote(cluster, topic.name)
    gateway.produce(topic.name, "ours", partition=0).raise_for_status()
    assert read() == [(30, "ours")]
    assert lag() == (31, 0)
