"""A declaration is read as it is written, and refused with a sentence that says what to write."""

import json
import re

import pytest
from deltalake import Schema
from hypothesis import assume, given
from hypothesis import strategies as st

from log_tables.columns.column_type import ddl, delta_type, of_delta, without_case
from log_tables.columns.declaration import (
    NOTHING,
    RESERVED,
    Column,
    Declaration,
    check_count,
    declaration_of_schema,
    parse,
)
from log_tables.errors import InvalidConfig
from log_tables.limits import (
    COLUMN_NAME_MAX_CHARS,
    COLUMNS_MAX,
    COLUMNS_TEXT_MAX_CHARS,
    LEAF_COLUMNS_MAX,
    VALUE_DEPTH_MAX,
)
from log_tables.record import delta_schema
from tests.kit.declared_json import column_types, declarations
from tests.kit.support import ROOT

PAGE = (ROOT / "docs" / "columns.md").read_text()

names = st.text(min_size=1, max_size=9)
steps = st.lists(st.text(max_size=4), min_size=1, max_size=3)


def refusal(text: str) -> str:
    with pytest.raises(InvalidConfig) as refused:
        parse(text)
    return str(refused.value)


def pointer_of(parts: list[str]) -> str:
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


@given(names, column_types, st.none() | steps)
def test_any_column_is_read_back_as_it_is_written(name: str, kind: object, path: list[str] | None) -> None:
    column = Column(name, kind, pointer_of([name] if path is None else path))
    quoted = "`" + name.replace("`", "``") + "`"
    pointer = column.pointer.replace("'", "''")
    text = f"{quoted} {ddl(column.type)} FROM '{pointer}'"
    try:
        found = parse(text)
    except InvalidConfig:
        assume(False)
    assert found.columns == (column,)
    assert parse(found.text) == found
    assert column.steps == tuple([name] if path is None else path)


@given(declarations)
def test_a_declaration_is_read_back_of_its_text_and_of_a_table(declaration: Declaration) -> None:
    assert parse(declaration.text) == declaration
    assert declaration_of_schema(delta_schema(declared=declaration.fields())) == declaration


@given(column_types)
def test_delta_takes_the_types(kind: object) -> None:
    text = json.dumps({"type": "struct", "fields": Declaration((Column("a", kind, "/a"),)).fields()})
    assert json.loads(Schema.from_json(text).to_json()) == json.loads(text)
    assert of_delta(delta_type(kind)) == kind


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("a STRING", "a string"),
        ("a long", "a bigint"),
        ("  a\tstring ,\n b Array < BigInt > from '/c'", "a string, b array<bigint> FROM '/c'"),
        ("`a` string FROM '/a'", "a string"),
        ("a struct<b string, c: map<string,double>>", "a struct<b: string, c: map<string, double>>"),
        ("a struct<`b:c`: string>", "a struct<`b:c`: string>"),
        ("from string from '/from'", "from string"),
        ("a decimal, b DEC(5), c Numeric ( 38 , 00 )", "a decimal(10,0), b decimal(5,0), c decimal(38,0)"),
        (
            "decimal array<decimal(10,2)>, m map<string, dec(3,3)>, s struct<x numeric(4, 1), y: binary>",
            "decimal array<decimal(10,2)>, m map<string, decimal(3,3)>, s struct<x: decimal(4,1), y: binary>",
        ),
        ("`a``b` string", "`a``b` string"),
        ("a string FROM '/it''s'", "a string FROM '/it''s'"),
        ("  ", ""),
    ],
)
def test_what_may_be_written_in_other_ways(text: str, same: str) -> None:
    assert parse(text).text == same
    assert parse(same) == parse(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        *((f"a {name}", "no type widening; declare bigint") for name in ("tinyint", "smallint", "INT")),
        *((f"a array<{name}>", "no type widening; declare double") for name in ("float", "real")),
        *((f"a {name}", f"no type '{name}'") for name in ("timestamp_ntz", "variant")),
        ("a varchar(3)", "no type 'varchar'"),
        *(
            (
                f"a array<decimal({digits})>",
                f"no type decimal({digits}); write decimal(p, s) with 1 to 38 digits",
            )
            for digits in ("39, 0", "2, 3", "0, 0", "4, x", "4, -1", "999999999999, 0", "4, 2, 1", "٤, 2")
        ),
        ("a decimal()", "cannot be read at ')'"),
        ("a decimal(10", "cannot be read at 'its end', where ')' should be"),
        ("a decimal(10;2)", "cannot be read at ';2)'"),
        ("a binary(3)", "cannot be read at '(', where ',' should be"),
        ("a map<decimal(3,1), string>", "write map<string, …>"),
        ("a map<bigint, string>", "write map<string, …>"),
        (
            "a " + "array<" * 9 + "string" + ">" * 9,
            "declare an inner part as a column, with FROM '/its/path'",
        ),
        ("a struct<b: string, B: string>", "a struct has the field B twice; leave one of them out"),
        ("a struct<`b c`: string>", "leave out spaces"),
        ('a struct<`b"`: string>', "has a quote or a backslash; leave this field out"),
        ("a string, A bigint", "the column A is declared twice; leave one of them out"),
        ("rows_json string", "ends as a view does; leave _json out"),
        ("`a b` string", "leave out spaces"),
        ("`` string", "use 1 to 128"),
        ("x" * (COLUMN_NAME_MAX_CHARS + 1) + " string", "use 1 to 128"),
        ("a string FROM 'b'", "is no JSON pointer; write /field"),
        ("a string FROM '/b~2'", "~0 for a tilde"),
        ("a string FROM '/b\"'", "leave this column out"),
        ("`a\\b` string", "leave this column out"),
        ("a string FROM '" + "/b" * (VALUE_DEPTH_MAX + 1) + "'", "up to a depth of 128"),
        ("a", "cannot be read at 'its end'"),
        ("a string b string", "cannot be read at 'b', where ',' should be"),
        ("a string,", "cannot be read at 'its end'"),
        ("a string FROM /b", "cannot be read at '/b'"),
        ("a array<string", "cannot be read at 'its end', where '>' should be"),
        ("a struct<>", "cannot be read at '>'"),
        ("a (string)", "cannot be read at '('"),
        ("'a' string", "cannot be read at 'a'"),
        ("a string FROM 'b", "cannot be read at"),
        ("a " + "x" * COLUMNS_TEXT_MAX_CHARS, "use at most 65536"),
    ],
)
def test_what_no_column_can_be_is_refused_with_what_to_write(text: str, sentence: str) -> None:
    assert sentence in refusal(text)


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_names_of_ours_are_refused_in_any_case(name: str) -> None:
    for written in (name, name.upper()):
        assert f"lakelog has a column {name!r}; choose another name" in refusal(f"{written} string")
    listed = next(line for line in PAGE.splitlines() if line.startswith("| a name of a column of ours"))
    assert name in re.findall("`([^`]+)`", listed.lower())


