"""A copier by transactions of aiokafka: `by_aiokafka_once.py BOOTSTRAP SOURCE TARGET GROUP ID` writes each
record of SOURCE to the same partition of TARGET in upper case, exactly once, as a member of GROUP. Every
third batch it writes as "aborted" first, and aborts that. It prints the offset of each answer.
"""

import asyncio
import sys
from itertools import count

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

NUMBERS = count()


async def main(bootstrap: str, source: str, target: str, group: str, name: str) -> None:
    """Whoever does not know what became of a transaction begins again at what the group has committed."""
    servers = bootstrap.split(",")
    while True:
        consumer = AIOKafkaConsumer(
            source,
            bootstrap_servers=servers,
            group_id=group,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        producer = AIOKafkaProducer(
            bootstrap_servers=servers, transactional_id=name, transaction_timeout_ms=10_000
        )
        try:
            async with producer, consumer:
                while True:
                    for at, messages in (await consumer.getmany(timeout_ms=100, max_records=20)).items():
                        if next(NUMBERS) % 3 == 0:
                            await transact(producer, target, group, (at, messages), aborts=True)
                        await transact(producer, target, group, (at, messages), aborts=False)
        except KafkaError as error:
            print(repr(error))


async def transact(
    producer: AIOKafkaProducer,
    target: str,
    group: str,
    batch: tuple[TopicPartition, list[ConsumerRecord]],
    *,
    aborts: bool,
) -> None:
    at, messages = batch
    await producer.begin_transaction()
    sent = [
        await producer.send(target, b"aborted" if aborts else each.value.upper(), each.key, at.partition)
        for each in messages
    ]
    for each in await asyncio.gather(*sent):
        print("offset", each.offset)
    await producer.send_offsets_to_transaction({at: messages[-1].offset + 1}, group)
    await (producer.abort_transaction() if aborts else producer.commit_transaction())


asyncio.run(main(*sys.argv[1:]))
