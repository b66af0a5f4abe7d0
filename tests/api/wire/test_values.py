"""Bodies of bare values: the records that they stand for, what they hold in memory, and what is refused."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.errors import MalformedBody, RequestTooLarge
from api.media import ValueFormat
from api.wire.values import JsonPointer, KeySource, decode_values, is_much
from ingest.buffer import Buffer
from log_tables.errors import BufferFull, InvalidArgument, InvalidRecord
from log_tables.layout import KEY, VALUE
from log_tables.limits import REQUEST_RECORDS_MAX, ROWS_MAX
from log_tables.rows import as_batch, bytes_of, timestamps_of

NDJSON, JSON, CSV, BYTES = ValueFormat.NDJSON, ValueFormat.JSON, ValueFormat.CSV, ValueFormat.BYTES
NO_KEY = KeySource()
MIB = 1 << 20
Pair = tuple[bytes | None, bytes | None]

VALUES = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=5,
)


def pairs(
    body: bytes, form: ValueFormat, keys: KeySource = NO_KEY, buffer: Buffer | None = None
) -> list[Pair]:
    """(key, value) of each record of `body`."""
    with (buffer or Buffer(64 * MIB)).room("t") as room:
        room.grow(len(body))
        sent = decode_values(body, form, keys, (), 7, room)
        batch = as_batch(sent.records)
        assert set(timestamps_of(sent.records)) == {7}
        assert room.size_bytes >= bytes_of(sent.records)
        return list(zip(batch.column(KEY).to_pylist(), batch.column(VALUE).to_pylist(), strict=True))


def values(body: bytes, form: ValueFormat) -> list[bytes | None]:
    return [value for _, value in pairs(body, form)]


@pytest.mark.parametrize(
    ("form", "body", "found"),
    [
        (NDJSON, b'{"a": 1.50}\n', [b'{"a": 1.50}']),
        (NDJSON, b'{"a":1}\n{"b":2}', [b'{"a":1}', b'{"b":2}']),
        (NDJSON, b'\n \r\n 1 \r\n\t"\xc3\xa9"\n\n', [b"1", b'"\xc3\xa9"']),
        (NDJSON, b"null\n[1]\ntrue", [None, b"[1]", b"true"]),
        (NDJSON, b"\xef\xbb\xbf1\n2", [b"1", b"2"]),
        (JSON, b'[{"a": 1}, 2 ,"x",null,[3]]', [b'{"a": 1}', b"2", b'"x"', None, b"[3]"]),
        (JSON, b" [ 1\n, 2 ]\n", [b"1", b"2"]),
        (JSON, b'\xef\xbb\xbf{"a":\n 1}\n', [b'{"a":\n 1}']),
        (JSON, b'{"a":1}\n{"b":2}\n', [b'{"a":1}', b'{"b":2}']),
        (JSON, b"[1]\n[2]", [b"[1]", b"[2]"]),
        (JSON, b"null", [None]),
        (CSV, b"a,b\n1,\n", [b'{"a":"1","b":null}']),
        (CSV, b"\xef\xbb\xbfa\n1\n", [b'{"a":"1"}']),
        (BYTES, b"\x00\xff\n", [b"\x00\xff\n"]),
        (BYTES, b"null", [b"null"]),
    ],
)
def test_each_value_is_the_text_that_was_sent(
    form: ValueFormat, body: bytes, found: list[bytes | None]
) -> None:
    assert values(body, form) == found


@given(st.lists(VALUES, min_size=1, max_size=8), st.sampled_from([NDJSON, JSON]))
def test_any_values_come_out_as_they_were_written(sent: list[Any], form: ValueFormat) -> None:
    texts = [json.dumps(each).encode() for each in sent]
    body = b"\n".join(texts) if form is NDJSON else b"[" + b",".join(texts) + b"]"
    assert values(body, form) == texts


@pytest.mark.parametrize("count", [3, ROWS_MAX + 1, 30_000])
@pytest.mark.parametrize("form", [NDJSON, JSON, CSV])
def test_many_values_keep_their_keys(form: ValueFormat, count: int) -> None:
    texts = [b'{"k":"%d"}' % number for number in range(count)]
    body = {
        NDJSON: b"\n".join(texts),
        JSON: b"[" + b",".join(texts) + b"]",
        CSV: b"k\n" + b"\n".join(b"%d" % number for number in range(count)),
    }[form]
    keys = KeySource(JsonPointer("/k"))
    assert pairs(body, form, keys) == [(b'"%d"' % number, text) for number, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("form", "body", "key"),
    [
        (NDJSON, b'{"k":"N1"}', b'"N1"'),
        (NDJSON, b'{"k": {"a":1} }', b'{"a":1}'),
        (NDJSON, b'{"k":null}', None),
        (NDJSON, b"1", None),
        (JSON, b'{"k":2}', b"2"),
        (CSV, b"k\nN1", b'"N1"'),
    ],
)
def test_a_key_is_json_as_the_value_is(form: ValueFormat, body: bytes, key: bytes | None) -> None:
    assert [found for found, _ in pairs(body, form, KeySource(JsonPointer("/k")))] == [key]


@pytest.mark.parametrize(
    ("form", "body", "key"),
    [
        (NDJSON, b"1\n2", b'"N\\"1"'),
        (JSON, b"1", b'"N\\"1"'),
        (CSV, b"a\n1", b'"N\\"1"'),
        (BYTES, b"1", b'N"1'),
    ],
)
def test_a_key_from_elsewhere_is_written_as_the_values_are(
    form: ValueFormat, body: bytes, key: bytes
) -> None:
    assert {found for found, _ in pairs(body, form, KeySource(text='N"1'))} == {key}


@pytest.mark.parametrize(
    ("form", "body", "says"),
    [
        (NDJSON, b'{"a":1}\n\n{"a":\n1}', "line 3 is not JSON"),
        (NDJSON, b"1 2", "line 1 is not JSON"),
        (NDJSON, b"1\nNaN", "line 2 is not JSON"),
        (NDJSON, b"1\n" + b"[" * 600 + b"]" * 600, "line 2: a value has more than 500"),
        (NDJSON, b"1\n" + b"[" * 100_000, "line 2: a value has more than 500"),
        (NDJSON, b'"\xff"', "not UTF-8 at byte 1"),
        (JSON, b"[1, 2", "the body is not JSON"),
        (JSON, b"{", "the body is not JSON"),
        (JSON, b'{"a":1}\n{"a"', "line 2 is not JSON"),
        (JSON, b"[1," + b"[" * 600 + b"]" * 600 + b"]", "value 2: a value has more than 500"),
        (JSON, b"[" * 100_000, "a value has more than 500"),
        (JSON, b'{"a":' * 100_000, "a value has more than 500"),
        (CSV, b'a\n"\xff"', "not UTF-8"),
        (CSV, b"a\n1,2", "line 2 has 2 fields"),
    ],
)
def test_what_is_not_what_it_is_called_is_refused_with_its_place(
    form: ValueFormat, body: bytes, says: str
) -> None:
    with pytest.raises(MalformedBody) as refused:
        pairs(body, form)
    assert says in refused.value.message


@pytest.mark.parametrize(
    ("form", "body"),
    [
        (NDJSON, b""),
        (NDJSON, b"\n \n"),
        (JSON, b""),
        (JSON, b"[]"),
        (JSON, b" \n"),
        (CSV, b"a,b\n"),
        (BYTES, b""),
    ],
)
def test_a_body_without_values_is_refused(form: ValueFormat, body: bytes) -> None:
    with pytest.raises(InvalidRecord, match="no records"):
        pairs(body, form)


def test_bytes_have_no_field_that_could_be_a_key() -> None:
    with pytest.raises(InvalidArgument, match="key_header"):
        pairs(b"1", BYTES, KeySource(JsonPointer("/k")))


@pytest.mark.parametrize(
    ("form", "body"),
    [
        (NDJSON, b"1\n" * (REQUEST_RECORDS_MAX + 1)),
        (JSON, b"[" + b"1," * REQUEST_RECORDS_MAX + b"1]"),
        (CSV, b"a\n" + b"1\n" * (REQUEST_RECORDS_MAX + 1)),
        (CSV, b"a\n" + b"\n" * (REQUEST_RECORDS_MAX + 1)),
        (CSV, b"a\n" + b"1\n\n" * (REQUEST_RECORDS_MAX // 2 + 1)),
    ],
)
def test_too_many_values_are_refused(form: ValueFormat, body: bytes) -> None:
    with pytest.raises(RequestTooLarge, match="200000 are allowed"):
        pairs(body, form)


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_so_many_values_are_taken(end: bytes) -> None:
    body = b"\n".join([b"1"] * REQUEST_RECORDS_MAX) + end
    assert len(values(body, NDJSON)) == REQUEST_RECORDS_MAX


@pytest.mark.parametrize(
    ("form", "body", "much"),
    [
        (CSV, b"a,b\n" + b"1,2\n" * 100, False),
        (CSV, b",".join(b"%d" % name + b"a" * 10_000 for name in range(7)) + b"\n,,,,,," * 999, True),
        (CSV, b'"' + b"a\n" * 500 + b'"' + b"\n1" * 999, True),
        (NDJSON, b"1\n" * 1_000, False),
        (NDJSON, b"1\n" * 1_001, True),
        (BYTES, b"1\n" * 1_001, False),
    ],
)
def test_what_takes_long_is_known_before(form: ValueFormat, body: bytes, much: bool) -> None:
    assert is_much(body, form) is much


WIDE = b",".join(b"a" * 100 + b"%d" % number for number in range(500))
"""A header line that each row repeats, though it has 500 bytes alone."""


@pytest.mark.parametrize(
    ("form", "body"),
    [
        (NDJSON, b"1\n" * 100_000),
        (JSON, b"[" + b"1," * 100_000 + b"1]"),
        (CSV, b"%b\n" % WIDE + b"%b\n" % (b"," * 499) * 200),
    ],
)
@pytest.mark.parametrize("others", [0, MIB])
def test_few_bytes_that_become_many_have_to_have_room(form: ValueFormat, body: bytes, others: int) -> None:
    buffer = Buffer(4 * MIB)
    buffer.reserve("another", others)
    with pytest.raises((RequestTooLarge, BufferFull)):
        pairs(body, form, buffer=buffer)
    assert buffer.used == others
    assert len(pairs(body, form)) >= 200, "there is room in a larger one"


def test_a_long_key_of_many_records_has_to_have_room() -> None:
    body, key, buffer = b"1\n" * 5_000, KeySource(text="k" * 10_000), Buffer(16 * MIB)
    assert len(pairs(body, NDJSON, buffer=buffer)) == 5_000
    with pytest.raises(RequestTooLarge):
        pairs(body, NDJSON, key, buffer)
    assert buffer.used == 0
    assert pairs(b"1\n1", NDJSON, key, buffer)[1][0] == b'"%b"' % (b"k" * 10_000)


@given(st.binary(max_size=60), st.sampled_from([NDJSON, JSON, CSV]))
def test_any_bytes_are_json_values_or_refused(body: bytes, form: ValueFormat) -> None:
    found: list[bytes | None] = []
    with suppress(MalformedBody, InvalidRecord):
        found = values(body, form)
    assert all(json.loads(each) is not None for each in found if each is not None)
