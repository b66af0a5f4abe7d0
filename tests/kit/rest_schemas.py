"""The formats of the REST Proxy with schemas, and a topic that has a schema of each language."""

import json
from typing import Any

from log_tables.record import Record
from tests.kit.gateway import RunningGateway
from tests.kit.proto_values import FLIGHT as PROTO
from tests.kit.registry_records import registers, send_records

AVRO, PROTOBUF, JSON_SCHEMA = (
    f"application/vnd.kafka.{name}.v2+json" for name in ("avro", "protobuf", "jsonschema")
)
FLIGHT: dict[str, Any] = {
    "type": "record",
    "name": "flight",
    "fields": [{"name": "carrier", "type": "string"}, {"name": "delay", "type": ["null", "double"]}],
}


def schemas_in(gateway: RunningGateway, topic: str, name: str, *more: Record) -> str:
    """The source of schemas that `topic` is from now on: one of each language, and one of keys.

    They are of the topics `name`, `name`-proto and `name`-json, and have the ids 17, 19, 20, and 21 for keys;
    `more` are other records of a registry.
    """
    gateway.create_topic(topic, 1, cleanup_policy="compact")
    registered = (
        registers(f"{name}-value", 1, 17, json.dumps(FLIGHT)),
        registers(f"{name}-key", 1, 21, '"string"'),
        registers(f"{name}-proto-value", 1, 19, PROTO, schemaType="PROTOBUF"),
        registers(f"{name}-json-value", 1, 20, '{"type": "object"}', schemaType="JSON"),
        *more,
    )
    send_records(gateway, topic, registered)
    return f"topic:{topic}"
