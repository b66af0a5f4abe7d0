"""Where a group begins that has committed nothing: `latest` is the moment of its subscription."""

from typing import Any

from tests.kit.consumers import Instance
from tests.kit.gateway import RunningGateway
from tests.kit.support import wait_until


def all_that_comes(gateway: RunningGateway, named: str) -> list[str]:
    """Produce to old and new partitions of an old topic, to a new topic, and to a re-created one. Returns the
    values that the group must get.
    """
    gateway.produce(f"{named}-a", "to what was there", partition=0)
    grown = gateway.client.patch(f"{gateway.cluster}/topics/{named}-a", json={"partitions_count": 3})
    assert grown.is_success, grown.text
    for partition in (1, 2):
        gateway.produce(f"{named}-a", f"to the new partition {partition}", partition=partition)
    gateway.create_topic(f"{named}-later")
    gateway.produce(f"{named}-later", "to the new topic", partition=0)
    gateway.produce(f"{named}-again", "gone", partition=0)
    gateway.client.delete(f"{gateway.cluster}/topics/{named}-again")
    gateway.create_topic(f"{named}-again")
    gateway.produce(f"{named}-again", "to the topic that was made again", partition=0)
    return [
        "to the new partition 1",
        "to the new partition 2",
        "to the new topic",
        "to the topic that was made again",
        "to what was there",
    ]


def test_at_latest_a_group_is_given_all_that_came_after_its_subscription(
    gateway: RunningGateway, group: str
) -> None:
    """The group subscribes by a pattern or by names, before its first poll, and again after an end without a
    commit.
    """
    ways: list[dict[str, Any]] = [{"pattern": "NAMED-.*"}, {"topics": ("a", "again", "later")}]
    for number, way in enumerate(ways):
        named = f"{group}-{number}"
        for topic in ("a", "again"):
            gateway.create_topic(f"{named}-{topic}")
            gateway.produce(f"{named}-{topic}", "old", partition=0)
        topics = [f"{named}-{topic}" for topic in way.get("topics", ())]
        pattern = way.get("pattern", "").replace("NAMED", named)
        first = Instance(gateway.client, named, "first", auto_offset_reset="latest")
        first.subscribe(*topics, pattern=pattern)
        sent = all_that_comes(gateway, named)
        assert sorted(first.values(len(sent))) == sent
        first.delete()
        second = Instance(gateway.client, named, "second", auto_offset_reset="latest")
        second.subscribe(*topics, pattern=pattern)
        assert sorted(second.values(len(sent))) == sent


def test_what_came_while_a_group_had_no_members_is_not_for_one_that_begins_at_latest(
    gateway: RunningGateway, topic: str, group: str
) -> None:
    first = Instance(gateway.client, group, "first", auto_offset_reset="latest")
    first.subscribe(topic)
    first.delete()
    gateway.produce(topic, "where it has committed", partition=0)
    gateway.client.patch(f"{gateway.cluster}/topics/{topic}", json={"partitions_count": 3})
    gateway.produce(topic, "where it has not", partition=2)
    second = Instance(gateway.client, group, "second", auto_offset_reset="latest")
    second.subscribe(topic)
    gateway.produce(topic, "new", partition=2)
    assert sorted(second.values(2)) == ["new", "where it has committed"]


def test_at_latest_partitions_of_its_own_begin_when_they_are_assigned(
    gateway: RunningGateway, topic: str, group: str
) -> None:
    gateway.produce(topic, "old", partition=0)
    reader = Instance(gateway.client, group, "reader", auto_offset_reset="latest")
    own = {"partitions": [{"topic": topic, "partition": 0}]}
    assert reader.send("POST", "assignments", own).status_code == 204
    gateway.produce(topic, "new", partition=0)
    assert reader.values(1) == ["new"]
    assert reader.committed(topic, 0) == {}, "the offsets of the group are no business of its own"
    gateway.client.delete(f"{gateway.cluster}/topics/{topic}")
    gateway.create_topic(topic)
    gateway.produce(topic, "made again", partition=0)
    assert reader.values(1) == ["made again"]


def test_a_member_at_latest_goes_on_at_the_log_start_where_it_has_had_nothing(
    gateway: RunningGateway, topic: str, group: str
) -> None:
    reader = Instance(gateway.client, group, "reader", auto_offset_reset="latest")
    reader.subscribe(topic)
    gateway.produce(topic, *range(5), partition=0)
    assert gateway.client.delete(f"/topics/{topic}/partitions/0/records?before=3").is_success
    assert reader.values(2) == [3, 4]


def test_a_member_at_latest_takes_nothing_from_one_at_earliest(
    gateway: RunningGateway, topic: str, group: str
) -> None:
    """Both share a group that has committed nothing: the member at `latest` takes over where the other one
    began.
    """
    gateway.produce(topic, "old", partition=0)
    early = Instance(gateway.client, group, "early")
    early.subscribe(topic)
    late = Instance(gateway.client, group, "late", auto_offset_reset="latest")
    late.subscribe(topic)
    assert early.values(1) == ["old"]
    early.delete()
    wait_until(lambda: [record["value"] for record in late.poll(timeout=100)] == ["old"], "it comes again")
