"""The encoder of a schema, whatever its language: from the JSON that stands for a value to its bytes."""

from collections.abc import Callable
from functools import lru_cache

import msgspec

from log_tables.schemas import avro_writer, protobuf_writer
from log_tables.schemas.framing import prefixed
from log_tables.schemas.schema import InvalidSchema, Schema, SchemaKind, Unencodable

_FIRST = b"\0"
"""The indexes of the first message of a file of Protobuf."""

Encode = Callable[[object], bytes]
"""From decoded JSON to bytes. Raises Unencodable."""


@lru_cache(maxsize=512)
def encoder_of(schema: Schema, of_avro: bool = False, message: tuple[int, ...] = (0,)) -> Encode | str:
    """The encoder of values of `schema`, without an id, or why it has none.

    JSON for Avro is that which `avro` makes, or `of_avro`, Avro's own. `message` are the indexes of a message
    in a file of Protobuf, which are no part of the value.
    """
    try:
        match schema.kind:
            case SchemaKind.AVRO:
                return avro_writer.from_json(schema, of_avro)
            case SchemaKind.PROTOBUF:
                return protobuf_writer.from_json(schema, message)
        return msgspec.json.encode
    except InvalidSchema as invalid:
        return str(invalid)


def encoded(text: bytes, schema_id: int, schema: Schema, of_avro: bool = False) -> bytes:
    """The value that JSON in UTF-8 stands for, behind the prefix of its schema. Raises Unencodable.

    The JSON is as `encoder_of` has it.
    """
    encode = encoder_of(schema, of_avro)
    if isinstance(encode, str):
        raise Unencodable(f"has schema {schema_id}, which cannot be used: {encode}")
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Unencodable("is not JSON") from None
    if schema.kind is SchemaKind.JSON:
        return prefixed(schema_id, text)
    indexes = _FIRST if schema.kind is SchemaKind.PROTOBUF else b""
    return prefixed(schema_id, indexes + encode(value))
