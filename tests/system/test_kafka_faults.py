"""A store that fails under Kafka's clients, before and after each single call: what was acknowledged is there
once and in order, and the offsets of groups hold.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from log_tables.layout import CONSUMER_OFFSETS, topic_directory
from log_tables.root.fsck import check
from log_tables.store.store import Store, open_store
from log_tables.testing import Fault, FaultyStore
from tests.kit.failures import FAILURES
from tests.kit.kafka import Sent, librdkafka_producer, read_all
from tests.kit.kafka_load import check_log
from tests.kit.kafka_served import KafkaServed, kafka_served
from tests.kit.support import WAIT_S

PARTITIONS, COMMITS = 2, 8
BRIEFLY_S = 2.0
"""After which librdkafka is asked again: it waits for records that it has given up, as long as it may."""

READ = "read"
"""The topic that groups read."""

NUMBERS = count()


@pytest.fixture(scope="module")
def stores() -> list[FaultyStore]:
    """The stores of the gateway; it adds them itself."""
    return []


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, stores: list[FaultyStore]) -> Iterator[KafkaServed]:
    """A gateway in this process."""
    root = tmp_path_factory.mktemp("root")

    def failing(inner: Store) -> Store:
        stores.append(FaultyStore(inner))
        return stores[0]

    settings = {"num_partitions": PARTITIONS, "group_initial_rebalance_delay_ms": 0}
    with kafka_served(root, wrap=failing, **settings) as serving:
        send(serving, READ)
        yield serving
    assert check(open_store(str(root))).problems == []


def send(here: KafkaServed, topic: str) -> None:
    """Make a topic by batches that wait for those before them, and by ones that do not, and look for them."""
    sent, number = Sent(), count()
    config = {"enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 3}
    producer = librdkafka_producer(here.bootstrap, **config)
    for records in (5, 30, 5):
        for _ in range(records):
            at = next(number)
            producer.produce(topic, b"%d" % at, b"%d" % (at % 7), on_delivery=sent.note)
        assert producer.flush(WAIT_S) == 0
    check_log(sent, read_all(here.bootstrap, topic, PARTITIONS, **{"fetch.wait.max.ms": 10}))


def records_hold(here: KafkaServed, store: FaultyStore, kind: str, nth: int) -> bool:
    """Write and read a topic while the n-th call about it fails; whether there are so many."""
    topic = f"{kind}-{next(NUMBERS)}"
    fail(store, kind, nth, topic)
    send(here, topic)
    return store.faults.pop().nth < 1


def offsets_hold(here: KafkaServed, store: FaultyStore, kind: str, nth: int) -> bool:
    """Commit offsets while the n-th call about groups fails; whether there are so many."""
    fail(store, kind, nth, CONSUMER_OFFSETS)
    commit(here, f"{kind}-{next(NUMBERS)}")
    return store.faults.pop().nth < 1


def fail(store: FaultyStore, kind: str, nth: int, topic: str) -> None:
    failure, operations = FAILURES[kind]
    store.faults.append(Fault(nth, failure, operations, f"{topic_directory(topic)}/"))


def commit(here: KafkaServed, group: str) -> None:
    """Read as the only member of a group, and commit each record: none of it fails, and the offsets are
    these.
    """
    config = {"bootstrap.servers": here.bootstrap, "group.id": group, "enable.auto.commit": False}
    patient = {"auto.offset.reset": "earliest", "retry.backoff.ms": 10, "fetch.wait.max.ms": 10}
    ends: dict[int, int] = {}
    with closing(Consumer({**config, **patient})) as consumer:
        consumer.subscribe([READ])
        for _ in range(COMMITS):
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.error() is None, message.error()
            consumer.commit(asynchronous=False)
            ends[message.partition() or 0] = (message.offset() or 0) + 1
        asked = [TopicPartition(READ, at) for at in ends]
        assert {each.partition: each.offset for each in consumer.committed(asked, WAIT_S)} == ends


def transactions_hold(here: KafkaServed, store: FaultyStore, kind: str, nth: int) -> bool:
    """Commit and abort transactions while the n-th call of the store fails; whether there are so many."""
    topic, (failure, operations) = f"{kind}-{next(NUMBERS)}", FAILURES[kind]
    store.faults.append(Fault(nth, failure, operations))
    transact(here, topic)
    return store.faults.pop().nth < 1


def transact(here: KafkaServed, topic: str) -> None:
    """Commit, abort and commit, each with an offset of a group, and look for the records and the offset."""
    config = {"linger.ms": 0, "batch.num.messages": 2, "transaction.timeout.ms": int(WAIT_S * 1_000)}
    producer = librdkafka_producer(here.bootstrap, **config, **{"transactional.id": topic})
    until_done(lambda: producer.init_transactions(WAIT_S))
    group = {"bootstrap.servers": here.bootstrap, "group.id": topic, "enable.auto.commit": False}
    with closing(Consumer(group)) as consumer:
        for number, commits in enumerate((True, False, True)):
            while not transacted(producer, consumer, topic, number, commits):
                until_done(lambda: producer.abort_transaction(BRIEFLY_S))
        (committed,) = consumer.committed([TopicPartition(READ, 0)], WAIT_S)
    assert committed.offset == 2
    found = read_all(here.bootstrap, topic, PARTITIONS, **{"fetch.wait.max.ms": 10})
    expected = [(at, b"%d-%d" % (number, at)) for at in range(PARTITIONS) for number in (0, 2)]
    assert [(each.partition, each.value) for each in found] == [each for each in expected for _ in range(3)]


def transacted(producer: Producer, consumer: Consumer, topic: str, number: int, commits: bool) -> bool:
    """Whether a transaction has ended so; else it is to be aborted."""
    try:
        producer.begin_transaction()
        for _ in range(3):
            for at in range(PARTITIONS):
                producer.produce(topic, b"%d-%d" % (number, at), partition=at)
        offsets, metadata = [TopicPartition(READ, 0, number)], consumer.consumer_group_metadata()
        until_done(lambda: producer.send_offsets_to_transaction(offsets, metadata, WAIT_S))
        end = producer.commit_transaction if commits else producer.abort_transaction
        until_done(lambda: end(BRIEFLY_S))
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        return False
    return True


def until_done(ask: Callable[[], object]) -> None:
    """Ask again while the client says that this is of use."""
    while True:
        try:
            ask()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


Holds = Callable[[KafkaServed, FaultyStore, str, int], bool]


@pytest.mark.parametrize("holds", [records_hold, offsets_hold, transactions_hold])
def test_what_was_acknowledged_holds_when_the_store_fails(
    here: KafkaServed, stores: list[FaultyStore], holds: Holds
) -> None:
    for nth, kind in enumerate(FAILURES, 2):
        assert holds(here, stores[0], kind, nth)


@pytest.mark.torture
@pytest.mark.parametrize("kind", FAILURES)
@pytest.mark.parametrize("holds", [records_hold, offsets_hold, transactions_hold])
def test_what_was_acknowledged_holds_whichever_call_of_the_store_fails(
    here: KafkaServed, stores: list[FaultyStore], holds: Holds, kind: str
) -> None:
    assert next(nth for nth in count(1) if not holds(here, stores[0], kind, nth)) > 2
