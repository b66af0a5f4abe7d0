"""A copier by Quix Streams: `by_quix.py BOOTSTRAP SOURCE TARGET GROUP classic` makes the two topics where
they are missing, and writes each record of SOURCE to TARGET in upper case, at least once, as a member of
GROUP.
"""

import sys

from quixstreams import Application
from quixstreams.models import TopicConfig

bootstrap, source, target, group, _ = sys.argv[1:]
application = Application(
    broker_address=bootstrap,
    consumer_group=group,
    auto_offset_reset="earliest",
    commit_interval=0.2,
    consumer_extra_config={"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000},
    producer_extra_config={"enable.idempotence": True},
    state_dir="state",
)
two = TopicConfig(num_partitions=2, replication_factor=1)
read = application.topic(
    source, key_deserializer="bytes", value_deserializer="bytes", key_serializer="bytes", config=two
)
written = application.topic(target, key_serializer="bytes", value_serializer="bytes", config=two)
application.dataframe(read).apply(bytes.upper).to_topic(written)
application.run()
