"""Avro with declared columns beside the same without: over Kafka's protocol, as Arrow, and on disk; and how
soon schemas are used, and what unknown ones cost.
"""

import io
import json
import os
import statistics
import threading
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import process_time
from typing import Any

import fastavro
import pyarrow as pa
from confluent_kafka import Producer

from bench import load
from bench.cells import Figures, body_file, scratch
from bench.contest import OURS, Contest, Results, Scale
from bench.gateway import Gateway, gateways, kafka_gateway, wait_until
from bench.peers import Peers
from bench.sql import GROUPED, ask, merged, size_of
from lakelog.cli.flights import load_flights
from log_tables.clock import timer
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
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
_FIELDS = {*(each["name"] for each in _SCHEMA["fields"]), "time_hour"}
_ROWS, _BODY_RECORDS, _CONNECTIONS, _KEYS, _PARTITIONS = 50_000, 5_000, 8, 97, 4
_ID, _UNKNOWN, _REGISTRY = 17, 99, "_schemas"
_BINARY = "application/vnd.kafka.binary.v2+json"
_NEW_SCHEMAS, _WIDE, _TIMES = 20, 16, 9
_SOURCED = {
    "value_columns": _TYPES,
    "value_columns_format": "avro",
    "value_columns_schemas": f"topic:{_REGISTRY}",
}


def produce(_peers: Peers | None, scale: Scale) -> Results:
    """Keyed Avro of ten fields to 4 partitions, with ten columns and without."""
    values = [*_values(_ROWS)]
    cases: Mapping[str, Mapping[str, str]] = {OURS: _SOURCED, "without columns": {}}
    return {name: _produced(configs, values, scale.seconds) for name, configs in cases.items()}


def flights(_peers: Peers | None, _scale: Scale) -> Results:
    """All flights of the demo as Avro of ten fields, each at its hour, in one merged file: `GROUP BY` over a
    declared column, and the bytes on disk; next to the same columns of JSON, and to Avro without columns.
    """
    with scratch() as directory:
        cluster = Cluster.open(open_store(directory))
        create_topic(cluster, _REGISTRY, 1, {})
        _register(cluster)
        declared = {name.replace("_", "."): value for name, value in _SOURCED.items()}
        sizes = {
            "avro": size_of(merged(directory, "avro", declared, _values())),
            "bare": size_of(merged(directory, "bare", {}, _values())),
            "json": size_of(merged(directory, "json", {"value.columns": _TYPES}, _json_values())),
        }
        asked = _in_turn({name: partial(ask, directory, GROUPED.format(name)) for name in ("avro", "json")})
        return {
            OURS: {**asked["avro"], "MB": sizes["avro"] / 1e6},
            "declared from JSON": {**asked["json"], "MB": sizes["json"] / 1e6},
            "without columns": {"MB": sizes["bare"] / 1e6},
        }


def _in_turn(queries: Mapping[str, Callable[[], object]]) -> dict[str, Figures]:
    """The medians of a few times of each, one after the other, after a first one."""
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in queries}
    for _ in range(_TIMES + 1):
        for name, query in queries.items():
            begin, busy = timer(), process_time()
            query()
            took[name].append(((timer() - begin) * 1e3, (process_time() - busy) * 1e3))
    return {name: _medians(times[1:]) for name, times in took.items()}


def _medians(times: Sequence[tuple[float, float]]) -> Figures:
    real, busy = map(statistics.median, zip(*times, strict=True))
    return {"GROUP BY, ms": real, "GROUP BY, CPU ms": busy}


def unknown(_peers: Peers | None, scale: Scale) -> Results:
    """Arrow produce of values whose schema the registry at a URL does not know, next to those of a known
    one, with ten columns; and how often the registry was asked meanwhile.
    """
    values = [*_values(_BODY_RECORDS)]
    strangers = [prefixed(_UNKNOWN, value[5:]) for value in values]
    (ours, asked), (known, _) = (_with_registry(each, scale.seconds) for each in (strangers, values))
    figure = "records/s as Arrow"
    return {OURS: {figure: ours, "look-ups a second": asked}, "a known id": {figure: known}}


def _with_registry(values: Sequence[bytes], seconds: int) -> tuple[float, float]:
    """(Records, look-ups) a second."""
    with scratch() as directory, _registry() as (source, asked), Gateway(directory / "data") as gateway:
        gateway.create_topic("arrow", _PARTITIONS, **{**_SOURCED, "value_columns_schemas": source})
        url, body = f"{gateway.url}/topics/arrow", body_file(directory, _arrow(values))
        load.post(url, body, load.ARROW, _CONNECTIONS, 1)
        before = len(asked)
        measured = load.post(url, body, load.ARROW, _CONNECTIONS, seconds)
        records = measured.requests * _BODY_RECORDS
        return records / measured.seconds, (len(asked) - before) / measured.seconds


