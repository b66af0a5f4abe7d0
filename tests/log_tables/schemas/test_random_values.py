"""Random values of Avro and Protobuf are decoded as fastavro and Protobuf's own runtime decode them."""

import io
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf.json_format import SerializeToJsonError
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, Phase, given, settings

from log_tables.columns.declaration import Declaration
from log_tables.columns.proposed import proposed
from log_tables.columns.record_columns import RecordColumns
from log_tables.limits import SAME_SCHEMA_MIN
from log_tables.schemas import avro, protobuf
from log_tables.schemas.decoded import Encoding, Format
from log_tables.schemas.framing import prefixed
from log_tables.schemas.proto_compiler import message_of
from log_tables.schemas.schema import KnownSchemas, Schema, Undecodable
from tests.kit.avro_values import schema_of
from tests.kit.proto_messages import expected, messages, same
from tests.kit.proto_values import EDITION, FLIGHT, MANY, OLD
from tests.kit.proto_values import schema_of as proto_schema
from tests.kit.random_avro import Draw, RandomAvro, shown
from tests.log_tables.columns.test_record_columns import batch

TOGETHER = 100
COUNTS = [2_000, pytest.param(500_000, marks=pytest.mark.torture)]


@pytest.mark.parametrize("count", COUNTS)
def test_values_of_avro_are_what_fastavro_reads(count: int, seed: int) -> None:
    draw = Draw(seed)
    for number in range(count // TOGETHER):
        random = RandomAvro(draw)
        parsed, read = fastavro.parse_schema(random.type), avro.to_json(schema_of(random.type))
        values = []
        for _ in range(TOGETHER):
            sink = io.BytesIO()
            fastavro.schemaless_writer(sink, parsed, random.value())
            value = sink.getvalue()
            values.append(value)
            wanted = shown(random.type, fastavro.schemaless_reader(io.BytesIO(value), parsed, None))
            assert json.loads(read(value, 0)) == json.loads(json.dumps(wanted)), (number, random.type, value)
        check_columns(schema_of(random.type), values)


def check_columns(schema: Schema, values: Sequence[bytes]) -> None:
    """Columns that are made of many values at once are those that are made of each alone."""
    encoding = Encoding(Format.AVRO)
    columns = proposed(schema, Declaration((), encoding))
    made = RecordColumns(columns, KnownSchemas({1: schema}))
    whole = batch([prefixed(1, value) for value in values])
    few = SAME_SCHEMA_MIN - 1
    parts = [made.of(whole.slice(start, few)) for start in range(0, len(values), few)]
    assert repr(made.of(whole).to_pylist()) == repr(pa.concat_batches(parts).to_pylist())


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("text", [FLIGHT, MANY, OLD, EDITION], ids=["flight", "many", "old", "edition"])
def test_messages_of_protobuf_are_what_its_runtime_reads(text: str, count: int, seed: int) -> None:
    """They are fields of random messages in any order, as often as may be, some with a byte that differs."""
    schema, draw = proto_schema(text), Draw(seed)
    fields = fields_of(schema)
    read, kind = protobuf.to_json(schema, (0,)), GetMessageClass(message_of(schema, (0,)))
    for _ in range(count // 4):
        value = bytearray(b"".join(draw.one(fields) for _ in range(draw.below(8))))
        if value and draw.chance(0.3):
            value[draw.below(len(value))] ^= 1 << draw.below(8)
        try:
            message = kind.FromString(bytes(value))
        except DecodeError:
            with pytest.raises(Undecodable):
                read(bytes(value), 0)
            continue
        try:
            found = json.loads(read(bytes(value), 0))
        except Undecodable as error:
            if not str(error).endswith("text that is not UTF-8"):  # of which the runtime makes other text
                with pytest.raises(SerializeToJsonError):
                    expected(message)
            continue
        with suppress(SerializeToJsonError):  # a duration that is too long is a text here
            wanted = expected(message)
            assert same(found, wanted), (value.hex(), found, wanted)


def fields_of(schema: Schema) -> list[bytes]:
    """The fields of random messages, each as a message of this one alone."""
    found: set[bytes] = set()

    @given(messages(schema))
    @settings(max_examples=100, suppress_health_check=[*HealthCheck], phases=[Phase.generate], database=None)
    def gather(message: Any) -> None:
        for field, value in message.ListFields():
            alone = type(message)()
            if field.message_type is None and not field.is_repeated:
                setattr(alone, field.name, value)
            else:
                getattr(alone, field.name).MergeFrom(value)
            found.add(alone.SerializePartialToString())

    gather()
    return sorted(found)
