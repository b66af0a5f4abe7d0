"""The records of a schema registry, as Confluent's and Karapace's write them."""

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence

from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import Record, input_batch
from tests.kit.gateway import RunningGateway
from tests.kit.produce import BINARY

NOOP = Record(None, b'{"keytype":"NOOP","magic":0}')


def registers(subject: str, version: int, schema_id: int, schema: str, **more: object) -> Record:
    """A version of a subject as Confluent's registry has it; `more` are other fields of its value."""
    value = {"subject": subject, "version": version, "id": schema_id, "schema": schema, "deleted": False}
    return Record(_json({**value, **more}), _key("SCHEMA", 1, subject=subject, version=version))


def karapace_registers(subject: str, version: int, schema_id: int, schema: str, **more: object) -> Record:
    """A version of a subject as Karapace has it; topics that it began long ago have keys in this order."""
    value = {"subject": subject, "version": version, "id": schema_id, "schema": schema, "deleted": False}
    return Record(_json({**value, **more}), _karapace_key(subject, version))


def karapace_removes(subject: str, version: int) -> Record:
    """A version that Karapace deletes for ever: its producer writes no tombstone, but an empty value."""
    return Record(b"", _karapace_key(subject, version))


def _karapace_key(subject: str, version: int) -> bytes:
    return _json({"subject": subject, "version": version, "magic": 1, "keytype": "SCHEMA"})


def removes(subject: str, version: int) -> Record:
    return Record(None, _key("SCHEMA", 1, subject=subject, version=version))


def deletes_subject(subject: str, version: int) -> Record:
    return Record(_json({"subject": subject, "version": version}), _key("DELETE_SUBJECT", 0, subject=subject))


def clears_subject(subject: str) -> Record:
    return Record(_json({"subject": subject}), _key("CLEAR_SUBJECT", 0, subject=subject))


def others() -> list[Record]:
    """Records that say nothing about schemas."""
    return [
        NOOP,
        Record(_json({"compatibilityLevel": "BACKWARD"}), _key("CONFIG", 0, subject=None)),
        Record(_json({"mode": "IMPORT"}), _key("MODE", 0, subject="s")),
        Record(
            _json({"tenant": "default", "context": ".a"}), _key("CONTEXT", 0, tenant="default", context=".a")
        ),
        Record(b"", _key("CONFIG", 0, subject="s")),  # Karapace, when the rule of a subject is deleted
    ]


def put_records(partition: Partition, records: Sequence[Record]) -> None:
    """Append `records` as one commit."""
    if not partition.leading:
        partition.claim("http://registry")
    partition.append([AppendRequest(input_batch(records, 1_000_000))])


def send_records(gateway: RunningGateway, topic: str, records: Iterable[Record]) -> None:
    """Append records of bytes over HTTP."""
    rows = [
        {
            name: None if data is None else b64encode(data).decode()
            for name, data in (("key", record.key), ("value", record.value))
        }
        for record in records
    ]
    answer = gateway.client.post(f"/topics/{topic}", json={"records": rows}, headers={"Content-Type": BINARY})
    assert answer.status_code == 200, answer.text


def _key(keytype: str, magic: int, **fields: object) -> bytes:
    return _json({"keytype": keytype, **fields, "magic": magic})


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
