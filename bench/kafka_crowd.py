"""Many connections of Kafka's protocol in one process: each writes a few records, then reads from a log."""

import asyncio
import struct
from itertools import count
from typing import TypeVar

import pyarrow as pa

from api.kafka.protocol.apis import FETCH, PRODUCE
from api.kafka.protocol.codec import decode, encode
from api.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from api.kafka.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from api.kafka.protocol.notation import Message
from api.kafka.records.fetched import encode_batches
from bench import load
from log_tables.clock import timer
from log_tables.record import RECORD_SCHEMA

RECORDS = 10
VERSION = 11
_HEAD = struct.Struct(">ihhih")
_WAIT_MS = 500

Answer = TypeVar("Answer", bound=Message)


class Connection:
    """The connection of one client, which sends one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self._numbers = count()

    @classmethod
    async def open(cls, bootstrap: str) -> "Connection":
        host, _, port = bootstrap.partition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def ask(self, key: int, request: Message, answer: type[Answer], version: int = VERSION) -> Answer:
        body = encode(request, version)
        tags = b"\0" if request.first_flexible <= version else b""
        head = _HEAD.pack(10 + len(tags) + len(body), key, version, next(self._numbers), -1)
        self.writer.write(head + tags + body)
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        frame = await self._reader.readexactly(size)
        return decode(answer, version, memoryview(frame)[4 + len(tags) :])


async def crowd(bootstrap: str, topic: str, partitions: int, connections: int, seconds: float) -> int:
    """The records that so many clients have written and heard of within `seconds`."""
    end = timer() + seconds
    batch = b"".join(encode_batches([_records()], 0, RECORDS)[0])

    async def client(number: int) -> int:
        connection, partition, offset, written = await Connection.open(bootstrap), number % partitions, 0, 0
        produced = ProduceRequest(
            acks=-1,
            timeout_ms=60_000,
            topic_data=[
                TopicProduceData(
                    name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)]
                )
            ],
        )
        while timer() < end:
            answer = await connection.ask(PRODUCE, produced, ProduceResponse)
            placed = answer.responses[0].partition_responses[0]
            if placed.error_code:
                raise RuntimeError(f"error {placed.error_code}: {placed.error_message}")
            written += RECORDS
            fetched = FetchRequest(
                max_wait_ms=_WAIT_MS,
                min_bytes=1,
                topics=[
                    FetchTopic(
                        topic=topic,
                        partitions=[
                            FetchPartition(
                                partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
                            )
                        ],
                    )
                ],
            )
            found = await connection.ask(FETCH, fetched, FetchResponse)
            offset = found.responses[0].partitions[0].high_watermark
        connection.writer.close()
        return written

    return sum(await asyncio.gather(*map(client, range(connections))))


def _records() -> pa.RecordBatch:
    values = load.values(RECORDS)
    columns = [range(RECORDS), [0] * RECORDS, [None] * RECORDS, values, [None] * RECORDS]
    return pa.record_batch(
        [pa.array(each, field.type) for each, field in zip(columns, RECORD_SCHEMA, strict=True)],
        schema=RECORD_SCHEMA,
    )
