"""lakelog.Consumer against a real gateway: records, commits, seeks, and how it ends."""

from itertools import islice
from threading import Event, Thread
from typing import Any

import pytest

from lakelog import Client, Consumer
from lakelog.client.consumer.consumer import ConsumerRecord
from log_tables import errors
from log_tables.record import POLL_SCHEMA
from tests.kit.consuming import Losing, Make, committed, members, offsets, polled
from tests.kit.gateway import RunningGateway
from tests.kit.support import free_port, wait_until


def test_it_iterates_over_whole_records(gateway: RunningGateway, make: Make, topic: str) -> None:
    row = {"key": "aw==", "value": "/w==", "timestamp": 5, "headers": [{"key": "h", "value": "AA=="}]}
    rows = [row, {"value": None, "timestamp": -5}]
    headers = {"Content-Type": "application/vnd.kafka.binary.v2+json"}
    gateway.client.post(f"/topics/{topic}/partitions/1", json={"records": rows}, headers=headers)
    first, second = islice(make(), 2)
    assert first == ConsumerRecord(topic, 1, 0, 5, b"k", b"\xff", (("h", b"\x00"),))
    assert second == ConsumerRecord(topic, 1, 1, -5, None, None, ())


def test_a_poll_is_a_table_and_an_empty_one_when_nothing_comes(
    gateway: RunningGateway, make: Make, topic: str
) -> None:
    consumer = make()
    assert consumer.poll(0).num_rows == 0
    assert consumer.assignment == {(topic, 0), (topic, 1)}
    assert consumer.subscription == {topic}
    gateway.produce(topic, *range(3), partition=1)
    table = consumer.poll(5_000)
    assert table.schema.equals(POLL_SCHEMA)
    assert set(table["topic"].to_pylist()) == {topic}
    assert offsets(table) == {1: [0, 1, 2]}
    assert consumer.poll(0).schema.equals(POLL_SCHEMA)


def test_at_latest_it_reads_all_that_comes_after_it_has_joined(
    gateway: RunningGateway, client: Client, make: Make, topic: str
) -> None:
    gateway.produce(topic, "old", partition=0)
    consumer = make(auto_offset_reset="latest")
    gateway.produce(topic, "before its first poll", partition=0)
    gateway.client.patch(f"{gateway.cluster}/topics/{topic}", json={"partitions_count": 4})
    gateway.produce(topic, "where it has not been yet", partition=3)
    assert polled(consumer, 2) == {0: [1], 3: [0]}
    assert consumer.positions() == {(topic, 0): 2, (topic, 1): 0, (topic, 2): 0, (topic, 3): 1}
    client.delete_topic(topic)
    gateway.create_topic(topic, 1)
    gateway.produce(topic, "made again")
    assert polled(consumer, 1) == {0: [0]}


def test_a_poll_gives_about_as_much_as_it_is_asked_for(
    gateway: RunningGateway, make: Make, topic: str
) -> None:
    for number in range(4):
        gateway.produce(topic, f"{number}" * 10_000, partition=0)
    consumer = make()
    assert offsets(consumer.poll(max_bytes=1)) == {0: [0]}
    assert offsets(consumer.poll(max_bytes=25_000)) == {0: [1, 2]}


def test_a_pattern_sees_topics_that_come_later(gateway: RunningGateway, make: Make, topic: str) -> None:
    consumer = make(pattern=f"{topic}.*")
    assert consumer.poll(0).num_rows == 0
    later = gateway.create_topic(f"{topic}-later")
    gateway.produce(later, "x")
    wait_until(lambda: consumer.poll(100)["topic"].to_pylist() == [later], "the new topic is read")
    assert consumer.subscription == {topic, later}
    assert consumer.assignment == {(topic, 0), (topic, 1), (later, 0)}


def test_what_is_committed_is_where_the_next_one_begins(
    gateway: RunningGateway, client: Client, make: Make, topic: str
) -> None:
    gateway.produce(topic, *range(5), partition=0)
    with make(auto_commit=False) as consumer:
        assert consumer.committed() == {}
        list(islice(consumer, 2))
        assert consumer.positions() == {(topic, 0): 2, (topic, 1): 0}
        consumer.commit()
        assert consumer.committed() == {(topic, 0): 2}
        next(consumer)
        consumer.commit({(topic, 1): 0})
    assert committed(client, topic) == {0: 2, 1: 0}
    with make(auto_commit=False) as consumer:
        assert polled(consumer, 3) == {0: [2, 3, 4]}
        consumer.commit({(topic, 0): 4})
        with pytest.raises(errors.OffsetOutOfRange):
            consumer.commit({(topic, 0): 6})
    assert committed(client, topic) == {0: 4, 1: 0}


