"""lakelog.Consumer against a real gateway: sharing, commits, places, and what it does when things die."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import pyarrow as pa
import pytest

from api.wire.arrow import POLL_SCHEMA
from lakelog import Client, Consumer
from lakelog.client.consumer import ConsumerRecord
from log_tables import errors
from log_tables.topic_partition import TopicPartition
from tests.kit.gateway import RunningGateway, start_gateway
from tests.kit.support import free_port, wait_until

Make = Callable[..., Consumer]
Told = list[tuple[str, list[TopicPartition]]]


@pytest.fixture(scope="module")
def client(gateway: RunningGateway) -> Iterator[Client]:
    with Client(gateway.url) as running:
        yield running


@pytest.fixture
def make(gateway: RunningGateway, topic: str) -> Iterator[Make]:
    """Make a consumer of the topic, in the group of the topic's name, that begins at the beginning."""
    made: list[Consumer] = []

    def make(*, url: str = gateway.url, **options: Any) -> Consumer:
        if not {"topics", "pattern", "partitions"} & options.keys():
            options["topics"] = [topic]
        made.append(Consumer(url, topic, **{"auto_offset_reset": "earliest", **options}))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


def telling(told: Told) -> dict[str, Callable[[list[TopicPartition]], None]]:
    """Callbacks that write down what they are told."""

    def callback(what: str) -> Callable[[list[TopicPartition]], None]:
        return lambda partitions: told.append((what, partitions))

    return {f"on_{what}": callback(what) for what in ("assigned", "revoked", "lost")}


def offsets(table: pa.Table) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in table.select(["partition", "offset"]).to_pylist():
        found.setdefault(row["partition"], []).append(row["offset"])
    return found


def polled(consumer: Consumer, count: int) -> dict[int, list[int]]:
    """The offsets of `count` records, by partition, in as many polls as it takes."""
    tables: list[pa.Table] = []

    def enough() -> bool:
        tables.append(consumer.poll(200))
        return sum(len(table) for table in tables) >= count

    wait_until(enough, f"{count} records")
    return offsets(pa.concat_tables(tables))


def committed(client: Client, group: str) -> dict[int, int]:
    return {at.partition: offset for at, offset in client.group_offsets(group).items()}


def test_it_iterates_over_whole_records(gateway: RunningGateway, make: Make, topic: str) -> None:
    row = {"key": "aw==", "value": "/w==", "timestamp": 5, "headers": [{"key": "h", "value": "AA=="}]}
    rows = [row, {"value": None, "timestamp": -1}]
    headers = {"Content-Type": "application/vnd.kafka.binary.v2+json"}
    gateway.client.post(f"/topics/{topic}/partitions/1", json={"records": rows}, headers=headers)
    first, second = islice(make(), 2)
    assert first == ConsumerRecord(topic, 1, 0, 5, b"k", b"\xff", (("h", b"\x00"),))
    assert second == ConsumerRecord(topic, 1, 1, -1, None, None, ())


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


def test_two_share_and_hear_of_it(gateway: RunningGateway, client: Client, make: Make, topic: str) -> None:
    for partition in range(2):
        gateway.produce(topic, *range(3), partition=partition)
    told: Told = []
    noted: list[dict[int, int]] = []
    both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]

    def revoked(partitions: list[TopicPartition]) -> None:
        told.append(("revoked", partitions))
        first.commit()
        noted.append(committed(client, topic))

    first = make(auto_commit=False, **(telling(told) | {"on_revoked": revoked}))
    assert polled(first, 6) == {0: [0, 1, 2], 1: [0, 1, 2]}
    assert told == [("assigned", both)]
    second = make(auto_commit=False)
    second.poll(0)
    assert second.assignment == set()
    wait_until(lambda: first.poll(0) is not None and len(first.assignment) == 1, "one is given up")
    (kept,) = first.assignment
    (given,) = {*both} - {kept}
    assert told[1:] == [("revoked", [given])]
    assert noted == [{0: 3, 1: 3}]
    wait_until(lambda: second.poll(0) is not None and second.assignment == {given}, "it is taken over")
    for partition in range(2):
        gateway.produce(topic, 3, partition=partition)
    assert polled(first, 1) == {kept.partition: [3]}
    assert polled(second, 1) == {given.partition: [3]}
    second.close()
    assert polled(first, 1) == {given.partition: [3]}  # which the other has not committed
    assert told[2:] == [("assigned", [given])]
    first.close()
    assert told[3:] == [("revoked", both)]


