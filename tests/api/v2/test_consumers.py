"""Consumer instances over HTTP: the whole life of a group, and what is refused."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.kit.consumers import JSON, V2, Instance, settle
from tests.kit.gateway import RunningGateway, leave_every_tenth, running_gateway
from tests.kit.support import wait_until


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """A new group, named after the test."""
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in request.node.name)


def test_a_group_lives(gateway: RunningGateway, topic: str, group: str) -> None:
    gateway.produce(topic, "a", "b", partition=0)
    gateway.produce(topic, "c", partition=1)
    reader = Instance(gateway.client, group, "reader")
    reader.subscribe(topic)
    assert sorted(reader.values(3)) == ["a", "b", "c"]
    assert reader.assignment() == {(topic, 0), (topic, 1)}
    answer = reader.commit()
    assert (answer.status_code, answer.json()) == (200, [])
    assert reader.committed(topic, 0, 1) == {0: 2, 1: 1}
    reader.delete()
    assert reader.send("GET", "assignments").json()["error_code"] == 40403
    gateway.produce(topic, "d", partition=1)
    following = Instance(gateway.client, group, "following")
    following.subscribe(topic)
    assert following.values(1) == ["d"]


def test_an_answer_names_the_instance_and_where_it_is(gateway: RunningGateway, group: str) -> None:
    answer = gateway.client.post(f"/consumers/{group}", headers={"Content-Type": V2}).json()
    assert answer["instance_id"].startswith("rest-consumer-")
    assert answer["base_uri"] == f"{gateway.url}/consumers/{group}/instances/{answer['instance_id']}"
    odd = gateway.client.post(f"/consumers/{group}", json={"name": "a b?", "id": "c d?"}).json()
    assert odd["instance_id"] == "c d?"
    assert gateway.client.get(odd["base_uri"] + "/assignments").json() == {"partitions": []}


def test_members_share_and_take_over(gateway: RunningGateway, topic: str, group: str) -> None:
    first, second = (Instance(gateway.client, group, name) for name in ("first", "second"))
    first.subscribe(topic)
    settle([first])
    assert first.assignment() == {(topic, 0), (topic, 1)}
    second.subscribe(topic)
    settle([first, second])
    assert len(first.assignment()) == len(second.assignment()) == 1
    assert first.assignment() | second.assignment() == {(topic, 0), (topic, 1)}
    first.delete()
    settle([second])
    assert second.assignment() == {(topic, 0), (topic, 1)}


def test_a_silent_member_is_gone_after_its_session(gateway: RunningGateway, topic: str, group: str) -> None:
    silent = Instance(gateway.client, group, "silent", session_timeout_ms=500)
    silent.subscribe(topic)
    settle([silent])
    other = Instance(gateway.client, group, "other")
    other.subscribe(topic)

    def taken_over() -> bool:
        other.poll(timeout=100)
        return len(other.assignment()) == 2

    wait_until(taken_over, "the other member has both partitions")
    answer = silent.send("GET", "records")
    assert (answer.status_code, answer.json()["error_code"]) == (404, 40403)


def test_a_waiting_poll_gives_up_what_another_is_to_have(
    gateway: RunningGateway, topic: str, group: str
) -> None:
    first, second = (Instance(gateway.client, group, name) for name in ("first", "second"))
    first.subscribe(topic)
    settle([first])
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(first.poll, timeout=20_000)
        second.subscribe(topic)
        gateway_side = second.poll(timeout=15_000, generation=0)
        wait_until(lambda: len(_polled_assignment(second)) == 1, "the second has its share")
        gateway.produce(topic, "x", partition=0)
        gateway.produce(topic, "x", partition=1)
        assert waiting.result() or second.values(1)
    assert gateway_side == []


def _polled_assignment(instance: Instance) -> set[tuple[str, int]]:
    instance.poll()
    return instance.assignment()


def test_a_record_wakes_a_waiting_poll(gateway: RunningGateway, topic: str, group: str) -> None:
    reader = Instance(gateway.client, group, "reader", auto_offset_reset="latest")
    reader.subscribe(topic)
    reader.poll()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(reader.poll, timeout=25_000)
        gateway.produce(topic, "new", partition=1)
        assert [record["value"] for record in waiting.result()] == ["new"]


def test_the_client_that_says_its_generation_is_told_before_it_loses(
    gateway: RunningGateway, topic: str, group: str
) -> None:
    gateway.produce(topic, "a", partition=0)
    gateway.produce(topic, "b", partition=1)
    first, second = (Instance(gateway.client, group, name) for name in ("first", "second"))
    first.subscribe(topic)
    generation, got = _told(first)
    assert first.assignment() == {(topic, 0), (topic, 1)}
    assert sorted(got) == ["a", "b"]
    second.subscribe(topic)
    newer = first.client.get(f"{first.path}/records", params={"timeout": 10_000, "generation": generation})
    assert newer.json() == []
    assert int(newer.headers["Generation"]) > generation
    (lost,) = {(topic, 0), (topic, 1)} - first.assignment()
    assert second.poll() == []
    assert second.assignment() == set(), "nothing was given up yet"
    assert first.commit({lost: 0}).status_code == 200
    first.poll(generation=int(newer.headers["Generation"]))
    assert first.commit({lost: 0}).json()["error_code"] == 40913
    assert second.poll() == []
    assert second.assignment() == {lost}


def _told(instance: Instance, generation: int = 0, timeout: int = 0) -> tuple[int, list[str]]:
    """Poll with the newest generation known until there is no newer one: that one, and what it was given."""
    while True:
        query = {"timeout": timeout, "generation": generation}
        answer = instance.client.get(f"{instance.path}/records", params=query)
        newest = int(answer.headers["Generation"])
        if newest == generation:
            return generation, [record["value"] for record in answer.json()]
        assert answer.json() == [], "it is told before it is given more"
        generation = newest


def test_topics_that_come_later_and_new_partitions_join_in(gateway: RunningGateway, group: str) -> None:
    reader = Instance(gateway.client, group, "reader")
    reader.subscribe(pattern=f"{group}-[ab]")
    settle([reader])
    assert reader.assignment() == set()
    gateway.create_topic(f"{group}-a")
    gateway.create_topic(f"{group}-c")
    wait_until(lambda: _polled_assignment(reader) == {(f"{group}-a", 0)}, "the new topic is there")
    gateway.client.patch(f"{gateway.cluster}/topics/{group}-a", json={"partitions_count": 2})
    wait_until(lambda: len(_polled_assignment(reader)) == 2, "the new partition is there")
    assert reader.send("GET", "subscription").json() == {"topics": [f"{group}-a"]}


def test_a_topic_made_again_is_read_from_its_beginning(gateway: RunningGateway, group: str) -> None:
    name = gateway.create_topic(f"{group}-t")
    reader = Instance(gateway.client, group, "reader")
    reader.subscribe(name)
    gateway.produce(name, "old", "old too")
    assert len(reader.values(2)) == 2
    reader.commit()
    assert gateway.client.delete(f"{gateway.cluster}/topics/{name}").status_code == 204
    gateway.create_topic(name)
    gateway.produce(name, "new")
    assert reader.values(1) == ["new"]
    assert reader.committed(name, 0) == {}


def test_auto_commit_commits_what_was_done_with(gateway: RunningGateway, topic: str, group: str) -> None:
    gateway.produce(topic, 1, 2, partition=0)
    reader = Instance(gateway.client, group, "reader", auto_commit_enable="true", auto_commit_interval_ms=0)
    reader.subscribe(topic)
    assert reader.values(2) == [1, 2]
    assert reader.committed(topic, 0) == {}, "nobody has asked for more"
    reader.poll()
    wait_until(lambda: reader.committed(topic, 0) == {0: 2}, "the commit is there")
    gateway.produce(topic, 3, partition=0)
    assert reader.values(1) == [3]
    reader.delete()
    following = Instance(gateway.client, group, "following")
    following.subscribe(topic)
    assert following.committed(topic, 0) == {0: 3}


def test_positions(gateway: RunningGateway, topic: str, group: str) -> None:
    gateway.produce(topic, *range(10), partition=0)
    reader = Instance(gateway.client, group, "reader")
    reader.send("POST", "assignments", {"partitions": [{"topic": topic, "partition": 0}]})
    at = {"topic": topic, "partition": 0}
    assert reader.send("POST", "positions", {"offsets": [{**at, "offset": 7}]}).status_code == 204
    assert reader.values(3) == [7, 8, 9]
    assert reader.send("POST", "positions/beginning", {"partitions": [at]}).status_code == 204
    assert reader.values(10) == [*range(10)]
    assert reader.send("POST", "positions/end", {"partitions": [at]}).status_code == 204
    assert reader.poll() == []
    assert reader.send("POST", "positions", {"timestamps": [{**at, "timestamp": 0}]}).status_code == 204
    assert reader.values(10) == [*range(10)]
    late = {"timestamps": [{**at, "timestamp": "2999-01-01T00:00:00Z"}]}
    assert reader.send("POST", "positions", late).status_code == 204
    assert reader.poll() == []


def test_formats(gateway: RunningGateway, topic: str, group: str) -> None:
    gateway.produce(topic, "text", partition=0)
    binary = Instance(gateway.client, f"{group}-b", "reader", format="binary")
    binary.subscribe(topic)
    assert binary.values(1) == ["InRleHQi"]
    plain = Instance(gateway.client, f"{group}-t", "reader", format="text")
    plain.subscribe(topic)
    assert plain.values(1) == ['"text"']
    arrow = Instance(gateway.client, f"{group}-a", "reader", format="arrow")
    arrow.subscribe(topic)
    rows = arrow.poll_arrow().to_pylist()
    assert [(row["topic"], row["partition"], row["offset"], row["value"]) for row in rows] == [
        (topic, 0, 0, b'"text"')
    ]
    assert arrow.poll_arrow().num_rows == 0
    mismatch = arrow.client.get(f"{arrow.path}/records", headers={"Accept": JSON})
    assert (mismatch.status_code, mismatch.json()["error_code"]) == (406, 40601)


def test_max_bytes_and_fetch_min_bytes(gateway: RunningGateway, topic: str, group: str) -> None:
    gateway.produce(topic, *["x" * 1_000] * 50, partition=0)
    reader = Instance(gateway.client, group, "reader")
    reader.subscribe(topic)
    some = reader.poll(max_bytes=5_000)
    assert 1 <= len(some) < 50
    assert len(reader.values(50 - len(some))) == 50 - len(some)
    patient = Instance(gateway.client, f"{group}-p", "reader", fetch_min_bytes=10_000_000)
    patient.subscribe(topic)
    assert len(patient.poll(timeout=50)) == 50


@pytest.mark.parametrize("form", ["json", "arrow"])
def test_a_poll_of_a_segment_with_gaps_keeps_to_its_bytes(
    gateway: RunningGateway, topic: str, group: str, form: str
) -> None:
    gateway.produce(topic, *range(100), partition=0)
    leave_every_tenth(gateway, topic)
    reader = Instance(gateway.client, group, "reader", format=form)
    reader.subscribe(topic)
    for offset in range(0, 100, 10):
        rows = reader.poll(max_bytes=1) if form == "json" else reader.poll_arrow(max_bytes=1).to_pylist()
        assert [row["offset"] for row in rows] == [offset]


def test_a_record_that_is_not_json_stops_its_partition_only(
    gateway: RunningGateway, topic: str, group: str
) -> None:
    gateway.produce(topic, "good", partition=1)
    gateway.client.post(
        f"/topics/{topic}/partitions/0",
        json={"records": [{"value": "/w=="}]},
        headers={"Content-Type": "application/vnd.kafka.binary.v2+json"},
    )
    reader = Instance(gateway.client, group, "reader")
    reader.subscribe(topic)
    assert reader.values(1) == ["good"]
    stuck = reader.send("GET", "records")
    assert (stuck.status_code, stuck.json()["error_code"]) == (422, 42203)
    reader.send("POST", "positions", {"offsets": [{"topic": topic, "partition": 0, "offset": 1}]})
    assert reader.poll() == []


def test_who_begins_at_latest_misses_nothing_after_that(
    gateway: RunningGateway, topic: str, group: str
) -> None:
    gateway.produce(topic, "before", partition=0)
    short = Instance(gateway.client, group, "short", auto_offset_reset="latest")
    short.subscribe(topic)
    assert short.poll() == []
    assert short.committed(topic, 0, 1) == {0: 1, 1: 0}
    gateway.produce(topic, "between", partition=0)
    short.delete()
    following = Instance(gateway.client, group, "following", auto_offset_reset="latest")
    following.subscribe(topic)
    assert following.values(1) == ["between"]


def test_deleted_records_are_passed_over(gateway: RunningGateway, topic: str, group: str) -> None:
    gateway.produce(topic, *range(5), partition=0)
    reader = Instance(gateway.client, group, "reader")
    reader.subscribe(topic)
    assert len(reader.values(5)) == 5
    reader.commit({(topic, 0): 0})
    gateway.produce(topic, 5, partition=0)
    gateway.client.delete(f"/topics/{topic}/partitions/0/records", params={"before": 5})
    reader.delete()
    following = Instance(gateway.client, group, "following")
    following.subscribe(topic)
    assert following.values(1) == [5]


def test_a_groups_offsets_without_an_instance(gateway: RunningGateway, topic: str, group: str) -> None:
    path = f"/consumers/{group}/offsets"
    assert gateway.client.get(path).json()["error_code"] == 40405
    gateway.produce(topic, *range(4), partition=0)
    body = {"offsets": [{"topic": topic, "partition": 0, "offset": 3, "metadata": "note"}]}
    assert gateway.client.put(path, json=body).status_code == 204
    assert gateway.client.get(path).json() == body
    reader = Instance(gateway.client, group, "reader")
    reader.subscribe(topic)
    assert reader.values(1) == [3]
    refused = gateway.client.put(path, json=body)
    assert (refused.status_code, refused.json()["error_code"]) == (409, 40914)
    body["offsets"][0]["offset"] = 1
    assert gateway.client.put(path, json=body, params={"force": "true"}).status_code == 204
    assert reader.values(3) == [1, 2, 3]
    assert gateway.client.delete(f"/consumers/{group}").json()["error_code"] == 40914
    assert gateway.client.delete(f"/consumers/{group}", params={"force": "true"}).status_code == 204
    assert gateway.client.get(path).json()["error_code"] == 40405
    assert reader.send("GET", "assignments").json()["error_code"] == 40403


BAD: list[tuple[str, str, str, Any, int]] = [
    ("unknown instance", "GET", "/consumers/{g}/instances/nobody/records", None, 40403),
    ("unknown group", "GET", "/consumers/nobody/instances/nobody/assignments", None, 40403),
    ("name taken", "POST", "/consumers/{g}", {"name": "reader"}, 40902),
    ("unknown format", "POST", "/consumers/{g}", {"format": "avro"}, 42204),
    ("unknown reset", "POST", "/consumers/{g}", {"auto.offset.reset": "none"}, 42204),
    ("unknown field", "POST", "/consumers/{g}", {"colour": "red"}, 42204),
    ("another strategy", "POST", "/consumers/{g}", {"partition.assignment.strategy": "range"}, 42204),
    ("unknown strategy", "POST", "/consumers/{g}x", {"partition.assignment.strategy": "fair"}, 42204),
    ("differing", "POST", "/consumers/{g}", {"auto.commit.enable": True, "enable.auto.commit": False}, 42204),
    ("a slash", "POST", "/consumers/{g}", {"name": "a/b"}, 42204),
    ("a long group", "POST", "/consumers/" + "g" * 250, {}, 42204),
    ("not JSON", "POST", "/consumers/{g}", "{", 42204),
    ("no topics", "POST", "subscription", {"topics": []}, 42206),
    ("nothing", "POST", "subscription", {}, 42206),
    ("both", "POST", "subscription", {"topics": ["t"], "topic_pattern": "t"}, 40903),
    ("to a pattern", "POST", "subscription", {"topic_pattern": "t.*"}, 40903),
    ("a bad topic", "POST", "subscription", {"topics": ["a b"]}, 40002),
    ("mixed", "POST", "assignments", {"partitions": [{"topic": "{t}", "partition": 0}]}, 40903),
    ("negative", "POST", "offsets", {"offsets": [{"topic": "{t}", "partition": 0, "offset": -2}]}, 42206),
    ("not assigned", "POST", "offsets", {"offsets": [{"topic": "{u}", "partition": 0, "offset": 0}]}, 40913),
    ("no such topic", "POST", "offsets", {"offsets": [{"topic": "no", "partition": 0, "offset": 0}]}, 40401),
    ("no such partition", "GET", "offsets", {"partitions": [{"topic": "{t}", "partition": 7}]}, 40402),
    ("unassigned seek", "POST", "positions/end", {"partitions": [{"topic": "{u}", "partition": 0}]}, 40913),
    ("unassigned", "POST", "positions", {"offsets": [{"topic": "{u}", "partition": 0, "offset": 0}]}, 40913),
    (
        "a bad time",
        "POST",
        "positions",
        {"timestamps": [{"topic": "{t}", "partition": 0, "timestamp": "x"}]},
        40002,
    ),
    ("a bad timeout", "GET", "records?timeout=-2", None, 40002),
    ("a list", "POST", "subscription", [1], 42206),
]


@pytest.mark.parametrize(("case", "method", "path", "body", "code"), BAD, ids=[bad[0] for bad in BAD])
def test_what_cannot_be_is_refused_and_changes_nothing(
    gateway: RunningGateway, case: str, method: str, path: str, body: Any, code: int, group: str, topic: str
) -> None:
    other = gateway.create_topic(f"{topic}-other")
    gateway.produce(topic, 1, 2, partition=0)
    gateway.produce(other, 1)
    reader = Instance(gateway.client, group, "reader")
    reader.subscribe(topic)
    assert len(reader.values(2)) == 2
    reader.commit({(topic, 0): 0})
    before = _state(gateway, reader, topic)
    names = {"g": group, "t": topic, "u": other}
    answer = gateway.client.request(
        method,
        path.format(**names) if path.startswith("/") else f"{reader.path}/{path}",
        content=None if body is None else body if isinstance(body, str) else _filled(body, names),
        headers={"Content-Type": "application/vnd.kafka.v2+json"},
    )
    assert answer.json()["error_code"] == code, answer.text
    assert str(answer.status_code) == str(code)[:3]
    assert _state(gateway, reader, topic) == before


def _filled(body: Any, names: dict[str, str]) -> str:
    text = json.dumps(body)
    for name, value in names.items():
        text = text.replace("{" + name + "}", value)
    return text


def _state(gateway: RunningGateway, reader: Instance, topic: str) -> Any:
    groups = gateway.client.get(f"{gateway.cluster}/consumer-groups/{reader.group}/consumers").json()
    subscription = reader.send("GET", "subscription").json()
    return groups, subscription, reader.assignment(), reader.committed(topic, 0, 1)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "missing"),
        ("(?=a)b", "perl"),
        ("a" * 2_000, "1000"),
        ("[[:bad:]]", "class"),
        ("\ud800", "surrogates"),
    ],
)
def test_a_malformed_pattern_is_refused(gateway: RunningGateway, group: str, pattern: str, why: str) -> None:
    reader = Instance(gateway.client, group, "reader")
    answer = reader.send("POST", "subscription", {"topic_pattern": pattern})
    assert answer.json()["error_code"] == 42206
    assert why in answer.json()["message"]


def test_a_poll_without_a_subscription_is_refused(gateway: RunningGateway, group: str) -> None:
    reader = Instance(gateway.client, group, "reader")
    assert reader.send("GET", "records").json()["error_code"] == 40913


def test_a_restart_is_invisible(tmp_path: Path) -> None:
    with running_gateway(tmp_path, linger_ms=0) as gateway:
        topic = gateway.create_topic("t", partitions=2)
        gateway.produce(topic, *range(6), partition=0)
        one, two = (Instance(gateway.client, "g", name) for name in ("one", "two"))
        one.subscribe(topic)
        two.subscribe(pattern="t")
        settle([one, two])
        (owner,) = (i for i in (one, two) if (topic, 0) in i.assignment())
        assignments = [one.assignment(), two.assignment()]
        owner.send("POST", "positions", {"offsets": [{"topic": topic, "partition": 0, "offset": 1}]})
        got = owner.values(5)
        assert owner.commit({(topic, 0): 2}).status_code == 200
        by_hand = Instance(gateway.client, "g", "by-hand")
        by_hand.send("POST", "assignments", {"partitions": [{"topic": topic, "partition": 0}]})
        by_hand.send("POST", "positions", {"offsets": [{"topic": topic, "partition": 0, "offset": 4}]})
        gateway.kill()
    with running_gateway(tmp_path, linger_ms=0) as gateway:
        one, two = (Instance(gateway.client, "g", name, create=False) for name in ("one", "two"))
        assert [one.assignment(), two.assignment()] == assignments
        owner = Instance(gateway.client, "g", owner.name, create=False)
        assert owner.committed(topic, 0) == {0: 3}
        assert owner.values(3) == got[2:], "it goes on where it committed"
        assert [one.assignment(), two.assignment()] == assignments
        by_hand = Instance(gateway.client, "g", "by-hand", create=False)
        assert by_hand.values(2) == [4, 5], "it goes on where it was set to"


def test_an_instance_is_the_same_at_every_gateway(tmp_path: Path) -> None:
    with running_gateway(tmp_path, linger_ms=0) as first, running_gateway(tmp_path, linger_ms=0) as second:
        topic = first.create_topic("t", partitions=2)
        first.produce(topic, *range(4), partition=0)
        here = Instance(first.client, "g", "reader")
        here.subscribe(topic)
        assert here.values(4) == [0, 1, 2, 3]
        there = Instance(second.client, "g", "reader", create=False)
        second.produce(topic, 4, partition=0)
        assert there.values(1) == [4], "it goes on where the other gateway has come to"
        assert there.commit({(topic, 0): 1}).status_code == 200
        assert here.committed(topic, 0) == there.committed(topic, 0) == {0: 2}


def test_a_group_goes_on_at_another_gateway_where_it_has_committed(tmp_path: Path) -> None:
    with running_gateway(tmp_path, linger_ms=0) as first:
        topic = first.create_topic("t", partitions=2)
        first.produce(topic, *range(4), partition=0)
        here = Instance(first.client, "g", "reader")
        here.subscribe(topic)
        assert len(here.values(4)) == 4
        assert here.commit({(topic, 0): 1}).status_code == 200
        first.kill()
    with running_gateway(tmp_path, linger_ms=0) as second:
        there = Instance(second.client, "g", "reader", create=False)
        assert there.values(2) == [2, 3]
        assert there.committed(topic, 0) == {0: 2}


def test_a_gateway_that_stops_loses_no_place(tmp_path: Path) -> None:
    with running_gateway(tmp_path, linger_ms=0) as first, running_gateway(tmp_path, linger_ms=0) as second:
        topic = first.create_topic("t", partitions=2)
        first.produce(topic, *range(4), partition=0)
        here = Instance(first.client, "g", "reader")
        here.subscribe(topic)
        assert len(here.values(4)) == 4
        assert first.stop() == 0
        there = Instance(second.client, "g", "reader", create=False)
        second.produce(topic, 4, partition=0)
        assert there.values(1) == [4], "what was given before does not come again"
        assert there.committed(topic, 0) == {}


def test_v3_shows_groups_members_and_lags(gateway: RunningGateway, topic: str, group: str) -> None:
    gateway.produce(topic, *range(5), partition=0)
    gateway.produce(topic, *range(3), partition=1)
    reader = Instance(gateway.client, group, "reader")
    reader.subscribe(topic)
    assert len(reader.values(8)) == 8
    reader.commit({(topic, 0): 1, (topic, 1): 2})
    groups = f"{gateway.cluster}/consumer-groups"

    def get(path: str) -> Any:
        answer = gateway.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    assert group in {found["consumer_group_id"] for found in get(groups)["data"]}
    found = get(f"{groups}/{group}")
    assert (found["state"], found["partition_assignor"], found["is_simple"]) == ("STABLE", "sticky", False)
    (consumer,) = get(found["consumers"]["related"])["data"]
    assert consumer["consumer_id"] == "reader"
    owned = get(consumer["assignments"]["related"])["data"]
    assert [(at["topic_name"], at["partition_id"]) for at in owned] == [(topic, 0), (topic, 1)]
    assert get(owned[0]["lag"]["related"])["lag"] == 3
    lags = {entry["partition_id"]: entry for entry in get(f"{groups}/{group}/lags")["data"]}
    assert [
        (e["current_offset"], e["log_end_offset"], e["lag"], e["consumer_id"]) for e in lags.values()
    ] == [
        (2, 5, 3, "reader"),
        (3, 3, 0, "reader"),
    ]
    assert lags[0]["lag_bytes"] > 0
    assert lags[1]["lag_seconds"] == lags[1]["lag_bytes"] == 0
    gateway.client.delete(f"/topics/{topic}/partitions/0/records", params={"before": 4})
    summary = get(found["lag_summary"]["related"])
    assert (summary["max_lag"], summary["total_lag"], summary["max_lag_partition_id"]) == (1, 1, 0)
    assert gateway.client.get(f"{groups}/nobody").json()["error_code"] == 40405
    assert gateway.client.get(f"{groups}/{group}/consumers/nobody").json()["error_code"] == 40403


def test_nobody_produces_to_the_offsets_or_changes_their_topic(gateway: RunningGateway, group: str) -> None:
    Instance(gateway.client, group, "reader")
    offsets = f"{gateway.cluster}/topics/__consumer_offsets"
    assert gateway.produce("__consumer_offsets", 1).json()["error_code"] == 40002
    assert gateway.client.delete(offsets).json()["error_code"] == 40002
    assert gateway.client.patch(offsets, json={"partitions_count": 9}).json()["error_code"] == 40002
    assert "__consumer_offsets" not in gateway.client.get("/topics").json()
