"""The decoder of a schema, whatever its language: from a value to the JSON that stands for it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from log_tables.schemas import avro, protobuf
from log_tables.schemas.proto_compiler import UnkeptReason
from log_tables.schemas.schema import InvalidSchema, Schema, SchemaKind


@dataclass(frozen=True, slots=True)
class Decoder:
    """Decodes values of one type of a schema.

    `json` makes JSON in UTF-8 of a value, of which the encoded part begins at a place. It raises Undecodable.
    `steps` leads where a pointer of a declaration does: the names of fields as this schema has them, of names
    that another version of it has.
    """

    json: Callable[[bytes, int], bytes]
    steps: Callable[[Sequence[str]], tuple[str, ...]]


def decoder_of(schema: Schema, message: tuple[int, ...] = ()) -> Decoder | str:
    """The decoder of values of `schema`, or why it has none: a schema that is none is not read twice.

    `message` are the indexes of a message in a file of Protobuf. Values with any others take no decoder's
    place.
    """
    try:
        return _kept(schema, message)
    except UnkeptReason as reason:
        return str(reason)


@lru_cache(maxsize=512)
def _kept(schema: Schema, message: tuple[int, ...]) -> Decoder | str:
    try:
        return _MADE[schema.kind](schema, message)
    except UnkeptReason:
        raise
    except InvalidSchema as invalid:
        return str(invalid)


def _avro(schema: Schema, _: tuple[int, ...]) -> Decoder:
    return Decoder(avro.to_json(schema), avro.steps(schema))


def _protobuf(schema: Schema, message: tuple[int, ...]) -> Decoder:
    return Decoder(protobuf.to_json(schema, message), protobuf.steps(schema, message))


def _json(_schema: Schema, _: tuple[int, ...]) -> Decoder:
    return Decoder(lambda value, start: value[start:], tuple)


_MADE: dict[SchemaKind, Callable[[Schema, tuple[int, ...]], Decoder]] = {
    SchemaKind.AVRO: _avro,
    SchemaKind.PROTOBUF: _protobuf,
    SchemaKind.JSON: _json,
}
