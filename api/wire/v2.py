"""v2 produce: the body of each embedded format to rows, and the answer to JSON. Pure, and hot."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from api.errors import KeySchemaMissing, MalformedBody, ValueSchemaMissing
from api.media import Format
from api.wire.json_bounds import DEEP_MIN_BYTES, check_depth, check_utf8, too_deep
from api.wire.long_lists import LongListsDecoder, free
from api.wire.named_schemas import FoundSchema, NamedSchema, NamedSchemas, misfit
from log_tables.cluster.route import SentRecords
from log_tables.errors import InvalidRecord
from log_tables.limits import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US
from log_tables.record import time_or_append_us
from log_tables.rows import Headers, Rows, rows_or_batch
from log_tables.schemas.schema import Unencodable

Milliseconds = Annotated[int, msgspec.Meta(ge=TIMESTAMP_MIN_US // 1000, le=TIMESTAMP_MAX_US // 1000)]
"""Since 1970 UTC, within the years that a record may have."""


class HeaderIn(msgspec.Struct, forbid_unknown_fields=True):
    """A record header; its value is base64."""

    key: str
    value: bytes | None = None


class _Common(msgspec.Struct, forbid_unknown_fields=True):
    """A misspelt `value` is refused: if it were ignored, it would write a tombstone."""

    partition: int | None = None
    headers: list[HeaderIn] | None = None
    timestamp: Milliseconds | None = None


class JsonRecord(_Common):
    """Key and value are any JSON; what is stored is their text, as it was sent."""

    value: msgspec.Raw = msgspec.Raw(b"")
    key: msgspec.Raw = msgspec.Raw(b"")


class BinaryRecord(_Common):
    """Key and value are base64 strings."""

    value: bytes | None = None
    key: bytes | None = None


class TextRecord(_Common):
    """Key and value are strings, stored as UTF-8."""

    value: str | None = None
    key: str | None = None


class _Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Names of schemas besides the records, for formats with schemas; ignored in the others, as in the REST
    Proxy.
    """

    key_schema: str | None = None
    key_schema_id: int | None = None
    value_schema: str | None = None
    value_schema_id: int | None = None


class _JsonBody(_Body, kw_only=True):
    records: list[JsonRecord]


class _BinaryBody(_Body, kw_only=True):
    records: list[BinaryRecord]


class _TextBody(_Body, kw_only=True):
    records: list[TextRecord]


_DECODERS: dict[Format, LongListsDecoder[Any]] = {
    Format.JSON: LongListsDecoder(_JsonBody),
    Format.BINARY: LongListsDecoder(_BinaryBody),
    Format.TEXT: LongListsDecoder(_TextBody),
    **dict.fromkeys((Format.AVRO, Format.PROTOBUF, Format.JSONSCHEMA), LongListsDecoder(_JsonBody)),
}
_NULLS = (b"", b"null")


def decode_records(body: bytes, form: Format, now_us: int) -> SentRecords:
    """The records of a produce body; those without a timestamp get `now_us`.

    Raises MalformedBody, InvalidRecord, which name what is wrong and where.
    """
    return sent_records(decode_body(body, form).records, form, now_us)


def decode_body(body: bytes, form: Format) -> Any:
    """A produce body: its `records`, and the names of their schemas. Raises as `decode_records`."""
    check_utf8(body)
    try:
        found = _DECODERS[form].decode(body)
    except msgspec.ValidationError as error:
        raise InvalidRecord(
            f"a record does not fit {form.value}: {error}; fix it, or name its format in Content-Type"
        ) from None
    except RecursionError:
        raise too_deep() from None
    except msgspec.DecodeError as error:
        raise MalformedBody(f"the body is not JSON: {error}; send valid JSON") from None
    if not found.records:
        raise InvalidRecord("there are no records; send at least one")
    return found


def schemas_named(body: Any, form: Format, topic: str) -> tuple[NamedSchema | None, NamedSchema | None]:
    """How a produce body names the schema of its keys, and that of its values. Raises InvalidRecord."""
    return (
        _named(form, f"{topic}-key", "key", body.key_schema_id, body.key_schema),
        _named(form, f"{topic}-value", "value", body.value_schema_id, body.value_schema),
    )


def _named(
    form: Format, subject: str, of: str, schema_id: int | None, text: str | None
) -> NamedSchema | None:
    if schema_id is not None and text is not None:
        raise InvalidRecord(f"{of}_schema and {of}_schema_id both name the schema; send one of them")
    if schema_id is None and text is None:
        return None
    return NamedSchema(subject, form.kind, schema_id, text)


