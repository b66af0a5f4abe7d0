"""v3 produce: records with typed keys and values, and what is answered for each. Pure."""

from binascii import a2b_base64
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import msgspec

from api.errors import MalformedBody
from api.wire.json_bounds import check_depth, check_utf8, documents, too_deep
from api.wire.long_lists import LongListsDecoder
from api.wire.named_schemas import NamedSchema, NamedSchemas, misfit
from api.wire.v2 import Milliseconds, unless_all_none
from log_tables.cluster.route import SentRecords
from log_tables.columns.time_text import time_us
from log_tables.errors import InvalidRecord, InvalidValue
from log_tables.limits import TIMESTAMP_BOUNDS
from log_tables.record import time_or_append_us
from log_tables.rows import Rows, rows_or_batch
from log_tables.schemas.schema import SchemaKind, Unencodable


class Typed(msgspec.Struct, forbid_unknown_fields=True):
    """A key or value: `data` is base64 for BINARY, a string for STRING, anything for JSON.

    For the others it is the JSON of a value of a schema, which `type` may leave to the registry.
    """

    type: Literal["BINARY", "JSON", "STRING", "AVRO", "PROTOBUF", "JSONSCHEMA"] | None = None
    data: msgspec.Raw = msgspec.Raw(b"null")
    subject: str | None = None
    subject_name_strategy: str | None = None
    schema_id: int | None = None
    schema_version: int | None = None
    schema: str | None = None

    @property
    def names_schema(self) -> bool:
        """Whether a field is there that has to do with a schema."""
        names = self.subject, self.subject_name_strategy, self.schema_id, self.schema_version, self.schema
        return any(each is not None for each in names)


_KINDS = {"AVRO": SchemaKind.AVRO, "PROTOBUF": SchemaKind.PROTOBUF, "JSONSCHEMA": SchemaKind.JSON}
_TYPES = {kind: name for name, kind in _KINDS.items()}


class HeaderIn(msgspec.Struct, forbid_unknown_fields=True):
    """A record header; its value is base64."""

    name: str
    value: bytes | None = None


class RecordIn(msgspec.Struct, forbid_unknown_fields=True):
    """A record of v3."""

    partition_id: int | None = None
    headers: list[HeaderIn] = []
    key: Typed | None = None
    value: Typed | None = None
    timestamp: str | Milliseconds | None = None


class EntryIn(RecordIn, kw_only=True):
    """A record of a batch; `id` is the caller's name for it."""

    id: str


Facts = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Row:
    """A record of v3 in bytes; `facts` are those of its key and value that the answer has: `type`, and which
    schema.
    """

    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int | None
    facts: tuple[Facts | None, Facts | None]


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    entries: list[msgspec.Raw]


class _Id(msgspec.Struct):
    id: str


_record = msgspec.json.Decoder(RecordIn)
_entry = msgspec.json.Decoder(EntryIn)
_id = msgspec.json.Decoder(_Id)
_batch = LongListsDecoder(_Batch)


def decode_stream(body: bytes, schemas: NamedSchemas) -> list[Row]:
    """The rows of concatenated JSON records. What has one of the `schemas` that are wanted has no bytes yet.

    Raises MalformedBody, InvalidRecord, which name the record.
    """
    check_utf8(body)
    rows = []
    for index, text in enumerate(documents(body)):
        try:
            rows.append(_row(_record.decode(text), schemas))
        except msgspec.ValidationError as error:
            raise InvalidRecord(f"record {index}: {error}") from None
        except InvalidRecord as error:
            facts = {"index": index} if isinstance(error, InvalidValue) else {}
            raise type(error)(f"record {index}: {error}", **facts, **error.details) from None
        except RecursionError:
            raise too_deep() from None
        except msgspec.DecodeError as error:
            raise MalformedBody(
                f"record {index} is not JSON: {error}; send JSON objects, one after the other"
            ) from None
    if not rows:
        raise InvalidRecord("there are no records; send at least one")
    return rows


def decode_batch(body: bytes, schemas: NamedSchemas) -> list[tuple[str, Row | InvalidRecord]]:
    """(id, row or what is wrong with it) of each entry. What has one of the `schemas` that are wanted has no
    bytes yet.

    Raises MalformedBody, InvalidRecord for the whole.
    """
    check_utf8(body)
    try:
        raws = _batch.decode(body).entries
        ids = [_id.decode(raw).id for raw in raws]
    except msgspec.ValidationError as error:
        raise InvalidRecord(
            f'the body does not fit {{"entries": [{{"id": …, "value": …}}]}}: {error}; fix it'
        ) from None
    except RecursionError:
        raise too_deep() from None
    except msgspec.DecodeError as error:
        raise MalformedBody(f"the body is not JSON: {error}; send valid JSON") from None
    if not ids:
        raise InvalidRecord("there are no entries; send at least one")
    if len(set(ids)) < len(ids):
        raise InvalidRecord("two entries have the same id; give each its own")
    return [(name, _entry_row(raw, schemas)) for name, raw in zip(ids, raws, strict=True)]


