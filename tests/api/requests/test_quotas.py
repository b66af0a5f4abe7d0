"""The limits on instances, groups, sessions and subscriptions that clients can make a gateway keep."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import httpx
import pytest

from coordinator.groups.events import (
    Delete,
    Join,
    Leave,
    OffsetAndMetadata,
    Reset,
    Subscribe,
    TopicState,
    Undo,
)
from coordinator.groups.shard import Shard
from ingest.settings import Settings, load_settings
from ingest.writer import Writer
from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import MemberConfig
from log_tables.errors import InvalidConfig, InvalidSubscription
from log_tables.limits import GROUPS_LOOKED_AT, SUBSCRIPTION_MAX_CHARS, UNDO_GROUPS_MAX
from log_tables.store.store import open_store
from log_tables.topic_partition import TopicPartition
from tests.kit.gateway import RunningGateway, running_gateway

AT = TopicPartition("t", 0)
RETENTION_MS = 60_000


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway of three groups, of two instances each and of four in all; and of five partitions."""
    bounds = {"groups_max": 3, "group_max_size": 2, "consumer_instances_max": 4, "partitions_max": 5}
    with running_gateway(tmp_path_factory.mktemp("small"), linger_ms=0, **bounds) as running:
        running.create_topic("t")
        yield running


@pytest.fixture(autouse=True)
def _no_groups(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "small" in request.fixturenames:
        client = request.getfixturevalue("small").client
        for group in ("a", "b", "c", "d"):
            client.delete(f"/consumers/{group}", params={"force": "true"})


def create(gateway: RunningGateway, group: str, name: str, **config: object) -> httpx.Response:
    body = {"name": name, **{key.replace("_", "."): value for key, value in config.items()}}
    return gateway.client.post(f"/consumers/{group}", json=body)


def refused(answer: httpx.Response, setting: str) -> bool:
    """Assert that the answer is a 429, and say whether its message names the limit `setting`."""
    error = answer.json()
    assert (answer.status_code, error["error_code"]) == (429, 42901), answer.text
    assert answer.headers["Retry-After"] == "1"
    return f"than {setting} allows" in error["message"] or f"as {setting} allows" in error["message"]


def test_a_group_has_so_many_instances_and_no_more(small: RunningGateway) -> None:
    for name in ("1", "2"):
        assert create(small, "a", name).status_code == 200
    assert refused(create(small, "a", "3"), "group_max_size")
    assert create(small, "a", "2").status_code == 409, "one that is there is told so"
    small.client.delete("/consumers/a/instances/1")
    assert create(small, "a", "3").status_code == 200


def test_a_gateway_has_so_many_instances_and_no_more(small: RunningGateway) -> None:
    for group in ("a", "b"):
        for name in ("1", "2"):
            assert create(small, group, name).status_code == 200
    assert refused(create(small, "c", "1"), "consumer_instances_max")


def test_a_gateway_has_so_many_groups_and_no_more_however_they_are_made(small: RunningGateway) -> None:
    offsets = {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]}
    for group in ("a", "b", "c"):
        assert small.client.put(f"/consumers/{group}/offsets", json=offsets).status_code == 204
    assert refused(small.client.put("/consumers/d/offsets", json=offsets), "groups_max")
    assert refused(create(small, "d", "1"), "groups_max")
    records = {"records": [{"topic": "t", "value": 1}]}
    media = {"content-type": "application/vnd.kafka.json.v2+json"}
    answer = small.client.post("/consumers/d/transactions", json=records, headers=media)
    assert refused(answer, "groups_max")
    assert small.client.put("/consumers/a/offsets", json=offsets).status_code == 204, "one that is there"


def test_there_are_so_many_partitions_and_no_more(small: RunningGateway) -> None:
    wide = {"topic_name": "wide", "partitions_count": 6}
    for path in (f"{small.cluster}/topics", "/topics"):
        assert refused(small.client.post(path, json=wide), "partitions_max")
    small.create_topic("narrow", 4)
    grown = small.client.patch(f"{small.cluster}/topics/narrow", json={"partitions_count": 5})
    assert refused(grown, "partitions_max")


@pytest.mark.parametrize("session_ms", [99, 1_800_001, 2**31 - 1])
def test_a_session_is_as_long_as_the_settings_allow(small: RunningGateway, session_ms: int) -> None:
    answer = create(small, "a", "m", session_timeout_ms=session_ms)
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42204)
    assert f"session.timeout.ms={session_ms} is not from 100 to 1800000" in answer.json()["message"]


@pytest.mark.parametrize("session_ms", [100, 1_800_000])
def test_the_bounds_of_a_session_are_allowed(small: RunningGateway, session_ms: int) -> None:
    assert create(small, "a", "m", session_timeout_ms=session_ms).status_code == 200


def test_settings_by_which_no_instance_could_be_created_are_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"consumer_instance_timeout_ms \(300000\) is not from"):
        load_settings(group_max_session_timeout_ms=1_000)


def run(scenario: Callable[[Shard, ManualClock], Awaitable[None]]) -> None:
    """Run `scenario` with a shard that knows the topic "t", and the clock by which it forgets."""

    async def main() -> None:
        clock = ManualClock()
        cluster = Cluster.open(open_store("memory://"), clock, "http://here")
        create_topic(cluster, "t")
        writer = Writer(cluster, Settings(linger_ms=0, commits_per_second_max=0), clock)
        await writer.start()
        shard = Shard(cluster, await writer.accumulator_for(cluster.topic("t"), 0), clock)
        shard.follow({"t": TopicState("id", 1)})
        await scenario(shard, clock)
        await shard.wait_all_durable()
        await writer.close()

    asyncio.run(main())