@contextmanager
def _registry() -> Iterator[tuple[str, list[str]]]:
    """(The URL of a registry that knows one schema, and that new gateways may ask, what it was asked for)."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            known = self.path.split("?")[0].endswith(f"/{_ID}")
            self.send_response(200 if known else 404)
            self.end_headers()
            self.wfile.write(
                json.dumps({"schema": json.dumps(_SCHEMA)} if known else {"error_code": 40403}).encode()
            )

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        os.environ["LAKELOG_SCHEMA_REGISTRIES"] = json.dumps({url: {}})
        try:
            yield url, asked
        finally:
            del os.environ["LAKELOG_SCHEMA_REGISTRIES"]
            server.shutdown()


def new_schemas(_peers: Peers | None, _scale: Scale) -> Results:
    """From the acknowledgement of a new schema in `_schemas` to the first record with its id that has its
    columns, at the later of two gateways.
    """
    with scratch() as directory, gateways(directory / "data", 2) as started:
        started[0].create_topic(_REGISTRY, 1)
        started[0].create_topic("flights", _WIDE, **_SOURCED)
        for partition in range(_WIDE):
            _post(started[0], f"/topics/flights/partitions/{partition}", Record(b""))
        wait_until(lambda: all(each.leads("flights")[each.url] for each in started), "both lead partitions")
        topic = Cluster.open(open_store(directory / "data")).topic("flights")
        leads = [gateway.leads("flights")[gateway.url] for gateway in started]
        [value] = _values(1)
        took = []
        for number in range(_NEW_SCHEMAS):
            _post(started[0], f"/topics/{_REGISTRY}", _registered(_ID + number))
            begin = timer()
            for gateway, led in zip(started, leads, strict=True):
                _until_columns(gateway, topic, led[0], prefixed(_ID + number, value[5:]))
            took.append((timer() - begin) * 1e3)
        return {OURS: {"p50 ms": statistics.median(took), "longest ms": max(took)}}


def _until_columns(gateway: Gateway, topic: Topic, led: int, value: bytes) -> None:
    """Write a record with `value` until it has its columns."""
    partition = topic.partition(led)
    while True:
        _post(gateway, f"/topics/flights/partitions/{led}", Record(value))
        partition.refresh()
        end = partition.high_watermark
        [found] = partition.read(partition.plan_read(end - 1, end), ["carrier"])
        if found["carrier"][0].is_valid:
            return


def _post(gateway: Gateway, path: str, record: Record) -> None:
    fields = (("key", record.key), ("value", record.value))
    row = {name: None if data is None else b64encode(data).decode() for name, data in fields}
    body = json.dumps({"records": [row]}).encode()
    request = urllib.request.Request(gateway.url + path, body, {"Content-Type": _BINARY})
    with urllib.request.urlopen(request) as answer:
        answer.read()


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
    partition: Partition = cluster.topic(_REGISTRY).partition(0)
    partition.claim("")
    partition.append([AppendRequest(input_batch([_registered(_ID)], 0))])


def _registered(schema_id: int) -> Record:
    """The schema as Confluent's registry writes it."""
    version = schema_id - _ID + 1
    key = {"keytype": "SCHEMA", "subject": "flights-value", "version": version, "magic": 1}
    schema = json.dumps({**_SCHEMA, "doc": str(schema_id)})
    value = {"subject": "flights-value", "version": version, "id": schema_id, "schema": schema}
    return Record(json.dumps(value).encode(), json.dumps(key).encode())


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


def _rows(count: int | None) -> Iterator[dict[str, Any]]:
    """The first flights, all unless `count` is given, with the fields of the schema."""
    for row in load_flights().slice(0, count).to_pylist():
        yield {"at" if name == "time_hour" else name: value for name, value in row.items() if name in _FIELDS}


def _values(count: int | None = None) -> Iterator[bytes]:
    schema = fastavro.parse_schema(_SCHEMA)
    for row in _rows(count):
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, schema, row)
        yield prefixed(_ID, sink.getvalue())


def _json_values() -> Iterator[bytes]:
    for row in _rows(None):
        yield json.dumps({**row, "at": row["at"].isoformat()}).encode()


CELLS: dict[str, Contest] = {
    "produce Avro with columns": Contest(produce, needs_broker=False),
    "Avro flights": Contest(flights, needs_broker=False),
    "unknown schema under load": Contest(unknown, needs_broker=False),
    "new schema, two gateways": Contest(new_schemas, needs_broker=False),
}
