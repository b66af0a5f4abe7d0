"""Transactions at several gateways: what one has done, another one finds that has not heard of it."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.groups import FindCoordinatorRequest
from coordinator.groups.classic.events import CommitOffsets
from coordinator.groups.events import OffsetAndMetadata
from coordinator.groups.producers.producer_wire import AddOffsets
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.topic_partition import TopicPartition
from tests.kit.kafka_asking import Asker
from tests.kit.kafka_served import KafkaServed, kafka_served
from tests.kit.kafka_transactions import add, begin, produce
from tests.kit.support import WAIT_S, wait_until

PARTITIONS = 12
NAMES = [f"x{number}" for number in range(6 * PARTITIONS)]
"""Enough that nearly each partition of `__consumer_offsets` coordinates one of them."""

TRANSACTION = 1
FIRST, SECOND, THIRD = 1, 2, 3


def where(asking: Asker, name: str) -> int:
    """The gateway that coordinates an id, and a group of that name, as another one knows it."""
    asked = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[name])
    node: int = asking.ask(asked).coordinators[0].node_id
    return node


class Moved:
    """Three gateways. The ids `moved` were coordinated by the first one, which the second still believes; in
    truth the third does now.
    """

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self.served, self.asking, self._root, self._stack = list[KafkaServed](), list[Asker](), root, stack
        for _ in range(2):
            self._start()
        create_topic(self.served[0].gateway.cluster, "t", 1)
        before = [name for name in NAMES if self._begun(name) == FIRST]
        self._start()
        first, second, third = self.asking
        wait_until(lambda: self._agreed(before, first, third), "coordinators move to the third gateway")
        self.moved = [name for name in before if where(third, name) == THIRD]
        assert {where(second, name) for name in self.moved} == {FIRST}

    def _start(self) -> None:
        made = kafka_served(self._root, offsets_topic_num_partitions=PARTITIONS, authentication_methods=())
        self.served.append(self._stack.enter_context(made))
        self.asking.append(Asker(self.served[-1].port))
        gateways = [each.gateway for each in self.served]
        wait_until(lambda: all(len(each.brokers.living()) == len(gateways) for each in gateways), "they meet")

    def _begun(self, name: str) -> int:
        """Begin with an id at its coordinator, and have both gateways know that."""
        at = where(self.asking[0], name)
        begin(self.asking[at - 1], name)
        assert where(self.asking[1], name) == at
        return at

    def _agreed(self, names: list[str], first: Asker, third: Asker) -> bool:
        found = [(where(first, name), where(third, name)) for name in names]
        return (THIRD, THIRD) in found


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moved]:
    with ExitStack() as stack:
        yield Moved(tmp_path_factory.mktemp("moved"), stack)


def test_a_produce_finds_the_coordinator_of_its_id(moved: Moved) -> None:
    for name in moved.moved:
        held = begin(moved.asking[THIRD - 1], name)
        answer = produce(moved.asking[SECOND - 1], held, "t", b"v")
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)


def test_offsets_of_a_transaction_find_the_coordinator_of_their_group(moved: Moved) -> None:
    name = next(each for each in NAMES if where(moved.asking[SECOND - 1], each) == SECOND)
    held, second = begin(moved.asking[SECOND - 1], name), moved.served[SECOND - 1]
    for group in moved.moved:
        asked = AddOffsets(*held, group, opens=True)
        commit = CommitOffsets(offsets={TopicPartition("t", 0): OffsetAndMetadata(5)}, at_ms=0)
        committing = second.gateway.producers.commit_offsets(asked, commit)
        assert asyncio.run_coroutine_threadsafe(committing, second.loop).result(WAIT_S) == {}


def test_a_topic_that_another_gateway_has_made_is_added_to_a_transaction(moved: Moved) -> None:
    second = moved.asking[SECOND - 1]
    held = begin(second, next(each for each in NAMES if where(second, each) == SECOND))
    create_topic(moved.served[FIRST - 1].gateway.cluster, "new", 1)
    assert add(second, held, {"new": [0]}) == {"new": [ErrorCode.NONE]}
