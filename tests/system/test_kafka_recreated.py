"""A topic that is deleted, and made again, while an idempotent producer of librdkafka sends to it."""

import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread

from confluent_kafka import KafkaException, Producer

from tests.kit.kafka import KafkaGateway, Sent, kafka_gateway, librdkafka_producer, read_all
from tests.kit.kafka_load import check_log
from tests.kit.support import WAIT_S, wait_until

ROUNDS = int(os.environ.get("LAKELOG_ROUNDS", "3"))
BEFORE, AFTER, PARTITIONS = 200, 200, 2


def deleted(door: KafkaGateway, topic: str) -> None:
    answer = door.running.client.delete(f"{door.running.cluster}/topics/{topic}")
    assert answer.status_code == 204, answer.text


def heard(producer: Producer, errors: list[str]) -> bool:
    """Whether there are errors, after what is to be called back."""
    producer.poll(0)
    return bool(errors)


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
                "error_cb": lambda error: fatal.extend([str(error)] if error.fatal() else []),  # noqa: B023
            }
            producer = librdkafka_producer(door.bootstrap, **settings)
            deletion = Thread(target=deleted, args=(door, topic))
            deletion_begins = BEFORE // 2
            with suppress(KafkaException):  # it takes no more after a fatal error
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
            assert producer.flush(WAIT_S) == 0
            if amid.failed or after.failed:
                # The error is called back in a poll of its own, maybe after those of the records.
                wait_until(partial(heard, producer, fatal), "librdkafka says that it cannot go on")
            if not fatal:
                assert (len(amid.placed), len(after.placed)) == (BEFORE, AFTER)
            found = read_all(door.bootstrap, topic, PARTITIONS)
            keyed = [each._replace(key=b"%d" % each.partition) for each in found]  # so in order in each
            check_log(after, keyed)
