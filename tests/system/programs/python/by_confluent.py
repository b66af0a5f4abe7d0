"""A copier by confluent-kafka: `by_confluent.py BOOTSTRAP SOURCE TARGET GROUP classic|consumer` makes the two
topics where they are missing, and writes each record of SOURCE to TARGET in upper case, at least once, as a
member of GROUP.
"""

import signal
import sys
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

bootstrap, source, target, group, protocol = sys.argv[1:]
server = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 200}
admin = AdminClient(server)
for made in admin.create_topics([NewTopic(topic, 2) for topic in (source, target)]).values():
    with suppress(KafkaException):  # it exists already
        made.result()
classic = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000} if protocol == "classic" else {}
producer = Producer({**server, "enable.idempotence": True, "linger.ms": 0})
consumer = Consumer(
    {
        **server,
        **classic,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
)
stopping: list[int] = []
signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
consumer.subscribe([source])
while not stopping:
    found = [message for message in consumer.consume(100, 0.1) if message.error() is None]
    for message in found:
        producer.produce(target, message.value().upper(), message.key())
    producer.flush()
    if found:
        with suppress(KafkaException):  # of a generation that has passed: the next one has them again
            consumer.commit(asynchronous=False)
consumer.close()
