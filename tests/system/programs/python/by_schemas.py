"""Serializers of confluent-kafka that are given their schemas: `by_schemas.py BOOTSTRAP REGISTRY` writes each
line of its input, with `topic`, `kind` (avro, json or protobuf), `schema`, and `values`. For Protobuf
the schema is the fields of a message: names with types and numbers. Prints the id of each schema.
"""

import json
import sys
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

bootstrap, url = sys.argv[1:]
registry = SchemaRegistryClient({"url": url})
producer = Producer({"bootstrap.servers": bootstrap})


def message(fields: dict[str, tuple[str, int]]) -> Any:
    """The class of a message `Flight`."""
    file = FileDescriptorProto(name="flight.proto", package="air", syntax="proto3")
    made = file.message_type.add(name="Flight")
    for name, (kind, number) in fields.items():
        made.field.add(
            name=name,
            number=number,
            type=FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}"),
            label=FieldDescriptorProto.LABEL_OPTIONAL,
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("air.Flight"))


def write(topic: str, kind: str, schema: Any, values: list[Any]) -> None:
    """Write `values` by a serializer of this kind, and wait until all are there."""
    if kind == "avro":
        serializer: Any = AvroSerializer(registry, json.dumps(schema))
    elif kind == "json":
        serializer = JSONSerializer(json.dumps(schema), registry)
    else:
        made = message(schema)
        serializer = ProtobufSerializer(made, registry, {"use.deprecated.format": False})
        values = [json_format.ParseDict(value, made()) for value in values]
    for value in values:
        data = serializer(value, SerializationContext(topic, MessageField.VALUE))
        producer.produce(topic, value=data, partition=0)
    assert producer.flush(60) == 0


for line in sys.stdin:
    asked = json.loads(line)
    write(**asked)
    print(registry.get_latest_version(f"{asked['topic']}-value").schema_id, flush=True)