def test_auto_commit_has_only_what_is_done_with(
    gateway: RunningGateway, client: Client, make: Make, topic: str
) -> None:
    def fail_at_one() -> None:
        with make() as consumer:
            for record in consumer:
                assert 1 / (record.offset - 1)

    def fail_after_a_table() -> None:
        with make() as consumer:
            assert polled(consumer, 4) == {0: [1, 2, 3, 4]}
            assert 1 / 0

    gateway.produce(topic, *range(5), partition=0)
    for failing in (fail_at_one, fail_after_a_table):
        with pytest.raises(ZeroDivisionError):
            failing()
        assert committed(client, topic) == {0: 1}


def test_an_orderly_end_commits_all_that_was_handed_out(
    gateway: RunningGateway, client: Client, make: Make, topic: str
) -> None:
    gateway.produce(topic, *range(5), partition=0)
    with make() as consumer:
        assert [record.offset for record in islice(consumer, 3)] == [0, 1, 2]
    assert committed(client, topic) == {0: 3}
    with make() as consumer:
        assert polled(consumer, 2) == {0: [3, 4]}
    assert committed(client, topic) == {0: 5}


def test_auto_commit_goes_on_while_it_consumes(
    gateway: RunningGateway, client: Client, make: Make, topic: str
) -> None:
    gateway.produce(topic, *range(5), partition=0)
    consumer = make(auto_commit_interval_ms=0)
    assert polled(consumer, 5) == {0: list(range(5))}
    consumer.poll(0)
    assert committed(client, topic) == {0: 5}


def test_an_error_of_the_program_is_the_one_that_is_raised(
    gateway: RunningGateway, client: Client, make: Make, topic: str
) -> None:
    gateway.produce(topic, *range(5), partition=0)

    def work() -> None:
        with make() as consumer:
            for record in consumer:
                assert record.offset != 2, "bad luck"

    with pytest.raises(AssertionError, match="bad luck"):
        work()
    assert committed(client, topic) == {0: 2}


def test_seeking_goes_anywhere(gateway: RunningGateway, make: Make, topic: str) -> None:
    rows = [{"value": number, "timestamp": 1_000 * number} for number in range(5)]
    for partition in range(2):
        gateway.client.post(f"/topics/{topic}/partitions/{partition}", json={"records": rows})
    consumer = make()
    with pytest.raises(errors.NotAssigned, match="partition 0"):
        consumer.seek(topic, 0, 1)
    taken = list(islice(consumer, 3))
    here, other = taken[-1].partition, 1 - taken[-1].partition
    consumer.seek(topic, here, 4)
    rest = [(record.partition, record.offset) for record in islice(consumer, 6)]
    assert sorted(rest) == sorted([(here, 4), *((other, offset) for offset in range(5))])
    consumer.seek(topic, 0, "earliest")
    consumer.seek_to_time(topic, 1, 2_500)
    assert consumer.positions() == {(topic, 0): 0, (topic, 1): 3}
    assert polled(consumer, 7) == {0: list(range(5)), 1: [3, 4]}
    consumer.seek(topic, 0, "latest")
    consumer.seek_to_time(topic, 1, 9_000)
    assert consumer.positions() == {(topic, 0): 5, (topic, 1): 5}
    for offset in (-1, "middle"):
        with pytest.raises(errors.InvalidArgument):
            consumer.seek(topic, 0, offset)


def test_a_seek_back_to_an_offset_that_was_committed_once_is_committed_again(
    gateway: RunningGateway, client: Client, make: Make, topic: str
) -> None:
    gateway.produce(topic, *range(5), partition=0)
    with make(auto_commit_interval_ms=0) as consumer:
        polled(consumer, 5)
        consumer.seek(topic, 0, 2)
        assert polled(consumer, 3) == {0: [2, 3, 4]}
        consumer.poll(0)
        assert committed(client, topic) == {0: 5}
        consumer.seek(topic, 0, 2)
    assert committed(client, topic) == {0: 2}