@pytest.mark.parametrize(
    ("written", "name"),
    [("offſet", "offset"), ("partıtion", "partition"), ("\u212aey", "key"), ("tİmestamp", "timestamp")],
)
def test_names_that_only_java_takes_for_ours_are_refused(written: str, name: str) -> None:
    assert f"lakelog has a column {name!r}; choose another name" in refusal(f"{written} string")
    assert "ends as a view does" in refusal("rows_jſon string")
    assert "is declared twice" in refusal(f"a{name} string, a{written} bigint FROM '/b'")
    assert "twice; leave one of them out" in refusal(f"a struct<{name}: string, {written}: string>")
    with pytest.raises(InvalidConfig, match="declare a new column"):
        parse(f"a{name} string").grown(parse(f"a{written} string"))


@given(st.characters(exclude_categories=["Cs"]), st.characters(exclude_categories=["Cs"]))
def test_what_any_language_takes_for_one_name_is_one(one: str, other: str) -> None:
    same = {one, one.upper(), one.lower(), one.casefold(), one.title(), one.swapcase(), one.upper().lower()}
    assert {without_case(each) for each in same} == {without_case(one)}
    assert without_case(one + other) == without_case(one) + without_case(other)


def test_there_are_as_many_columns_as_the_page_says() -> None:
    assert f"| {COLUMNS_MAX} |" in PAGE
    assert f"| {LEAF_COLUMNS_MAX:,} |" in PAGE
    columns = [f"c{index} bigint" for index in range(COLUMNS_MAX)]
    assert len(parse(", ".join(columns)).columns) == COLUMNS_MAX
    assert "it can have 256" in refusal(", ".join([*columns, "one_more bigint"]))
    fields = [f"f{index}: bigint" for index in range(LEAF_COLUMNS_MAX)]
    check_count(parse(f"a array<struct<{', '.join(fields)}>>"))
    assert "it can have 1024" in refusal(f"a array<struct<{', '.join(fields)}>>, b map<string, bigint>")


def test_a_declaration_can_be_read_again_as_long_as_it_may_be() -> None:
    """`bigint` is longer than `long`."""
    path = "/" + "x" * (COLUMNS_TEXT_MAX_CHARS // COLUMNS_MAX - len("c000 long FROM '/', "))
    text = ", ".join(f"c{index:03} long FROM '{path}'" for index in range(COLUMNS_MAX))
    assert len(text) <= COLUMNS_TEXT_MAX_CHARS < len(text.replace("long", "bigint"))
    assert f"it can have {COLUMNS_TEXT_MAX_CHARS}" in refusal(text)


def test_it_grows_by_new_columns_and_changes_none() -> None:
    first, second = parse("a string, b bigint"), parse("c date, A string FROM '/a'")
    assert first.grown(parse("c date, a string")).text == "a string, b bigint, c date"
    assert first.grown(NOTHING) == first
    for changed in ("a bigint", "a string FROM '/b'", "A string"):
        with pytest.raises(InvalidConfig, match="declare a new column under another name"):
            first.grown(parse(changed))
    assert first.joined(second).text == "a string, b bigint, c date"
    assert parse("c date, b bigint").held_by(first).text == "b bigint"


def test_what_each_commit_asks_for_is_made_once() -> None:
    table, asked = parse("a string, b bigint, c double"), parse("c double, a string")
    assert asked.held_by(table).text == "a string, c double"
    assert asked.held_by(table) is asked.held_by(table)
    assert table.joined(asked) is table
    assert asked.joined(table) is asked.joined(table)


def test_the_id_stands_for_the_set_of_columns() -> None:
    texts = ("a string", "a bigint", "b string", "a string FROM '/b'", "a string, b string")
    assert len({parse(text).id for text in texts}) == len(texts)
    assert parse("a string, b bigint").id == parse("b bigint, a string").id
    assert NOTHING.id == ""


def test_spark_reads_the_types_as_they_are_written(spark: object) -> None:
    text = (
        "s string, b bigint, d double, t boolean, e date, ts timestamp, a array<array<bigint>>, "
        "m map<string, array<double>>, st struct<x: string, `y:z`: struct<e: date>>, bin binary, "
        "dec decimal(38,4), decs map<string, array<decimal(5,5)>>, dd struct<x: decimal(1,0)>"
    )
    declaration = parse(text)
    read = spark.createDataFrame([], declaration.text).schema  # type: ignore[attr-defined]
    fields = [{**field, "metadata": {}} for field in declaration.fields()[1:]]
    assert json.loads(read.json())["fields"] == fields
