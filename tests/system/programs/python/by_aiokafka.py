"""A copier by aiokafka: `by_aiokafka.py BOOTSTRAP SOURCE TARGET GROUP classic` makes the two topics where
they are missing, and writes each record of SOURCE to TARGET in upper case, at least once, as a member of
GROUP.
"""

import asyncio
import signal
import sys
from contextlib import suppress

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import CommitFailedError, KafkaError, TopicAlreadyExistsError


async def main(bootstrap: str, source: str, target: str, group: str, _protocol: str) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    with suppress(TopicAlreadyExistsError):
        await admin.create_topics([NewTopic(topic, 2, 1) for topic in (source, target)])
    await admin.close()
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=group,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=1_000,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    async with producer, consumer:
        while not stopping.is_set():
            found = await consumer.getmany(timeout_ms=100)
            messages = [message for each in found.values() for message in each]
            sent = [await producer.send(target, each.value.upper(), each.key) for each in messages]
            await asyncio.gather(*sent)
            if messages:
                with suppress(CommitFailedError, KafkaError):  # the next generation has them again
                    await consumer.commit()


asyncio.run(main(*sys.argv[1:]))
