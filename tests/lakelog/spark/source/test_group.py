"""The source option groupId: the progress of a streaming query is a consumer group of a real gateway."""

import logging
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakelog.client.client import Client
from lakelog.spark.source.options import parse
from log_tables.clock import ManualClock
from log_tables.errors import InvalidRequest, UnknownGroup
from log_tables.store.store import open_store
from tests.kit.consumers import Instance
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.spark import Query, Topics, run, start
from tests.kit.support import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMITED = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "4"}


@pytest.fixture
def client(gateway: RunningGateway) -> Iterator[Client]:
    with Client(gateway.url) as connected:
        yield connected


@pytest.fixture
def group(gateway: RunningGateway, topic: str) -> str:
    """The name of a group that does not exist yet; its topic has four records in each of two partitions."""
    for partition in range(2):
        assert gateway.produce(topic, *range(4), partition=partition).status_code == 200
    return f"spark-{topic}"


def options(gateway: RunningGateway, topic: str, group: str, **more: str) -> dict[str, str]:
    return {"path": gateway.data, "subscribe": topic, "groupId": group, "gateway": gateway.url, **more}


def committed(client: Client, group: str) -> list[int]:
    """The offsets that a group has committed, by partition; nothing when there is no such group."""
    try:
        return [offset for _, offset in sorted(client.group_offsets(group).items())]
    except UnknownGroup:
        return []


def wait_for(client: Client, group: str, offsets: list[int]) -> None:
    """Wait until the group has committed `offsets`: all but the last micro-batch are committed while the
    query runs.
    """
    wait_until(lambda: committed(client, group) == offsets, f"{group} at {offsets}")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_a_micro_batch_is_committed_when_the_next_one_is_asked_for(
    gateway: RunningGateway, topic: str, client: Client, group: str
) -> None:
    """Kafka's source never commits."""
    query = Query(options(gateway, topic, group, **LIMITED))
    assert query.trigger() == {f"{topic}-0": [0, 1], f"{topic}-1": [0, 1]}
    assert committed(client, group) == []
    assert query.trigger() == {f"{topic}-0": [2, 3], f"{topic}-1": [2, 3]}
    wait_for(client, group, [2, 2])
    assert query.trigger() is None
    assert committed(client, group) == [4, 4]  # nothing else to do: it has waited


def test_a_query_that_is_restarted_commits_only_what_is_done(
    gateway: RunningGateway, topic: str, client: Client, group: str
) -> None:
    """A micro-batch that was planned and not done is repeated before Spark asks for the next one."""
    query = Query(options(gateway, topic, group, **LIMITED))
    query.trigger()
    done = query.offset
    query.trigger()
    query = Query(query.options, done)
    query.trigger()
    wait_for(client, group, [2, 2])


def test_only_what_has_changed_is_sent(
    gateway: RunningGateway, topic: str, client: Client, group: str
) -> None:
    query = Query(options(gateway, topic, group, startingOffsets="earliest"))
    query.trigger()
    assert query.trigger() is None
    client.set_offsets(group, {(topic, 0): 1, (topic, 1): 1})
    assert query.trigger() is None
    assert committed(client, group) == [1, 1]
    gateway.produce(topic, 4, partition=1)
    query.trigger()
    assert query.trigger() is None
    assert committed(client, group) == [1, 5]


def test_its_offsets_say_that_they_are_of_a_query(
    gateway: RunningGateway, topic: str, client: Client, group: str
) -> None:
    query = Query(options(gateway, topic, group, startingOffsets="earliest"))
    query.trigger()
    assert query.trigger() is None
    wait_until(lambda: bool(committed(client, group)), "the progress is there")
    found = gateway.client.get(f"/consumers/{group}/offsets").json()["offsets"]
    assert {each["metadata"] for each in found} == {"spark"}
    assert "Spark query" in gateway.client.get("/console/groups", params={"search": group}).text


