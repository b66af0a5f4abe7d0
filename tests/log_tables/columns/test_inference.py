"""The declaration that a sample of values suggests: every object of the sample fits it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_tables.columns.declaration import NOTHING, parse
from log_tables.columns.fit import fit
from log_tables.columns.inference import inferred


@pytest.mark.parametrize(
    ("values", "columns"),
    [
        ([{"a": 1}, {"a": 2}], "a bigint"),
        ([{"a": 1}, {"a": 1.5}], "a double"),
        ([{"a": 2**63}], "a double"),
        ([{"a": True}], "a boolean"),
        ([{"a": "x"}, {"a": None}, {}], "a string"),
        ([{"a": "2013-01-31"}], "a date"),
        ([{"a": "2013-01-31T05:00:00Z"}], "a timestamp"),
        ([{"a": "2013-01-31T05:00:00Z"}, {"a": "later"}], "a string"),
        ([{"a": [1, None]}, {"a": []}], "a array<bigint>"),
        ([{"a": {"b": 1, "c": ["x"]}}], "a struct<b: bigint, c: array<string>>"),
        ([{"a": 1}, {"a": "x"}], ""),
        ([{"a": None}, {"a": []}], ""),
        ([{"a": {}}], ""),
        ([1, [], "x"], ""),
        ([{"offset": 1, "Key": "k"}], "offset_ bigint FROM '/offset', Key_ string FROM '/Key'"),
        ([{"a": 1, "A": 2}], "a bigint, A_ bigint FROM '/A'"),
        ([{"two words": 1, "a/b": 2}], "two_words bigint FROM '/two words', a/b bigint"),
        ([{"rows_json": 1}], "rows_json_ bigint FROM '/rows_json'"),
        ([{"": 1}], "field bigint FROM '/'"),
        ([{'a"b': 1, "c\\d": 2, "e": 3}], "e bigint"),
    ],
)
def test_a_field_becomes_the_type_that_all_of_its_values_have(values: list[object], columns: str) -> None:
    assert inferred(map(msgspec.json.encode, values), NOTHING).text == columns


def test_columns_that_are_declared_stay_and_others_come_after_them() -> None:
    declared = parse("late double FROM '/delay'")
    sample = [b'{"delay":1,"carrier":"UA"}', b'{"delay":"none","carrier":1}', b"no JSON", None]
    found = inferred(sample, declared)
    assert found.text == "late double FROM '/delay', carrier string"
    assert inferred(sample, found) == found


json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text()
    | st.datetimes().map(str)
    | st.dates().map(str),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(max_size=3), json, max_size=4).map(msgspec.json.encode), max_size=5))
def test_every_object_of_a_sample_fits(sample: list[bytes]) -> None:
    found = inferred(sample, NOTHING)
    assert parse(found.text) == found
    errors = [fit(value, found)[1] for value in sample] if found.columns else []
    assert errors == [None] * len(errors)
