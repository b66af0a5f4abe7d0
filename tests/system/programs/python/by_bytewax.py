"""A copier by Bytewax: `by_bytewax.py BOOTSTRAP SOURCE TARGET GROUP none` makes the two topics where they are
missing, and writes each record of SOURCE to TARGET in upper case, at least once. It belongs to no group: the
offsets are in a recovery store in the directory where it runs.
"""

import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSinkMessage, KafkaSourceMessage
from bytewax.connectors.kafka import operators as kafka
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

bootstrap, source, target, _, _ = sys.argv[1:]
admin = AdminClient({"bootstrap.servers": bootstrap})
for made in admin.create_topics([NewTopic(topic, 2) for topic in (source, target)]).values():
    with suppress(KafkaException):  # it exists already
        made.result()


def upper(message: "KafkaSourceMessage[bytes, bytes]") -> "KafkaSinkMessage[bytes, bytes]":
    """The copy of a record."""
    return KafkaSinkMessage(message.key, message.value.upper())


flow = Dataflow("copier")
quick = {"reconnect.backoff.max.ms": "200", "enable.idempotence": "true"}
found = kafka.input("read", flow, brokers=[bootstrap], topics=[source], tail=True)
kafka.output("write", op.map("upper", found.oks, upper), brokers=[bootstrap], topic=target, add_config=quick)

store = Path("recovery")
if not store.exists():
    store.mkdir()
    init_db_dir(store, 1)
cli_main(flow, recovery_config=RecoveryConfig(store), epoch_interval=timedelta(seconds=0.2))