@dataclass(frozen=True, slots=True)
class SchemasOf:
    """The schemas of the keys and of the values of a request, None where none is named, among `named`."""

    keys: FoundSchema | None
    values: FoundSchema | None
    named: NamedSchemas

    @property
    def ids(self) -> "SchemaIds":
        """The ids of both, for the answer."""
        keys, values = self.keys, self.values
        return None if keys is None else keys.schema_id, None if values is None else values.schema_id

    def encoded_keys(self, texts: list[bytes | None]) -> list[bytes | None]:
        """The keys that JSON texts stand for. Raises KeySchemaMissing, and what `_encoded` raises."""
        if self.keys is None and unless_all_none(texts) is not None:
            raise KeySchemaMissing(
                "the records have keys, and no schema of them; send key_schema_id or key_schema"
            )
        return self._encoded(texts, self.keys, "key")

    def encoded_values(self, texts: list[bytes | None]) -> list[bytes | None]:
        """The values that JSON texts stand for. Raises ValueSchemaMissing, and what `_encoded` raises."""
        if self.values is None and unless_all_none(texts) is not None:
            raise ValueSchemaMissing(
                "the records have values, and no schema of them; send value_schema_id or value_schema"
            )
        return self._encoded(texts, self.values, "value")

    def _encoded(
        self, texts: list[bytes | None], schema: FoundSchema | None, what: str
    ) -> list[bytes | None]:
        """Raises InvalidValue with `index`, `path` and `reason`; RequestTooLarge, BufferFull."""
        if schema is None:
            return texts
        made = list[bytes | None]()
        for index, text in enumerate(texts):
            try:
                made.append(None if text is None else self.named.encoded(text, schema))
            except Unencodable as error:
                raise misfit(error, schema, f"record {index}: the {what}", index=index) from None
        return made


def sent_records(
    records: list[Any], form: Format, now_us: int, schemas: SchemasOf | None = None
) -> SentRecords:
    """Records as one of the formats decodes them; the list is empty then. Formats with schemas need theirs.

    Raises InvalidRecord, MalformedBody, and what `SchemasOf` raises.
    """
    values = [record.value for record in records]
    keys = [record.key for record in records]
    times = _microseconds([record.timestamp for record in records], now_us)
    headers = _headers([record.headers for record in records])
    partitions = unless_all_none([record.partition for record in records])
    free(records)
    if form is Format.JSON or form.kind is not None:
        values = _json_texts(values)
        keys = _json_texts(keys)
    elif form is Format.TEXT:
        values, keys = _utf8(values), _utf8(keys)
    if schemas is not None:
        keys, values = schemas.encoded_keys(keys), schemas.encoded_values(values)
    rows = Rows(values, times, unless_all_none(keys), headers)
    return SentRecords(rows_or_batch(rows), partitions)


def _json_texts(raws: list[msgspec.Raw]) -> list[bytes | None]:
    """Copies: a view would keep the whole body. Raises MalformedBody for a text that is too deep."""
    for raw in raws:
        if len(raw) >= DEEP_MIN_BYTES:
            check_depth(raw)
    return [None if text in _NULLS else text for text in map(bytes, raws)]


def _utf8(texts: list[str | None]) -> list[bytes | None]:
    return [None if text is None else text.encode() for text in texts]


def unless_all_none(items: list[Any]) -> list[Any] | None:
    """`items`, or None for nulls only."""
    return None if items.count(None) == len(items) else items


def _microseconds(milliseconds: list[int | None], now_us: int) -> list[int] | int:
    if unless_all_none(milliseconds) is None:
        return now_us
    return [time_or_append_us(stamp, now_us) for stamp in milliseconds]


def _headers(rows: list[list[HeaderIn] | None]) -> list[Headers] | None:
    if not any(rows):
        return None
    return [[(header.key, header.value) for header in row or ()] for row in rows]


RecordResult = tuple[int, int | None, int | None, str | None]
"""(partition, offset, error_code, error) of one record of the answer."""


def record_texts(first: RecordResult, count: int) -> list[str]:
    """The JSON of the `first` result of one partition, and of those after it: `count` in all."""
    partition, offset, code, error = first
    before = f'{{"partition":{partition},"offset":'
    after = f',"error_code":{_null(code)},"error":{_text(error)}}}'
    if offset is None:
        return [f"{before}null{after}"] * count
    return [f"{before}{number}{after}" for number in range(offset, offset + count)]


SchemaIds = tuple[int | None, int | None]
"""Of the schema of keys, and of the schema of values."""

NO_IDS: SchemaIds = (None, None)


def encode_offsets(texts: Sequence[str], ids: SchemaIds = NO_IDS) -> bytes:
    """The answer, of the texts of all records in request order."""
    named = f'"key_schema_id":{_null(ids[0])},"value_schema_id":{_null(ids[1])}'
    return f'{{"offsets":[{",".join(texts)}],{named}}}'.encode()


def _null(number: int | None) -> str:
    return "null" if number is None else str(number)


def _text(text: str | None) -> str:
    return "null" if text is None else msgspec.json.encode(text).decode()