def test_a_gateway_that_is_away_is_told_of_once_and_later_told_all(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with running_gateway(tmp_path) as gateway:
        gateway.create_topic("t")
        gateway.produce("t", 1, 2, 3)
        url, port = gateway.url, int(gateway.url.rsplit(":", 1)[1])
    query = Query(options(gateway, "t", "g", **LIMITED | {"maxOffsetsPerTrigger": "2"}), clock=clock)
    assert query.trigger() == {"t-0": [0, 1]}
    assert query.trigger() == {"t-0": [2]}
    assert query.trigger() is None
    assert query.trigger() is None
    (said,) = warnings(caplog)
    assert said.startswith(
        f"group g: the progress of the query is not committed: no gateway answers at {url}"
    )
    with running_gateway(tmp_path, port=port) as back, Client(back.url) as client:
        assert query.trigger() is None
        assert committed(client, "g") == []  # not yet: it would ask all the time
        clock.advance(5_000)
        assert query.trigger() is None
        wait_for(client, "g", [3])


def test_a_group_with_members_keeps_its_offsets(
    gateway: RunningGateway,
    topic: str,
    client: Client,
    group: str,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    member = Instance(gateway.client, group, "a")
    member.subscribe(topic)
    query = Query(options(gateway, topic, group, startingOffsets="earliest"), clock=clock)
    assert query.trigger() == {f"{topic}-0": [*range(4)], f"{topic}-1": [*range(4)]}
    assert query.trigger() is None
    (said,) = warnings(caplog)
    assert "has members, which own its offsets" in said
    assert said.endswith("(use a groupId that no consumers have)")
    assert committed(client, group) == []
    assert member.send("DELETE", "").status_code == 204
    clock.advance(5_000)
    assert query.trigger() is None
    wait_for(client, group, [4, 4])


def test_a_gateway_that_hangs_holds_nothing_up_twice(store_root: Path) -> None:
    topics = Topics(open_store(store_root))
    topics.create("t")
    topics.append("t", 0, 1)
    with socket.create_server(("127.0.0.1", 0)) as server:  # takes connections, and answers nothing
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        query = topics.query(groupId="g", gateway=url)
        assert query.trigger() == {"t-0": [0]}
        assert query.trigger() is None
        for number in range(1, 20):
            topics.append("t", 0, 1)
            assert query.trigger() == {"t-0": [number]}
            assert query.trigger() is None
        query.reader.stop()


def test_what_is_gone_keeps_nothing_back(
    gateway: RunningGateway, topic: str, client: Client, group: str
) -> None:
    gone = gateway.create_topic(f"{topic}-gone")
    gateway.produce(gone, 1)
    both = options(gateway, topic, group, subscribe=f"{topic},{gone}", failOnDataLoss="false", **LIMITED)
    query = Query(both)
    query.trigger()
    client.delete_topic(gone)
    while query.trigger() is not None:
        pass
    assert committed(client, group) == [4, 4]


def test_group_id_and_gateway_are_checked_at_the_start() -> None:
    given = {"path": "/data", "subscribe": "t"}
    assert parse(given, streaming=True).group_id is None
    assert parse({**given, "GROUPID": "my group"}, streaming=True).group_id == "my group"
    assert (
        parse({**given, "groupId": "g", "gateway": " https://h/x "}, streaming=True).gateway.url
        == "https://h/x"
    )
    for wrong, said in (
        ({"groupId": ""}, "the group cannot be called ''"),
        ({"groupId": "a/b"}, "the group cannot be called 'a/b'"),
        ({"groupId": "g" * 250}, "use 1 to 249 printable characters"),
        ({"gateway": "http://h:8082"}, "gateway does nothing without groupId"),
        ({"groupId": "g", "gateway": "h:8082"}, "gateway='h:8082' is not a URL"),
        ({"groupId": "g", "gateway": ""}, "gateway='' is not a URL"),
        ({"groupId": "g", "subscribe": "t,__consumer_offsets"}, "never come to its end; drop groupId"),
        ({"groupId": "g", "subscribe": "t,__maintenance"}, "anything of __maintenance, which is internal"),
    ):
        with pytest.raises(InvalidRequest, match=re.escape(said)):
            parse({**given, **wrong}, streaming=True)
    with pytest.raises(InvalidRequest, match="groupId is for streaming queries"):
        parse({**given, "groupId": "g"}, streaming=False)


# From here on Spark itself.


@pytest.mark.spark
def test_a_query_of_sparks_is_a_group_without_lag_when_it_ends(
    spark: "SparkSession", gateway: RunningGateway, topic: str, client: Client, group: str, tmp_path: Path
) -> None:
    from lakelog.spark import topics

    given = options(gateway, topic, group, **LIMITED)
    behind: list[list[int]] = []
    run(spark, given, tmp_path, meanwhile=lambda: behind.append(committed(client, group)))
    assert behind in ([[], []], [[], [2, 2]])  # never ahead of what is done
    assert [lag.lag for lag in client.lags(group)] == [0, 0]
    topics(spark, gateway.data, names="consumer_lag")

    def shown() -> list[tuple[int, int]]:
        of_group = spark.table("consumer_lag").where(f"group = '{group}'")
        return [(row.offset, row.lag) for row in of_group.orderBy("partition").collect()]

    assert shown() == [(4, 0), (4, 0)]
    gateway.produce(topic, 4, 5, partition=1)
    assert shown() == [(4, 0), (4, 2)]
    run(spark, given, tmp_path)
    assert shown() == [(4, 0), (6, 0)]


@pytest.mark.spark
def test_a_micro_batch_that_failed_is_not_committed(
    spark: "SparkSession", gateway: RunningGateway, topic: str, client: Client, group: str, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    batches: list[int] = []

    def fail() -> None:
        batches.append(len(batches))
        if len(batches) == 2:
            wait_for(client, group, [2, 2])
            raise RuntimeError("the sink is full")

    given = options(gateway, topic, group, **LIMITED)
    with pytest.raises(StreamingQueryException, match="the sink is full"):
        run(spark, given, tmp_path, meanwhile=fail)
    assert committed(client, group) == [2, 2]
    run(spark, given, tmp_path, meanwhile=lambda: batches.append(committed(client, group)[0]))
    assert batches[2:] == [2]
    assert committed(client, group) == [4, 4]


@pytest.mark.spark
def test_a_running_query_is_up_to_date_soon_after_its_micro_batch(
    spark: "SparkSession", gateway: RunningGateway, topic: str, client: Client, group: str, tmp_path: Path
) -> None:
    query, _ = start(spark, options(gateway, topic, group, startingOffsets="earliest"), tmp_path)
    try:
        for offset in (4, 5):
            wait_for(client, group, [4, offset])
            gateway.produce(topic, 1, partition=1)
    finally:
        query.stop()


@pytest.mark.spark
def test_a_query_of_sparks_does_without_its_gateway(
    spark: "SparkSession", store_root: Path, tmp_path: Path
) -> None:
    topics = Topics(open_store(store_root))
    topics.create("t")
    topics.append("t", 0, 8)
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"http://127.0.0.1:{server.getsockname()[1]}"
    _, found = run(spark, topics.options(groupId="g", gateway=nobody, **LIMITED), tmp_path)
    assert found.offsets() == {"t-0": [*range(8)]}
