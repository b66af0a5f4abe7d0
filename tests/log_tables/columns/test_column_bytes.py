"""The columns of one value are bounded, by the value and its declaration alone, on every way."""

import tracemalloc

import pyarrow as pa
import pytest
from hypothesis import given

from log_tables.columns.column_bytes import expanded_bytes, may_be_wide, may_expand, widest_items
from log_tables.columns.declaration import Declaration, parse
from log_tables.columns.fit import fit
from log_tables.columns.misfit import misfits
from log_tables.columns.typed_values import typed_values
from log_tables.limits import EXPANDED_MAX_BYTES, JUDGED_NESTED_MAX_BYTES, MIB, WIDE_COLUMNS_BYTES
from log_tables.rows import Rows
from tests.kit.declared_json import declared_values

ERROR = "the value would be more than 64 MiB of columns"


def struct(fields: int) -> str:
    return f"struct<{', '.join(f'f{index}: bigint' for index in range(fields))}>"


def objects(count: int, item: bytes = b"{}") -> bytes:
    return b"[" + b",".join([item] * count) + b"]"


@given(declared_values)
def test_a_bound_that_is_found_without_reading_is_never_too_small(
    declared: tuple[Declaration, list[bytes | None]],
) -> None:
    declaration, values = declared
    for value in values:
        row, _ = fit(value or b"", declaration)
        size = expanded_bytes(enumerate(row), declaration)
        assert size == 0 or may_expand(value or b"", declaration, size - 1)
        assert size == 0 or widest_items(declaration)


def test_many_values_are_wide_together() -> None:
    declaration = parse(f"a array<{struct(100)}>")
    value = b'{"a":%b}' % objects(WIDE_COLUMNS_BYTES // 800 // 4)
    five = pa.array([value] * 5)
    assert may_be_wide(five, declaration)
    assert not may_be_wide(five[3:4], declaration)
    assert not may_be_wide(five, parse("s string"))
    assert not may_be_wide(pa.array([None], pa.binary()), declaration)


@pytest.mark.parametrize(
    ("declared", "item_bytes", "value"),
    [
        (f"a array<{struct(100)}>", 800, b'{"a":%b}'),
        (f"a array<{struct(100)}>, b array<{struct(50)}> FROM '/a'", 1_200, b'{"a":%b}'),
        (f"a map<string, array<{struct(100)}>>", 800, b'{"a":{"k":%b}}'),
        (f"a struct<b: array<{struct(100)}>>, n bigint FROM '/n'", 800, b'{"a":{"b":%b},"n":1}'),
        (f"a array<{struct(1000)}>", 8_000, b'{"a":%b}'),
        (f"a array<struct<n: {struct(60)}, d: decimal(5,2), e: binary>>", 504, b'{"a":%b}'),
    ],
)
@pytest.mark.parametrize("more", [0, 1])
def test_every_way_agrees_at_the_bound(declared: str, item_bytes: int, value: bytes, more: int) -> None:
    declaration = parse(declared)
    own = 16 if "map" in declared else 0
    count = (EXPANDED_MAX_BYTES - own) // item_bytes + more
    made = value % objects(count)
    error = ERROR if more else None
    row, found = fit(made, declaration)
    assert found == error
    assert (row[0] is None) == bool(more)
    misfit = next(misfits(Rows([made], 0), declaration), None)
    assert (misfit and (misfit.path, misfit.reason)) == (error and ("", error))
    typed = typed_values(pa.array([b"{}", made, None], pa.binary()), declaration)
    assert typed.column(0).to_pylist() == [None, error, None]
    assert typed.column(1).null_count == 2 + more


@pytest.mark.parametrize("values", [1, 3])
def test_a_value_that_would_be_too_large_takes_no_memory(values: int) -> None:
    declaration = parse(f"a array<{struct(1000)}>")
    value = b'{"a":%b}' % objects(MIB // 4)
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        typed = typed_values(pa.array([value] * values, pa.binary()), declaration)
        assert tracemalloc.get_traced_memory()[1] < 60 * len(value)
    finally:
        tracemalloc.stop()
    assert typed.column(0).to_pylist() == [ERROR] * values
    assert pa.total_allocated_bytes() - before < 8 * MIB


def test_what_is_long_and_flat_is_not_too_large() -> None:
    value = b'{"a":%b}' % objects(JUDGED_NESTED_MAX_BYTES, b"1")
    assert fit(value, parse("a array<bigint>"))[1] is None
    assert not may_expand(value, parse("a string, b struct<c: bigint>"))
