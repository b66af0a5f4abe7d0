"""v3 produce: records with typed keys and values, and what is answered for each. Pure."""

from binascii import a2b_base64
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import msgspec

from api.errors import MalformedBody
from api.wire.json_bounds import check_depth, check_utf8, documents, too_deep
from api.wire.long_lists import LongListsDecoder
from api.wire.v2 import Milliseconds, unless_all_none
from log_tables.cluster.route import SentRecords
from log_tables.columns.time_text import time_us
from log_tables.errors import InvalidRecord
from log_tables.limits import TIMESTAMP_BOUNDS
from log_tables.record import time_or_append_us
from log_tables.rows import Rows, rows_or_batch


class Typed(msgspec.Struct, forbid_unknown_fields=True):
    """A key or value: `data` is base64 for BINARY, a string for STRING, anything for JSON."""

    type: Literal["BINARY", "JSON", "STRING"]
    data: msgspec.Raw = msgspec.Raw(b"null")


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


@dataclass(frozen=True, slots=True)
class Row:
    """A record of v3 in bytes; `types` are those of its key and value, for the answer."""

    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int | None
    types: tuple[str | None, str | None]


class _Batch(msgspec.Struct, forbid_unknown_fields=True):
    entries: list[msgspec.Raw]


class _Id(msgspec.Struct):
    id: str


_record = msgspec.json.Decoder(RecordIn)
_entry = msgspec.json.Decoder(EntryIn)
_id = msgspec.json.Decoder(_Id)
_batch = LongListsDecoder(_Batch)


def decode_stream(body: bytes) -> list[Row]:
    """The rows of concatenated JSON records.

    Raises MalformedBody, InvalidRecord, which name the record.
    """
    check_utf8(body)
    rows = []
    for index, text in enumerate(documents(body)):
        try:
            rows.append(_row(_record.decode(text)))
        except (msgspec.ValidationError, InvalidRecord) as error:
            raise InvalidRecord(f"record {index}: {error}") from None
        except RecursionError:
            raise too_deep() from None
        except msgspec.DecodeError as error:
            raise MalformedBody(
                f"record {index} is not JSON: {error}; send JSON objects, one after the other"
            ) from None
    if not rows:
        raise InvalidRecord("there are no records; send at least one")
    return rows


def decode_batch(body: bytes) -> list[tuple[str, Row | InvalidRecord]]:
    """(id, row or what is wrong with it) of each entry.

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
    return [(name, _entry_row(raw)) for name, raw in zip(ids, raws, strict=True)]


def _entry_row(raw: msgspec.Raw) -> Row | InvalidRecord:
    try:
        return _row(_entry.decode(raw))
    except RecursionError:
        raise too_deep() from None
    except msgspec.MsgspecError as error:
        return InvalidRecord(str(error))
    except InvalidRecord as error:
        return error


def _row(record: RecordIn) -> Row:
    key, value = record.key, record.value
    return Row(
        record.partition_id,
        _bytes(key, "key"),
        _bytes(value, "value"),
        tuple((header.name, header.value) for header in record.headers),
        _milliseconds(record.timestamp),
        (None if key is None else key.type, None if value is None else value.type),
    )


def _bytes(typed: Typed | None, name: str) -> bytes | None:
    if typed is None:
        return None
    raw = bytes(typed.data)
    check_depth(raw)
    if raw == b"null":
        return None
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
        (name, kind, data)
        for name, kind, data in zip(("key", "value"), row.types, (row.key, row.value), strict=True)
        if kind is not None
    )
    return {
        "error_code": 200,
        "cluster_id": cluster_id,
        "topic_name": topic,
        "partition_id": position[0],
        "offset": position[1],
        "timestamp": stamp.replace("+00:00", "Z"),
        **{name: {"type": kind, "size": len(data or b"")} for name, kind, data in sizes},
    }