def test_a_poll_in_the_middle_of_an_iteration_skips_nothing(
    gateway: RunningGateway, make: Make, topic: str
) -> None:
    for partition in range(2):
        gateway.produce(topic, *range(5), partition=partition)
    consumer = make()
    begun = [(record.partition, record.offset) for record in islice(consumer, 3)]
    rest = polled(consumer, 7)
    assert sorted([*begun, *((p, o) for p, listed in rest.items() for o in listed)]) == [
        (partition, offset) for partition in range(2) for offset in range(5)
    ]


def test_stopping_ends_the_iteration(gateway: RunningGateway, client: Client, make: Make, topic: str) -> None:
    gateway.produce(topic, *range(5), partition=0)
    consumer = make()
    found: list[int] = []
    met = Event()

    def consume() -> None:
        for record in consumer:
            found.append(record.offset)
            if len(found) == 5:
                met.set()

    thread = Thread(target=consume)
    thread.start()
    assert met.wait(30)
    consumer.stop()
    thread.join()
    assert found == [0, 1, 2, 3, 4]
    assert consumer.poll(60_000).num_rows == 0
    consumer.close()
    assert committed(client, topic) == {0: 5}


def test_stopping_in_the_middle_gives_the_rest_to_the_next(
    gateway: RunningGateway, client: Client, make: Make, topic: str
) -> None:
    gateway.produce(topic, *range(5), partition=0)
    with make() as consumer:
        for record in consumer:
            if record.offset == 2:
                consumer.stop()
    assert record.offset == 2
    assert committed(client, topic) == {0: 3}


def test_a_closed_consumer_is_of_no_use(make: Make) -> None:
    consumer = make()
    consumer.close()
    consumer.close()
    for use in (consumer.poll, consumer.commit, consumer.committed, consumer.positions):
        with pytest.raises(errors.InvalidArgument, match="closed"):
            use()
    with pytest.raises(errors.InvalidArgument, match="closed"):
        next(consumer)


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"topics": ()}, errors.InvalidArgument, "one of these"),
        ({"topics": "t", "pattern": "t"}, errors.InvalidArgument, "one of these"),
        ({"pattern": "("}, errors.InvalidRequest, "'\\('"),
        ({"topics": "a/b"}, errors.InvalidRequest, "a/b"),
        ({"strategy": "greedy"}, errors.InvalidConsumer, "greedy"),
        ({"auto_offset_reset": "middle"}, errors.InvalidConsumer, "middle"),
        ({"name": "a/b"}, errors.InvalidConsumer, "a/b"),
        ({"name": "taken"}, errors.MemberExists, "taken"),
        ({"partitions": [("nowhere", 0)]}, errors.UnknownTopic, "nowhere"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_no_member(
    client: Client, make: Make, topic: str, options: dict[str, Any], kind: type[Exception], says: str
) -> None:
    make(name="taken")
    with pytest.raises(kind, match=says):
        make(**options)
    assert members(client, topic) == ["taken"]


@pytest.mark.parametrize(
    ("way", "kind"),
    [("topics", ""), ("topics", "/subscription"), ("partitions", ""), ("partitions", "/assignments")],
)
def test_one_that_is_interrupted_while_it_joins_leaves(
    gateway: RunningGateway, client: Client, topic: str, way: str, kind: str
) -> None:
    """Ctrl-C comes when the gateway has done what was asked, and its answer is not there yet."""
    network = Losing(KeyboardInterrupt())
    network.kind, network.lost = kind or f"/consumers/{topic}", {1}
    chosen: dict[str, Any] = {"topics": [topic]} if way == "topics" else {"partitions": [(topic, 0)]}
    with pytest.raises(KeyboardInterrupt):
        Consumer(gateway.url, topic, transport=network, **chosen)
    assert network.count == 1
    assert members(client, topic) == []


def test_a_name_of_ones_own_is_left_to_whoever_has_it(
    gateway: RunningGateway, client: Client, make: Make, topic: str
) -> None:
    """It does not know whether the gateway took its name or found it taken."""
    make(name="taken")
    network = Losing(KeyboardInterrupt())
    network.kind, network.lost = f"/consumers/{topic}", {1}
    with pytest.raises(KeyboardInterrupt):
        Consumer(gateway.url, topic, topic, name="taken", transport=network)
    assert members(client, topic) == ["taken"]


def test_no_gateway_is_unreachable_once_patience_ends(topic: str) -> None:
    with pytest.raises(errors.Unreachable):
        Consumer(f"http://127.0.0.1:{free_port()}", "g", "t", retry_ms=200)
