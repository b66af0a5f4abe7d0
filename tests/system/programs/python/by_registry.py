"""Serializers of confluent-kafka with a schema registry: `by_registry.py write|read BOOTSTRAP REGISTRY
avro|json|protobuf TOPIC COUNT` writes COUNT records to TOPIC, or reads them back and prints their numbers.
"""

import sys
from collections.abc import Callable
from typing import Any

from confluent_kafka import DeserializingConsumer, SerializingProducer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from google.protobuf.wrappers_pb2 import Int64Value

action, bootstrap, url, kind, topic, count = sys.argv[1:]
registry = SchemaRegistryClient({"url": url})
AVRO = '{"type": "record", "name": "Number", "fields": [{"name": "value", "type": "long"}]}'
JSON = '{"title": "Number", "type": "object", "properties": {"value": {"type": "integer"}}}'


def plain(number: int) -> Any:
    """The value that Avro and JSON Schema describe."""
    return {"value": number}


SERIALIZERS: dict[str, Callable[[], tuple[Any, Any, Callable[[int], Any]]]] = {
    "avro": lambda: (AvroSerializer(registry, AVRO), AvroDeserializer(registry), plain),
    "json": lambda: (JSONSerializer(JSON, registry), JSONDeserializer(JSON), plain),
    "protobuf": lambda: (
        ProtobufSerializer(Int64Value, registry, {"use.deprecated.format": False}),
        ProtobufDeserializer(Int64Value, {"use.deprecated.format": False}),
        lambda number: Int64Value(value=number),
    ),
}
serializer, deserializer, make = SERIALIZERS[kind]()
if action == "write":
    producer = SerializingProducer({"bootstrap.servers": bootstrap, "value.serializer": serializer})
    for number in range(int(count)):
        producer.produce(topic, value=make(number), partition=0)
    producer.flush()
else:
    consumer = DeserializingConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"readers-of-{topic}",
            "auto.offset.reset": "earliest",
            "value.deserializer": deserializer,
        }
    )
    consumer.subscribe([topic])
    for _ in range(int(count)):
        value = consumer.poll(60).value()
        print(value["value"] if isinstance(value, dict) else value.value)
    consumer.close()
