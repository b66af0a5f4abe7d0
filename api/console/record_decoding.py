"""Keys and values behind a schema, as a page shows them: as JSON, and by which schema. Blocking."""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from api.console.record_view import Field
from log_tables.clock import Clock
from log_tables.cluster.topic import Topic
from log_tables.layout import HEADERS, KEY, VALUE
from log_tables.record import header_pairs
from log_tables.schemas.decoding import Decoding, key_decoding
from log_tables.schemas.framing import KEY_HEADER, VALUE_HEADER, Headers, framed
from log_tables.schemas.schema import SchemaKind

SECONDS = 2.0
"""How long the records of one page are decoded: JSON of many megabytes takes long."""

_LATE = f"not decoded, as the {SECONDS:g} seconds of this page are over"
_LANGUAGES = {SchemaKind.AVRO: "Avro", SchemaKind.PROTOBUF: "Protobuf", SchemaKind.JSON: "JSON Schema"}


class Shown(NamedTuple):
    """The JSON of a key or value, of which long ones are cut; None if it has none.

    `note` says by which schema it was decoded, or why not; it is empty where it names none and needs none.
    """

    json: Field | None = None
    note: str = ""


AS_IT_IS = Shown()


class RecordDecoding:
    """Decodes the records of one page, whose topic has values of a format other than JSON."""

    def __init__(self, topic: Topic, clock: Clock) -> None:
        schemas = topic.schemas
        self._schemas, self._clock = schemas, clock
        self._keys, self._values = key_decoding(schemas), Decoding(topic.config.encoding, schemas)
        self._end = clock.monotonic() + SECONDS

    def of(self, batch: pa.RecordBatch, cut_bytes: int) -> Iterator[tuple[Shown, Shown]]:
        """(The key, the value) of each record."""
        for row, headers in enumerate(header_pairs(batch.column(HEADERS))):
            key, value = (batch.column(name)[row].as_py() for name in (KEY, VALUE))
            yield (
                self._shown(self._keys, key, headers, KEY_HEADER, cut_bytes),
                self._shown(self._values, value, headers, VALUE_HEADER, cut_bytes),
            )

    def _shown(
        self, decoding: Decoding, content: bytes | None, headers: Headers, header: str, cut_bytes: int
    ) -> Shown:
        if content is None:
            return AS_IT_IS
        if self._clock.monotonic() >= self._end:
            return Shown(None, _LATE)
        found = decoding.of(content, headers)
        if found.json is None:
            if decoding is self._keys and found.missing is not None:
                return AS_IT_IS  # a number may begin as a key with a schema does
            return Shown(None, f"not decoded: {decoding.error_of(found)}")
        note = self._schema_of(decoding, content, headers, header)
        return Shown(Field(found.json[:cut_bytes], len(found.json)), note) if note else AS_IT_IS

    def _schema_of(self, decoding: Decoding, content: bytes, headers: Headers, header: str) -> str:
        """The schema by which `content` was decoded; "" if it names none and needs none."""
        one = decoding.encoding.schema
        if one is not None:
            return f"{_LANGUAGES[one.kind]}, value.columns.schema"
        frame = framed(content, headers, header)
        if frame is None:
            return ""
        schema = self._schemas.known(frame.schema_id)
        kind = SchemaKind.JSON if schema is None else schema.kind
        return f"{_LANGUAGES[kind]}, schema {frame.schema_id}"


def decoding_of(topic: Topic, clock: Clock) -> RecordDecoding | None:
    """The decoding of a page of records of `topic`; None where values are JSON."""
    return None if topic.config.encoding.is_json else RecordDecoding(topic, clock)


def hint_of(value: Field) -> str:
    """A note on a value of a topic of JSON that begins as those behind a schema do; "" for others."""
    frame = framed(value.data or b"")
    if frame is None or not frame.schema_id:
        return ""
    return f"looks like schema id {frame.schema_id}; set value.columns.format"
