"""Transactions in Python, at a real gateway: a block is whole or nothing, and lost answers change nothing."""

from typing import Any

import httpx
import pytest

import lakelog
from lakelog.client.consumer.transaction import Sent
from log_tables.errors import (
    AuthorizationFailed,
    InvalidArgument,
    OutcomeUnknown,
    RecordTooLarge,
    StaleGeneration,
    UnknownPartition,
    UnknownTopic,
)
from tests.kit.consumers import Instance
from tests.kit.consuming import Make
from tests.kit.faces import Face
from tests.kit.gateway import RunningGateway
from tests.kit.support import wait_until
from tests.kit.transaction_scene import Scene


@pytest.fixture
def scene(gateway: RunningGateway, request: pytest.FixtureRequest) -> Scene:
    return Scene.of(gateway, request)


@pytest.fixture
def consumer(face: Face) -> Make:
    """Make a consumer of the scene that commits nothing by itself."""

    def make(scene: Scene, **settings: Any) -> lakelog.Consumer:
        given = {"auto_offset_reset": "earliest", "auto_commit": False, **settings}
        return face.consumer(scene.gateway.url, f"{scene.group}-py", scene.source, **given)

    return make


def test_a_block_commits_what_was_handed_out_with_what_it_sends(scene: Scene, consumer: Make) -> None:
    with consumer(scene) as reading:
        table = reading.poll(30_000)
        with reading.transaction() as transaction:
            for number in range(table.num_rows):
                transaction.send(scene.results, b"%d" % number, key=b"1", partition=1, headers=[("h", b"x")])
        assert transaction.offsets == (Sent(scene.results, 1, 0, 3),)
        assert transaction.number == 1
        assert reading.committed() == {(scene.source, 0): 3}
        with reading.transaction() as empty:
            pass
        assert empty.offsets == ()
    assert scene.values() == [[], [0, 1, 2]]