def _entry_row(raw: msgspec.Raw, schemas: NamedSchemas) -> Row | InvalidRecord:
    try:
        return _row(_entry.decode(raw), schemas)
    except RecursionError:
        raise too_deep() from None
    except msgspec.MsgspecError as error:
        return InvalidRecord(str(error))
    except InvalidRecord as error:
        return error


def _row(record: RecordIn, schemas: NamedSchemas) -> Row:
    key, key_facts = _bytes(record.key, "key", schemas)
    value, value_facts = _bytes(record.value, "value", schemas)
    return Row(
        record.partition_id,
        key,
        value,
        tuple((header.name, header.value) for header in record.headers),
        _milliseconds(record.timestamp),
        (key_facts, value_facts),
    )


def _bytes(typed: Typed | None, name: str, schemas: NamedSchemas) -> tuple[bytes | None, Facts | None]:
    """(The bytes of a key or value, what the answer says of it)."""
    if typed is None:
        return None, None
    raw = bytes(typed.data)
    check_depth(raw)
    if typed.type is None or typed.type in _KINDS:
        return _of_schema(raw, typed, name, schemas)
    if typed.names_schema:
        raise InvalidRecord(f"{name}: the type {typed.type} has no schema; name none, or another type")
    return (None if raw == b"null" else _plain(raw, typed, name)), {"type": typed.type}


def _of_schema(raw: bytes, typed: Typed, name: str, schemas: NamedSchemas) -> tuple[bytes | None, Facts]:
    found = schemas.of(_named(typed, name, schemas.topic))
    if found is None:
        return None, {}
    facts: dict[str, object] = {"type": _TYPES[found.schema.kind], "schema_id": found.schema_id}
    if found.version is not None:
        facts |= {"subject": found.version.subject, "schema_version": found.version.version}
    if raw == b"null":
        return None, facts
    try:
        return schemas.encoded(raw, found), facts
    except Unencodable as error:
        raise misfit(error, found, f"the {name}") from None


def _named(typed: Typed, name: str, topic: str) -> NamedSchema:
    """How a key or value names its schema. Raises InvalidRecord."""
    strategy = typed.subject_name_strategy
    if strategy not in (None, "TOPIC_NAME"):
        raise InvalidRecord(
            f"{name}.subject_name_strategy={strategy[:40]!r} is not taken; use TOPIC_NAME, or a subject"
        )
    if strategy is not None and typed.subject is not None:
        raise InvalidRecord(f"{name} has a subject and a subject_name_strategy; send one of them")
    given = [each is not None for each in (typed.schema_id, typed.schema_version, typed.schema)]
    if sum(given) > 1:
        raise InvalidRecord(f"{name} names its schema twice; send schema_id, schema_version or schema")
    if typed.schema is not None and typed.type is None:
        raise InvalidRecord(f"{name}.schema needs the type: {', '.join(_KINDS)}")
    return NamedSchema(
        typed.subject or f"{topic}-{name}",
        None if typed.type is None else _KINDS[typed.type],
        typed.schema_id,
        typed.schema,
        typed.schema_version,
        checked=typed.subject is not None,
    )


def _plain(raw: bytes, typed: Typed, name: str) -> bytes:
    if typed.type == "JSON":
        return raw
    try:
        text = msgspec.json.decode(raw, type=str)
        return text.encode() if typed.type == "STRING" else a2b_base64(text, strict_mode=True)
    except (msgspec.MsgspecError, ValueError) as error:  # ValueError: not base64, or not even ASCII
        raise InvalidRecord(f"{name}.data does not fit type {typed.type}: {error}") from None


def _milliseconds(timestamp: str | int | None) -> int | None:
    if not isinstance(timestamp, str):
        return timestamp
    microseconds = time_us(timestamp)
    if microseconds is None:
        raise InvalidRecord(
            f"the timestamp {timestamp[:50]!r} is no time of {TIMESTAMP_BOUNDS}; send one such as "
            "2013-01-31T05:00:00Z, or milliseconds since 1970"
        )
    return microseconds // 1000


def sent_records(rows: list[Row], now_us: int) -> SentRecords:
    """The records of `rows`; those without a timestamp get `now_us`."""
    records = Rows(
        [row.value for row in rows],
        [time_or_append_us(row.timestamp_ms, now_us) for row in rows],
        unless_all_none([row.key for row in rows]),
        [row.headers for row in rows] if any(row.headers for row in rows) else None,
    )
    return SentRecords(rows_or_batch(records), unless_all_none([row.partition for row in rows]))


def record_answer(
    row: Row, cluster_id: str, topic: str, position: tuple[int, int | None], timestamp_ms: int
) -> dict[str, object]:
    """The answer to a record that was appended at `position` (partition, offset)."""
    stamp = datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    sizes = (
        (name, facts, data)
        for name, facts, data in zip(("key", "value"), row.facts, (row.key, row.value), strict=True)
        if facts is not None
    )
    return {
        "error_code": 200,
        "cluster_id": cluster_id,
        "topic_name": topic,
        "partition_id": position[0],
        "offset": position[1],
        "timestamp": stamp.replace("+00:00", "Z"),
        **{name: {**facts, "size": len(data or b"")} for name, facts, data in sizes},
    }
