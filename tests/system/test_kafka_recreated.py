"""A topic that is deleted, and made again, while an idempotent producer of librdkafka sends to it."""

import os
from pathlib import Path
from threading import Thread

from tests.kit.kafka import KafkaGateway, Sent, kafka_gateway, librdkafka_producer, read_all
from tests.kit.kafka_load import check_log
from tests.kit.support import WAIT_S

ROUNDS = int(os.environ.get("LAKELOG_ROUNDS", "3"))
BEFORE, AFTER, PARTITIONS = 200, 200, 2


def deleted(door: KafkaGateway, topic: str) -> None:
    answer = door.running.client.delete(f"{door.running.cluster}/topics/{topic}")
    assert answer.status_code == 204, answer.text


def test_librdkafka_goes_on_where_its_topic_is_deleted_while_it_sends(tmp_path: Path) -> None:
    """It makes the topic again by naming it. What is acknowledged after the deletion is there once, in its
    order.
    """
    settings = {"enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 3}
    with kafka_gateway(tmp_path, num_partitions=PARTITIONS) as door:
        for number in range(ROUNDS):
            topic, amid, after = door.create_topic(f"again-{number}", PARTITIONS), Sent(), Sent()
            producer = librdkafka_producer(door.bootstrap, **settings)
            deletion = Thread(target=deleted, args=(door, topic))
            for value in range(BEFORE):
                producer.produce(topic, b"%d" % value, partition=value % PARTITIONS, on_delivery=amid.note)
                producer.poll(0.002)
                if value == BEFORE // 2:
                    deletion.start()
            deletion.join()
            for value in range(BEFORE, BEFORE + AFTER):
                producer.produce(topic, b"%d" % value, partition=value % PARTITIONS, on_delivery=after.note)
            assert producer.flush(WAIT_S) == 0
            assert amid.failed == []
            assert len(amid.placed) == BEFORE
            assert len(after.placed) == AFTER
            found = read_all(door.bootstrap, topic, PARTITIONS)
            keyed = [each._replace(key=b"%d" % each.partition) for each in found]  # so in order in each
            check_log(after, keyed)