def test_a_group_without_instances_is_forgotten_when_its_time_is_over() -> None:
    async def scenario(shard: Shard, clock: ManualClock) -> None:
        shard.apply("g", Join("m", MemberConfig()))
        shard.apply("g", Subscribe("m", frozenset({"t"})))
        clock.advance(10 * RETENTION_MS)
        assert not shard.expire(RETENTION_MS)
        assert shard.group("g").members, "whoever has instances is not forgotten, however silent"
        shard.apply("g", Leave("m"))
        shard.expire(RETENTION_MS)  # now it is known that it has none
        clock.advance(RETENTION_MS)
        shard.expire(RETENTION_MS)
        assert shard.group("g").exists
        clock.advance(1)
        await shard.wait_all_durable()
        shard.expire(RETENTION_MS)
        assert not shard.group("g").exists
        await shard.wait_all_durable()
        shard.read()
        assert shard.groups() == [], "nor does its log say anything of it"

    run(scenario)


def test_who_commits_from_outside_keeps_its_group() -> None:
    async def scenario(shard: Shard, clock: ManualClock) -> None:
        for offset in range(5):
            shard.apply("g", Reset({AT: OffsetAndMetadata(offset)}, clock.now_ms()))
            shard.expire(RETENTION_MS)
            clock.advance(RETENTION_MS - 1)
        assert shard.group("g").exists
        clock.advance(2)
        shard.expire(RETENTION_MS)
        assert not shard.group("g").exists

    run(scenario)


def test_who_joins_keeps_the_offsets_of_the_group() -> None:
    async def scenario(shard: Shard, clock: ManualClock) -> None:
        shard.apply("g", Reset({AT: OffsetAndMetadata(7)}, clock.now_ms()))
        shard.expire(RETENTION_MS)
        clock.advance(RETENTION_MS - 1)
        shard.apply("g", Join("m", MemberConfig()))
        await shard.wait_all_durable()
        shard.read()  # another process takes over
        shard.follow({"t": TopicState("id", 1)})
        clock.advance(2 * RETENTION_MS)
        shard.apply("g", Leave("m"))
        shard.expire(RETENTION_MS)
        assert shard.group("g").offsets[AT].offset == 7, "its time begins anew"

    run(scenario)


def test_many_groups_are_forgotten_some_at_a_time() -> None:
    async def scenario(shard: Shard, clock: ManualClock) -> None:
        names = [f"g{number}" for number in range(GROUPS_LOOKED_AT + 1)]
        for name in names:
            shard.apply(name, Reset({AT: OffsetAndMetadata(0)}, clock.now_ms()))
        assert shard.expire(RETENTION_MS)
        assert not shard.expire(RETENTION_MS)
        await shard.wait_all_durable()
        clock.advance(2 * RETENTION_MS)
        assert shard.expire(RETENTION_MS)
        assert shard.size == 1
        assert not shard.expire(RETENTION_MS)
        assert shard.size == 0

    run(scenario)


def test_a_subscription_names_so_many_topics_and_no_more() -> None:
    async def scenario(shard: Shard, _clock: ManualClock) -> None:
        shard.apply("g", Join("m", MemberConfig()))
        names = [f"{number:0249}" for number in range(SUBSCRIPTION_MAX_CHARS // 249 + 1)]
        shard.apply("g", Subscribe("m", frozenset(names[:-1])))
        with pytest.raises(InvalidSubscription, match="subscribe by a topic_pattern"):
            shard.apply("g", Subscribe("m", frozenset(names)))

    run(scenario)


def test_many_groups_hear_of_topics_some_at_a_time_and_whoever_is_asked_for_at_once() -> None:
    async def scenario(shard: Shard, clock: ManualClock) -> None:
        names = [f"g{number}" for number in range(GROUPS_LOOKED_AT + 2)]
        for name in names:
            shard.apply(name, Reset({AT: OffsetAndMetadata(0)}, clock.now_ms()))
        await shard.wait_all_durable()
        shard.follow({})
        last = names[-1]
        assert shard.group(last).topics == {}
        behind = [group for group in shard.groups() if group.topics]
        assert len(behind) == GROUPS_LOOKED_AT + 1, "asking for one has not told the others"
        assert shard.follow_on()
        assert not shard.follow_on()
        assert not any(group.topics for group in shard.groups())

    run(scenario)


def test_deleted_groups_that_can_be_had_again_count_for_nothing_and_the_oldest_gives_way() -> None:
    async def scenario(shard: Shard, clock: ManualClock) -> None:
        names = [f"g{number}" for number in range(UNDO_GROUPS_MAX + 1)]
        for name in names:
            shard.apply(name, Reset({AT: OffsetAndMetadata(7)}, clock.now_ms()))
        await shard.wait_all_durable()
        for name in names:
            shard.apply(name, Delete(at_ms=clock.now_ms()))
        assert shard.size == 0
        await shard.wait_all_durable()
        shard.read()  # another process takes over
        shard.follow({"t": TopicState("id", 1)})
        assert shard.size == 0
        assert [bool(shard.group(name).acts) for name in (names[0], names[1], names[-1])] == [
            False,
            True,
            True,
        ]
        shard.apply("g1", Undo(1, clock.now_ms(), 0))
        assert shard.size == 1
        await shard.wait_all_durable()
        clock.advance(RETENTION_MS)
        assert not shard.forget_acts(RETENTION_MS)
        assert shard.group("g2").acts
        clock.advance(1)
        while shard.forget_acts(RETENTION_MS):
            await shard.wait_all_durable()
        await shard.wait_all_durable()
        shard.read()
        assert [group.id for group in shard.groups()] == ["g1"]

    run(scenario)
