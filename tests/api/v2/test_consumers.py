"""Consumer instances over HTTP: how they share topics, take over, and come back."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.kit.consumers import V2, Instance, settle
from tests.kit.gateway import RunningGateway, running_gateway, two_gateways
from tests.kit.support import wait_until


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
    """Poll with the newest generation until none is newer. Returns it, and the records that were given."""
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


def test_a_recreated_topic_is_read_from_its_beginning(gateway: RunningGateway, group: str) -> None:
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
    with two_gateways(tmp_path, linger_ms=0) as (first, second):
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
    with two_gateways(tmp_path, linger_ms=0) as (first, second):
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


def test_nobody_produces_to_the_offsets_or_changes_their_topic(gateway: RunningGateway, group: str) -> None:
    Instance(gateway.client, group, "reader")
    offsets = f"{gateway.cluster}/topics/__consumer_offsets"
    assert gateway.produce("__consumer_offsets", 1).json()["error_code"] == 40002
    assert gateway.client.delete(offsets).json()["error_code"] == 40002
    assert gateway.client.patch(offsets, json={"partitions_count": 9}).json()["error_code"] == 40002
    assert "__consumer_offsets" not in gateway.client.get("/topics").json()
