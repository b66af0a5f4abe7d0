"""CSV as JSON objects: any table that a writer of CSV makes, and what is refused."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.errors import MalformedBody
from api.wire.csv_rows import json_rows, names_of_json
from log_tables.columns.declaration import parse
from log_tables.limits import CSV_COLUMNS_MAX, CSV_ROW_COMMAS_MAX, CSV_ROW_MAX_BYTES

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["", "1", "true", "null", ",", '"', "\n", "\r\n", "a,b", " x "]
)


def rows_of(body: bytes, *of_json: str) -> list[bytes]:
    return list(json_rows(io.BytesIO(body), of_json))


@given(st.data(), st.integers(1, 4), st.sampled_from(["\n", "\r\n"]))
def test_a_table_comes_out_as_a_writer_of_csv_was_given_it(data: st.DataObject, width: int, end: str) -> None:
    names = data.draw(st.lists(TEXTS.filter(bool), min_size=width, max_size=width, unique=True))
    table = data.draw(st.lists(st.lists(TEXTS, min_size=width, max_size=width), max_size=5))
    out = io.StringIO()
    csv.writer(out, lineterminator=end, quoting=csv.QUOTE_ALL).writerows([names, *table])
    expected = [dict(zip(names, [text or None for text in row], strict=True)) for row in table]
    assert [json.loads(row) for row in rows_of(out.getvalue().encode())] == expected


def test_fields_are_text_and_an_empty_one_is_null() -> None:
    assert rows_of(b'a,b,c\r\n01,,"x ""y"""\r\n\r\n1,true, z') == [
        b'{"a":"01","b":null,"c":"x \\"y\\""}',
        b'{"a":"1","b":"true","c":" z"}',
    ]


@pytest.mark.parametrize(
    ("field", "made"),
    [
        ("12", b"12"),
        ("-1.50e3", b"-1.50e3"),
        ("true", b"true"),
        ('"[1, 2]"', b"[1, 2]"),
        ("", b"null"),
        ("01", b'"01"'),
        ("NaN", b'"NaN"'),
        ("1 2", b'"1 2"'),
        ("[" * 50_000, b'"' + b"[" * 50_000 + b'"'),
    ],
)
def test_a_field_that_is_said_to_be_json_stands_as_it_is_if_it_is(field: str, made: bytes) -> None:
    assert rows_of(f"n,s\n{field},{field}".encode(), "n")[0].startswith(b'{"n":' + made + b',"s":')


def test_declared_columns_say_which_fields_are_json() -> None:
    declared = parse(
        "n bigint, x double FROM '/y', s string, d date, t timestamp, b boolean, l array<bigint>, "
        "price decimal(9,2), code binary, "
        "deep bigint FROM '/o/n', m bigint FROM '/both', o string FROM '/both'"
    )
    assert names_of_json(declared) == {"n", "y", "b", "l", "price"}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"a,b\n1,2\n3\n", "line 3 has 1 fields, the header line names 2"),
        (b"a,b\n1,2,3\n", "line 2 has 3 fields"),
        (b"a,b\n1,2\n3\n4,5", "line 3"),
        (b'a\n"1', "line 2 is not CSV"),
        (b'a\n"1"2\n', "line 2 is not CSV"),
        (b'a\n"\n\n"x', "line 4 is not CSV"),
        (b"a\rb\r", "line 1 is not CSV: it has a carriage return without a line feed"),
        (b"a,a\n1,2", "line 1 names the column 'a' twice"),
        (b"a,\n1,2", "line 1: column 2 has no name"),
        (b"a\nb\xff", "line 2 is not UTF-8 at byte 1"),
        (b",".join(b"%d" % each for each in range(CSV_COLUMNS_MAX + 1)) + b"\n", "1025 columns"),
        (b"a\n" + b"," * (CSV_ROW_COMMAS_MAX + 1), "line 2: the row has more than"),
        (b'a\n"' + b"x\n" * 100_000, "line 100001 is not CSV: unexpected end of data"),
        (b'a\n"",' + b'"\n",' * CSV_ROW_COMMAS_MAX + b'""', "the row has more than"),
        (b"a\n" + b"x" * (CSV_ROW_MAX_BYTES + 1), "line 2: the row has more than"),
    ],
)
def test_what_is_no_table_is_refused_with_its_line(body: bytes, says: str) -> None:
    with pytest.raises(MalformedBody) as refused:
        rows_of(body)
    assert says in refused.value.message


def test_a_row_may_be_as_wide_as_columns_are_allowed() -> None:
    names = b",".join(b"%d" % each for each in range(CSV_COLUMNS_MAX))
    assert len(json.loads(rows_of(names + b"\n" + names)[0])) == CSV_COLUMNS_MAX


def test_a_text_may_be_as_long_as_a_row_and_says_before_what_it_takes() -> None:
    long = b"x\n" * ((CSV_ROW_MAX_BYTES - 3) // 2)
    told: list[int] = []
    (row,) = json_rows(io.BytesIO(b'\xef\xbb\xbfa\n"%b"\n' % long), (), told.append)
    assert json.loads(row) == {"a": long.decode()}
    assert (told == sorted(told), told[-1] > 10 * len(long)) == (True, True)
