"""Avro with declared columns beside the same without: over Kafka's protocol, as Arrow, and on disk."""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from confluent_kafka import Producer

from bench import load
from bench.cells import Figures, body_file, scratch
from bench.contest import OURS, Contest, Results, Scale
from bench.gateway import kafka_gateway
from bench.peers import Peers
from lakelog.cli.flights import load_flights
from log_tables.clock import timer
from log_tables.cluster.cluster import Cluster
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import Record, binary_array, input_batch
from log_tables.schemas.framing import prefixed
from log_tables.store.store import open_store

_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "flight",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "flight", "type": "int"},
        {"name": "origin", "type": "string"},
        {"name": "dest", "type": "string"},
        {"name": "tailnum", "type": ["null", "string"]},
        {"name": "dep_delay", "type": ["null", "double"]},
        {"name": "arr_delay", "type": ["null", "double"]},
        {"name": "distance", "type": "double"},
        {"name": "hour", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
_TYPES = (
    "carrier string, flight bigint, origin string, dest string, tailnum string, dep_delay double, "
    "arr_delay double, distance double, hour bigint, at timestamp"
)
_ROWS, _BODY_RECORDS, _CONNECTIONS, _KEYS, _PARTITIONS = 50_000, 5_000, 8, 97, 4
_ID, _REGISTRY = 17, "_schemas"


def produce(_peers: Peers | None, scale: Scale) -> Results:
    """Keyed Avro of ten fields to 4 partitions, with ten columns and without."""
    values = _values()
    declared = {
        "value_columns": _TYPES,
        "value_columns_format": "avro",
        "value_columns_schemas": f"topic:{_REGISTRY}",
    }
    cases: Mapping[str, Mapping[str, str]] = {OURS: declared, "without columns": {}}
    return {name: _produced(configs, values, scale.seconds) for name, configs in cases.items()}


def _produced(configs: Mapping[str, str], values: Sequence[bytes], seconds: int) -> Figures:
    with scratch() as directory, kafka_gateway(directory / "data") as (bootstrap, gateway):
        gateway.create_topic(_REGISTRY, 1)
        _register(Cluster.open(open_store(directory / "data")))
        for topic in ("arrow", "kafka"):
            gateway.create_topic(topic, _PARTITIONS, **configs)
        _send(bootstrap, values[: _ROWS // 10], 1)
        over_kafka = _send(bootstrap, values, seconds * 4)
        url, body = f"{gateway.url}/topics/arrow", body_file(directory, _arrow(values[:_BODY_RECORDS]))
        load.post(url, body, load.ARROW, _CONNECTIONS, 1)
        before = _size(directory / "data" / "topics" / "arrow"), gateway.end_offset("arrow", _PARTITIONS)
        measured = load.post(url, body, load.ARROW, _CONNECTIONS, seconds)
        after = _size(directory / "data" / "topics" / "arrow"), gateway.end_offset("arrow", _PARTITIONS)
        return {
            "records/s over Kafka": over_kafka,
            "records/s as Arrow": measured.requests * _BODY_RECORDS / measured.seconds,
            "bytes of files a record": (after[0] - before[0]) / (after[1] - before[1]),
        }


def _register(cluster: Cluster) -> None:
    """Write the schema as Confluent's registry does."""
    key = {"keytype": "SCHEMA", "subject": "flights-value", "version": 1, "magic": 1}
    value = {"subject": "flights-value", "version": 1, "id": _ID, "schema": json.dumps(_SCHEMA)}
    partition: Partition = cluster.topic(_REGISTRY).partition(0)
    partition.claim("")
    record = Record(json.dumps(value).encode(), json.dumps(key).encode())
    partition.append([AppendRequest(input_batch([record], 0))])


def _send(bootstrap: str, values: Sequence[bytes], times: int) -> float:
    """Records a second, by librdkafka, each batch acknowledged once it is durable."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 20,
            "queue.buffering.max.messages": 10**6,
        }
    )
    begin = timer()
    for _ in range(times):
        for number, value in enumerate(values):
            producer.produce("kafka", value, f"user{number % _KEYS}")
            if number % 1_000 == 0:
                producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("records were not acknowledged within 120 s")
    return len(values) * times / (timer() - begin)


def _arrow(values: Sequence[bytes]) -> bytes:
    keys = binary_array([b"user%d" % (number % _KEYS) for number in range(len(values))])
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_arrays([keys, binary_array(values)], ["key", "value"])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _size(directory: Path) -> int:
    return sum(each.stat().st_size for each in directory.rglob("*.parquet"))


def _values() -> list[bytes]:
    rows = load_flights().slice(0, _ROWS).to_pylist()
    schema, found = fastavro.parse_schema(_SCHEMA), list[bytes]()
    for row in rows:
        sink = io.BytesIO()
        at = {"at": 1_357_000_000_000 + len(found)}
        fields = {each["name"]: row.get(each["name"]) for each in _SCHEMA["fields"]}
        fastavro.schemaless_writer(sink, schema, {**fields, **at})
        found.append(prefixed(_ID, sink.getvalue()))
    return found


CELLS: dict[str, Contest] = {"produce Avro with columns": Contest(produce, needs_broker=False)}