def test_a_block_that_fails_sends_nothing_and_its_records_come_again(scene: Scene, consumer: Make) -> None:
    with consumer(scene) as reading:
        assert next(reading).value == b'"a"'
        with reading.transaction() as transaction:
            transaction.send(scene.results, b"0", partition=0)
        assert [next(reading).value for _ in range(2)] == [b'"b"', b'"c"']
        with pytest.raises(ZeroDivisionError), reading.transaction() as transaction:
            transaction.send(scene.results, b"%d" % (1 // 0), partition=0)
        assert [next(reading).value for _ in range(2)] == [b'"b"', b'"c"']
        assert reading.committed() == {(scene.source, 0): 1}
    assert scene.values() == [[0], []]


@pytest.mark.parametrize(
    ("topic", "value", "error"),
    [("there-is-none", b"1", UnknownTopic), ("RESULTS", b"x" * 2_000_000, RecordTooLarge)],
)
def test_what_the_gateway_refuses_the_end_of_the_block_raises(
    scene: Scene, consumer: Make, topic: str, value: bytes, error: type[Exception]
) -> None:
    with consumer(scene) as reading:
        assert reading.poll(30_000).num_rows == 3
        with pytest.raises(error), reading.transaction() as transaction:
            transaction.send(topic.replace("RESULTS", scene.results), value)
        assert reading.poll(30_000).num_rows == 3
        assert reading.committed() == {}
    assert scene.values() == [[], []]


def test_a_transaction_asks_for_a_consumer_that_does_not_commit_by_itself(
    scene: Scene, consumer: Make
) -> None:
    with consumer(scene, auto_commit=True) as reading, pytest.raises(InvalidArgument, match="auto_commit"):
        reading.transaction()


def test_transactions_do_not_nest_and_take_bytes(scene: Scene, consumer: Make) -> None:
    with consumer(scene) as reading:
        with reading.transaction() as transaction:
            with pytest.raises(TypeError, match="bytes"):
                transaction.send(scene.results, "text")  # type: ignore[arg-type]
            with pytest.raises(InvalidArgument, match="already"), reading.transaction():
                pass
        assert transaction.number is None


def test_what_is_sent_outside_of_the_block_is_refused(scene: Scene, consumer: Make) -> None:
    with consumer(scene) as reading:
        with reading.transaction() as transaction:
            with pytest.raises(UnknownPartition, match="no partition -1"):
                transaction.send(scene.results, b"0", partition=-1)
            with pytest.raises(TypeError, match="the topic is NoneType"):
                transaction.send(None, b"0")  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="the transaction has ended"):
            transaction.send(scene.results, b"0")
    assert scene.values() == [[], []]


def test_the_work_of_who_was_rebalanced_meanwhile_is_done_again(scene: Scene, consumer: Make) -> None:
    path = f"{scene.gateway.cluster}/topics/{scene.source}"
    assert scene.gateway.client.patch(path, json={"partitions_count": 2}).status_code == 200
    with consumer(scene) as reading:
        assert reading.poll(30_000).num_rows == 3
        other = Instance(scene.gateway.client, f"{scene.group}-py", "other")
        other.subscribe(scene.source)
        with pytest.raises(StaleGeneration), reading.transaction() as transaction:
            transaction.send(scene.results, b"1", partition=0)
        again = 0

        def all_came_again() -> bool:
            nonlocal again
            again += reading.poll(100).num_rows + len(other.poll())
            return bool(again >= 3)

        wait_until(all_came_again, "all records came again")
        assert again == 3
    assert scene.values() == [[], []]


class Lossy(httpx.BaseTransport):
    """A network that loses the answers to transactions, as often as it is told to, and then denies some."""

    def __init__(self, losses: int, denials: int = 0) -> None:
        self._inner, self.losses, self._denials = httpx.HTTPTransport(), losses, denials

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        is_transaction = request.url.path.endswith("/transactions")
        if is_transaction and self.losses == 0 and self._denials > 0:
            self._denials -= 1
            return httpx.Response(403, text="a proxy wants another credential")
        answer = self._inner.handle_request(request)
        if is_transaction and self.losses > 0:
            self.losses -= 1
            answer.read()
            raise httpx.ReadError("the answer was lost, on purpose")
        return answer


def test_an_answer_that_is_lost_is_asked_for_again(scene: Scene, consumer: Make) -> None:
    with consumer(scene, transport=Lossy(2)) as reading:
        assert reading.poll(30_000).num_rows == 3
        with reading.transaction() as transaction:
            transaction.send(scene.results, b"1", partition=0)
        assert transaction.offsets == (Sent(scene.results, 0, 0, 1),)
    assert scene.values() == [[1], []]


def test_what_became_of_a_transaction_is_known_before_the_consumer_goes_on(
    scene: Scene, consumer: Make
) -> None:
    network = Lossy(1)
    with consumer(scene, transport=network, retry_ms=0) as reading:
        assert reading.poll(30_000).num_rows == 3
        with pytest.raises(OutcomeUnknown), reading.transaction() as transaction:
            transaction.send(scene.results, b"1", partition=0)
        scene.gateway.produce(scene.source, "d")
        assert reading.poll(30_000).num_rows == 1
        assert transaction.offsets == (Sent(scene.results, 0, 0, 1),)
    assert scene.values() == [[1], []]


@pytest.mark.parametrize("losses", [0, 1])
def test_a_denial_says_what_became_of_a_transaction_unless_an_answer_was_lost_before(
    scene: Scene, consumer: Make, losses: int
) -> None:
    with consumer(scene, transport=Lossy(losses, denials=1)) as reading:
        assert reading.poll(30_000).num_rows == 3
        with pytest.raises(AuthorizationFailed), reading.transaction() as transaction:
            transaction.send(scene.results, b"1", partition=0)
        scene.gateway.produce(scene.source, "d")
        assert reading.poll(30_000).num_rows == (1 if losses else 4)
        assert len(transaction.offsets) == losses
    assert scene.values() == [[1] if losses else [], []]
