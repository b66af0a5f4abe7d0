"""A program that copies a topic exactly once by transactions of librdkafka: what its group reads, and the
group's offsets with it. Some of its transactions it aborts, and writes those again.

    python -m tests.kit.kafka_copier BOOTSTRAP SOURCE TARGET ID SEED
"""

import sys
from collections.abc import Iterator
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from log_tables.clock import ManualClock

GROUP = "copiers"
ABORTED = b"aborted"
"""The value of a record that is in no transaction that was committed."""

BATCH, WAIT_S = 20, 30.0


class Job(NamedTuple):
    """A copy to make, and its transactional id."""

    bootstrap: str
    source: str
    target: str
    id: str


def copy(job: Job, draw: ManualClock) -> None:
    """Copy until the process ends. A client that is fenced, or does not know what became of its transaction,
    is made anew.
    """
    while True:
        consumer = Consumer(
            {
                "bootstrap.servers": job.bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 6_000,
            }
        )
        producer = Producer(
            {
                "bootstrap.servers": job.bootstrap,
                "transactional.id": job.id,
                "transaction.timeout.ms": 10_000,
                "linger.ms": 5,
            }
        )
        try:
            producer.init_transactions(WAIT_S)
            consumer.subscribe([job.source])
            for messages in _polled(consumer):
                _transact(job, producer, consumer, messages, draw.random() < 0.2)
        except KafkaException:
            pass
        finally:
            consumer.close()


def _polled(consumer: Consumer) -> Iterator[list[Message]]:
    while True:
        messages = [each for each in consumer.consume(BATCH, 0.2) if each.error() is None]
        if messages:
            yield messages


def _transact(
    job: Job, producer: Producer, consumer: Consumer, messages: list[Message], aborts: bool
) -> None:
    try:
        producer.begin_transaction()
        for message in messages:
            value, partition = ABORTED if aborts else message.value(), message.partition()
            assert partition is not None
            producer.produce(job.target, value, message.key(), partition=partition)
        if aborts:
            producer.flush(WAIT_S)
            producer.abort_transaction(WAIT_S)
            _go_back(consumer, messages)
            return
        position = consumer.position(consumer.assignment())
        known = [each for each in position if each.offset >= 0]
        producer.send_offsets_to_transaction(known, consumer.consumer_group_metadata(), WAIT_S)
        _commit(producer)
    except KafkaException as error:
        said = error.args[0]
        if not isinstance(said, KafkaError) or not said.txn_requires_abort():
            raise
        producer.abort_transaction(WAIT_S)
        _go_back(consumer, messages)


def _commit(producer: Producer) -> None:
    while True:
        try:
            producer.commit_transaction(WAIT_S)
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def _go_back(consumer: Consumer, messages: list[Message]) -> None:
    """To what the group has committed: the same records come again."""
    places = {(each.topic(), each.partition()) for each in messages}
    for each in consumer.committed(consumer.assignment(), WAIT_S):
        if (each.topic, each.partition) in places:
            consumer.seek(TopicPartition(each.topic, each.partition, max(each.offset, 0)))


if __name__ == "__main__":
    *named, seed = sys.argv[1:]
    copy(Job(*named), ManualClock(seed=int(seed)))