def test_partitions_of_its_own_are_not_shared(
    gateway: RunningGateway, client: Client, make: Make, topic: str
) -> None:
    gateway.produce(topic, *range(3), partition=0)
    gateway.produce(topic, *range(3), partition=1)
    told: Told = []
    with make(partitions=[(topic, 1)], **telling(told)) as consumer:
        assert polled(consumer, 3) == {1: [0, 1, 2]}
        assert consumer.poll(0).num_rows == 0
    assert committed(client, topic) == {1: 3}
    assert told == []
    late = make(partitions=[(topic, 0)], auto_offset_reset="latest")
    assert late.positions() == {(topic, 0): 3}
    gateway.produce(topic, 3, partition=0)
    assert polled(late, 1) == {0: [3]}


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


class Losing(httpx.HTTPTransport):
    """The network, which loses the answers of some requests."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: set[int] = set()
        self.kind, self.count = "/records", 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = super().handle_request(request)
        if request.url.path.endswith(self.kind):
            self.count += 1
            if self.count in self.lost:
                answer.read()
                raise httpx.ReadError("the connection was reset")
        return answer


@pytest.mark.parametrize("way", ["topics", "partitions"])
@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_what_was_lost_on_the_way_comes_again_and_nothing_else(
    gateway: RunningGateway, client: Client, make: Make, topic: str, way: str, reset: str
) -> None:
    losing = Losing()
    chosen = {"partitions": [(topic, 0), (topic, 1)]} if way == "partitions" else {}
    options = {"transport": losing, "auto_offset_reset": reset, "auto_commit_interval_ms": 0, **chosen}
    with make(**options) as consumer:
        consumer.poll(0)
        found: list[tuple[int, int]] = []
        for number in range(6):
            losing.lost = {losing.count + 1, losing.count + 3}
            gateway.produce(topic, number, partition=number % 2)
            record = next(consumer)
            found.append((record.partition, record.offset))
            begin = {at.partition: offset for at, offset in consumer.committed().items()}
            assert begin.get(number % 2, 0) <= number // 2
        consumer.commit()
    assert found == [(number % 2, number // 2) for number in range(6)]
    assert committed(client, topic) == {0: 3, 1: 3}


@pytest.mark.parametrize("kind", ["/subscription", "/assignments", "/offsets", "/positions", "consumers"])
def test_any_other_answer_may_be_lost_too(
    gateway: RunningGateway, client: Client, make: Make, topic: str, kind: str
) -> None:
    losing = Losing()
    losing.kind = f"/consumers/{topic}" if kind == "consumers" else kind
    losing.lost = {1, 3}
    gateway.produce(topic, *range(3), partition=0)
    with make(transport=losing) as consumer:
        assert [record.offset for record in islice(consumer, 3)] == [0, 1, 2]
        consumer.seek(topic, 0, 1)
        assert [record.offset for record in islice(consumer, 2)] == [1, 2]
        consumer.commit()
    assert losing.count >= 2
    assert committed(client, topic) == {0: 3}
    assert client.group(topic)["members"] == []


def test_a_lost_instance_begins_again(
    gateway: RunningGateway, client: Client, make: Make, topic: str
) -> None:
    gateway.produce(topic, *range(3), partition=0)
    told: Told = []
    both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    consumer = make(name="me", auto_commit=False, **telling(told))
    list(islice(consumer, 2))
    consumer.commit()
    gateway.client.delete(f"/consumers/{topic}/instances/me")
    with pytest.raises(errors.UnknownMember):
        consumer.commit()
    assert polled(consumer, 1) == {0: [2]}
    assert told == [("assigned", both), ("lost", both), ("assigned", both)]
    assert [each["member"] for each in client.group(topic)["members"]] == ["me"]


def test_partitions_taken_away_are_lost_and_not_revoked(
    gateway: RunningGateway, client: Client, make: Make, topic: str
) -> None:
    gateway.produce(topic, *range(3), partition=0)
    told: Told = []
    consumer = make(max_poll_interval_ms=200, auto_commit=False, **telling(told))
    assert polled(consumer, 3) == {0: [0, 1, 2]}
    wait_until(lambda: not client.group(topic)["members"][0]["partitions"], "it is too slow")
    with pytest.raises(errors.Conflict):
        consumer.commit()
    assert polled(consumer, 3) == {0: [0, 1, 2]}
    assert [what for what, _ in told] == ["assigned", "lost", "assigned"]


def test_its_heart_beats_while_the_program_works_and_not_after(
    gateway: RunningGateway, client: Client, make: Make, topic: str
) -> None:
    beats = Losing()
    beats.kind = "/heartbeat"
    with make(session_timeout_ms=1_000, transport=beats, name="me") as consumer:
        consumer.poll(0)
        wait_until(lambda: beats.count > 9, "three sessions pass")
        assert [each["member"] for each in client.group(topic)["members"]] == ["me"]
        assert consumer.poll(0).num_rows == 0
        assert consumer.assignment
    assert client.group(topic)["members"] == []
    before = beats.count
    other = make(session_timeout_ms=300, name="other")
    other.poll(500)
    assert beats.count == before


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
    assert [each["member"] for each in client.group(topic)["members"]] == ["taken"]


def test_no_gateway_is_unreachable_once_patience_ends(topic: str) -> None:
    with pytest.raises(errors.Unreachable):
        Consumer(f"http://127.0.0.1:{free_port()}", "g", "t", retry_ms=200)


def test_through_deaths_of_the_gateway_every_record_comes_once(tmp_path: Path) -> None:
    port, rounds = free_port(), 4
    gateway = start_gateway(tmp_path, "--port", str(port), linger_ms=0)
    gateway.create_topic("t", 3)
    found: Counter[tuple[int, int]] = Counter()
    consumer = Consumer(gateway.url, "g", "t", auto_offset_reset="earliest", auto_commit_interval_ms=100)

    def consume() -> None:
        for record in consumer:
            found[record.partition, record.offset] += 1

    thread = Thread(target=consume)
    thread.start()
    for number in range(rounds):
        for partition in range(3):
            for _ in range(5):
                gateway.produce("t", *range(20), partition=partition)
        # At any moment: in the middle of an answer, or of a wait.
        wait_until(lambda n=number: len(found) > 300 * n, "some of them")  # type: ignore[misc]
        gateway.kill()
        gateway = start_gateway(tmp_path, "--port", str(port), linger_ms=0)
    wait_until(lambda: len(found) == 300 * rounds, "all records")
    consumer.stop()
    thread.join()
    consumer.close()
    assert set(found.values()) == {1}
    assert committed(Client(gateway.url), "g") == dict.fromkeys(range(3), 100 * rounds)
    gateway.stop()


def test_when_one_of_two_dies_with_the_gateway_nothing_is_skipped(tmp_path: Path) -> None:
    port = free_port()
    gateway = start_gateway(tmp_path, "--port", str(port), linger_ms=0)
    gateway.create_topic("t", 4)
    for partition in range(4):
        gateway.produce("t", *range(50), partition=partition)
    found: Counter[tuple[int, int]] = Counter()

    def take(consumer: Consumer) -> bool:
        for partition, listed in offsets(consumer.poll(50)).items():
            found.update((partition, offset) for offset in listed)
        return True

    options: dict[str, Any] = {"auto_offset_reset": "earliest", "session_timeout_ms": 1_000}
    first, second = (Consumer(gateway.url, "g", "t", **options) for _ in range(2))
    wait_until(lambda: take(first) and take(second) and len(second.assignment) == 2, "they share")
    second._heart.stop()  # it is heard of no more
    gateway.kill()
    gateway = start_gateway(tmp_path, "--port", str(port), linger_ms=0)
    for partition in range(4):
        gateway.produce("t", *range(50), partition=partition)
    wait_until(lambda: take(first) and len(first.assignment) == 4 and len(found) == 400, "one has all")
    second.stop()
    first.close()
    second.close()
    gateway.stop()


def test_the_error_that_ended_a_block_tells_that_its_offsets_are_not_committed(tmp_path: Path) -> None:
    gateway = start_gateway(tmp_path, linger_ms=0)
    gateway.create_topic("t")
    gateway.produce("t", 1)

    def fail_without_a_gateway() -> None:
        with Consumer(gateway.url, "g", "t", auto_offset_reset="earliest") as consumer:
            next(consumer)
            gateway.kill()
            assert 1 / 0

    with pytest.raises(ZeroDivisionError) as ended:
        fail_without_a_gateway()
    (note,) = ended.value.__notes__
    assert note.startswith("lakelog.Consumer: it did not leave its group in order: no gateway answers")
