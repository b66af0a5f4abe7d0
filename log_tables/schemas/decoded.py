"""Values of any format as JSON: what columns, views and clients read them by.

A value names its schema, or its topic has one for all. One that cannot be decoded has a reason instead, which
names the schema and the field, and no part of the value.
"""

from dataclasses import dataclass
from enum import StrEnum

from log_tables.schemas.decoder import Decoder, decoder_of
from log_tables.schemas.framing import VALUE_HEADER, Framed, Headers, framed, message_indexes
from log_tables.schemas.schema import Schema, SchemaId, SchemaKind, Schemas, Undecodable


class Format(StrEnum):
    """How the values of a topic are encoded."""

    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    JSON_SCHEMA = "json-schema"
    AUTO = "auto"

    @property
    def kind(self) -> SchemaKind | None:
        """The language of its schemas; None: values have none, or of any."""
        return _KINDS.get(self)


_KINDS = {
    Format.AVRO: SchemaKind.AVRO,
    Format.PROTOBUF: SchemaKind.PROTOBUF,
    Format.JSON_SCHEMA: SchemaKind.JSON,
}


@dataclass(frozen=True, slots=True)
class Encoding:
    """How values are encoded: their format, and the one schema of values that name none."""

    format: Format = Format.JSON
    schema: Schema | None = None

    @property
    def is_json(self) -> bool:
        """Whether values are their own JSON."""
        return self.format is Format.JSON


JSON = Encoding()


@dataclass(frozen=True, slots=True)
class Decoded:
    """The JSON of a value, or why it has none.

    `decoder` is None for a value that is its own JSON, and `missing` the id of a schema that is not known.
    """

    json: bytes | None
    decoder: Decoder | None = None
    error: str | None = None
    missing: SchemaId | None = None


UNKNOWN_SCHEMA = "^schema [0-9a-f-]+ is not known$"
"""The errors that `unknown` makes, as a regular expression."""


def unknown(schema_id: SchemaId) -> str:
    return f"schema {schema_id} is not known"


def decoded(
    value: bytes, headers: Headers, encoding: Encoding, schemas: Schemas, header: str = VALUE_HEADER
) -> Decoded:
    """`value`, which has `headers`, as JSON. `header` is the name of that which may name its schema."""
    if encoding.schema is not None:
        return _decoded(value, Framed(0), encoding.schema, "", encoding)
    frame = framed(value, headers, header)
    if frame is None:
        if encoding.format in (Format.JSON, Format.AUTO):
            return Decoded(value)
        return Decoded(None, error="the value names no schema")
    schema = schemas.known(frame.schema_id)
    if schema is None:
        if encoding.format is Format.JSON_SCHEMA:  # JSON is read without its schema
            return Decoded(value[frame.start :])
        return Decoded(None, error=unknown(frame.schema_id), missing=frame.schema_id)
    return _decoded(value, frame, schema, f"schema {frame.schema_id}: ", encoding)


def _decoded(value: bytes, frame: Framed, schema: Schema, where: str, encoding: Encoding) -> Decoded:
    wanted = encoding.format.kind
    if wanted is not None and schema.kind is not wanted:
        return Decoded(None, error=f"{where}it is {schema.kind}, not {wanted}")
    try:
        message, start = (
            _message(value, frame, encoding) if schema.kind is SchemaKind.PROTOBUF else ((), frame.start)
        )
        decoder = decoder_of(schema, message)
        if isinstance(decoder, str):
            return Decoded(None, error=where + decoder)
        return Decoded(decoder.json(value, start), decoder)
    except Undecodable as error:
        return Decoded(None, error=f"{where}{error}")


def _message(value: bytes, frame: Framed, encoding: Encoding) -> tuple[tuple[int, ...], int]:
    """(The indexes of the message that `value` is, where it begins)."""
    if encoding.schema is not None:
        return (0,), 0
    if frame.indexes is None:
        return message_indexes(value, frame.start)
    return message_indexes(frame.indexes or b"\0", 0)[0], frame.start
