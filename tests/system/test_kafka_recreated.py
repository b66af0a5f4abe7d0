"""A topic that is deleted, and made again, while an idempotent producer of librdkafka sends to it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from confluent_kafka import KafkaException

from tests.kit.kafka import KafkaGateway, Sent, kafka_gateway, librdkafka_producer, read_all
from tests.kit.kafka_load import check_log
from tests.kit.support import WAIT_S

ROUNDS = int(os.environ.get("LAKELOG_ROUNDS", "3"))
BEFORE, AFTER, PARTITIONS = 200, 200, 2


def deleted(door: KafkaGateway, topic: str) -> None:
    answer = door.running.client.delete(f"{door.running.cluster}/topics/{topic}")
    assert answer.status_code == 204, answer.text


@contextmanager
def noted(fatal: list[str]) -> Iterator[None]:
    """Note a fatal error, which librdkafka's next call raises."""
    try:
        yield
    except KafkaException as error:
        if not error.args[0].fatal():
            raise
        fatal.append(str(error))


def test_librdkafka_goes_on_or_says_that_it_cannot_where_its_topic_is_deleted_while_it_sends(
    tmp_path: Path,
) -> None:
    """Librdkafka creates the topic again by naming it. Records that are acknowledged after the deletion are
    there once, in order. Where it stops (docs/kafka.md says when), its program gets a fatal error.
    """
    with kafka_gateway(tmp_path, num_partitions=PARTITIONS) as door:
        for number in range(ROUNDS):
            topic, amid, after = door.create_topic(f"again-{number}", PARTITIONS), Sent(), Sent()
            fatal = list[str]()
            settings = {
                "enable.idempotence": True,
                "linger.ms": 0,
                "batch.num.messages": 3,
            }
            producer = librdkafka_producer(door.bootstrap, **settings)
            deletion = Thread(target=deleted, args=(door, topic))
            deletion_begins = BEFORE // 2
            with noted(fatal):
                for value in range(BEFORE + AFTER):
                    sent = amid if value < BEFORE else after
                    if value == deletion_begins:
                        deletion.start()
                    if value == BEFORE:
                        deletion.join()
                    at = value % PARTITIONS
                    producer.produce(topic, b"%d" % value, partition=at, on_delivery=sent.note)
                    producer.poll(0.002)
            deletion.join()
            with noted(fatal):
                producer.flush(WAIT_S)
            assert producer.flush(WAIT_S) == 0
            if not fatal:
                assert amid.failed == after.failed == []
                assert (len(amid.placed), len(after.placed)) == (BEFORE, AFTER)
            found = read_all(door.bootstrap, topic, PARTITIONS)
            keyed = [each._replace(key=b"%d" % each.partition) for each in found]  # so in order in each
            check_log(after, keyed)
