"""A digest covers declared columns, whatever their types, and does not depend on how batches are cut."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_tables.clock import ManualClock
from log_tables.columns.declaration import Declaration, parse
from log_tables.columns.record_columns import RecordColumns
from log_tables.record import RECORD_SCHEMA
from log_tables.segments import rewrite
from log_tables.segments import segment as segments
from log_tables.segments.digest import Digest
from log_tables.store.store import open_store
from tests.kit.declared_json import declared_values

Declared = tuple[Declaration, list[bytes | None]]


def records(values: list[bytes | None], declaration: Declaration, base: int = 0) -> pa.RecordBatch:
    """Records with `values` and their declared columns."""
    offsets = pa.array(range(base, base + len(values)), pa.int64())
    nulls = [pa.nulls(len(values), RECORD_SCHEMA.field(name).type) for name in ("key", "headers")]
    columns = [offsets, offsets.cast(RECORD_SCHEMA.field("timestamp").type), nulls[0]]
    columns += [pa.array(values, pa.binary()), nulls[1]]
    return next(RecordColumns(declaration).beside(pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)))


def digest(*batches: pa.RecordBatch) -> bytes:
    made = Digest()
    for batch in batches:
        made.update(batch)
    return made.value()


def without_values(batch: pa.RecordBatch) -> pa.RecordBatch:
    at = RECORD_SCHEMA.get_field_index("value")
    return batch.set_column(at, RECORD_SCHEMA.field("value"), pa.nulls(batch.num_rows, pa.binary()))


@given(declared_values, st.lists(st.integers(0, 5), max_size=4))
def test_it_is_the_same_however_the_columns_are_cut(declared: Declared, cuts: list[int]) -> None:
    declaration, values = declared
    whole = records(values, declaration)
    ends = [*sorted(min(cut, len(values)) for cut in cuts), len(values)]
    parts = [whole.slice(start, end - start) for start, end in zip([0, *ends], ends, strict=False)]
    copies = [part.take(pa.array(range(part.num_rows), pa.int64())) for part in parts]
    assert digest(*parts) == digest(whole) == digest(*copies)


@given(declared_values.flatmap(lambda declared: st.tuples(st.just(declared), st.permutations(declared[1]))))
def test_other_columns_have_another_one(both: tuple[Declared, list[bytes | None]]) -> None:
    (declaration, values), others = both
    first, second = (without_values(records(each, declaration)) for each in (values, others))
    assert (digest(first) == digest(second)) == (repr(first.to_pylist()) == repr(second.to_pylist()))


ALL = (
    "s string, b bigint, d double, t boolean, e date, ts timestamp, a array<string>, m map<string, bigint>, "
    "st struct<x: string, y: array<date>>, deep array<map<string, struct<z: array<double>>>>"
)
FULL = (
    b'{"s":"x","b":1,"d":1.5,"t":true,"e":"2013-01-31","ts":"2013-01-31T05:00:00Z","a":["x",null],'
    b'"m":{"k":1,"l":null},"st":{"x":"x","y":["2013-01-31",null]},"deep":[{"k":{"z":[1.5]}},null]}'
)
CHANGES = [
    (b'"s":"x"', b'"s":"y"'),
    (b'"s":"x"', b'"s":""'),
    (b'"s":"x"', b'"s":null'),
    (b'"b":1', b'"b":2'),
    (b'"b":1', b'"b":null'),
    (b'"d":1.5', b'"d":2'),
    (b"true", b"false"),
    (b"true", b"null"),
    (b'"e":"2013-01-31"', b'"e":"2013-01-30"'),
    (b"05:00:00Z", b"05:00:01Z"),
    (b'["x",null]', b'[null,"x"]'),
    (b'["x",null]', b'["x"]'),
    (b'["x",null]', b"[]"),
    (b'["x",null]', b"null"),
    (b'"k":1', b'"j":1'),
    (b'"l":null', b'"l":0'),
    (b'{"k":1,"l":null}', b"{}"),
    (b'{"k":1,"l":null}', b"null"),
    (b'"st":{"x":"x"', b'"st":{"x":"y"'),
    (b'["2013-01-31",null]', b'["2013-01-30",null]'),
    (b'["2013-01-31",null]', b'[null,"2013-01-31"]'),
    (b'"deep":[{"k":{"z":[1.5]}},null]', b'"deep":[null,{"k":{"z":[1.5]}}]'),
    (b'"z":[1.5]', b'"z":[2.5]'),
    (b'{"z":[1.5]}', b"null"),
    (b'"s":"x"', b'"s":1'),
]


@pytest.mark.parametrize(("part", "other"), CHANGES)
@pytest.mark.parametrize("around", [0, 1, 9])
def test_every_part_of_a_column_counts(part: bytes, other: bytes, around: int) -> None:
    assert part in FULL
    rows, declaration = [FULL] * around, parse(ALL)
    batches = [
        without_values(records([*rows, value, *rows], declaration))
        for value in (FULL, FULL.replace(part, other, 1))
    ]
    assert len({digest(batch) for batch in batches}) == 2


VALUES = [FULL, None, b'{"s":1}', b"{}", FULL.replace(b"x", b"y"), b'{"m":{},"a":[],"st":{}}', FULL]


@pytest.mark.parametrize("limits", [segments.SEGMENT_LIMITS, segments.SegmentLimits(group_rows=2)])
@pytest.mark.parametrize("compression", ["zstd", "uncompressed"])
def test_a_merge_keeps_all_columns(limits: segments.SegmentLimits, compression: str) -> None:
    store, declaration = open_store("memory://"), parse(ALL)
    inputs, batches = [], []
    for number in range(3):
        batch = records(VALUES, declaration, base=number * len(VALUES))
        data = segments.encode(batch, compression, limits)
        path = f"{number}.parquet"
        store.put_new(f"table/{path}", data)
        inputs.append(segments.describe(path, batch, data, number, declaration.id))
        batches.append(batch)
        assert pa.Table.from_batches(segments.decode(data)).equals(pa.Table.from_batches([batch]))
    made = rewrite.merge(store, "table", inputs, compression, ManualClock(), limits)
    found = pa.Table.from_batches(
        segments.read(store, "table", made, 0, made.last_offset + 1, None, whole_bytes=0)
    )
    assert found.equals(pa.Table.from_batches(batches))
    assert made.columns == declaration.id
    assert made.column_stats.nulls == {
        name: sum(batch.column(name).null_count for batch in batches)
        for name in ("value_error", "s", "b", "d", "t", "e", "ts")
    }


def test_a_merge_joins_files_whose_columns_are_in_another_order() -> None:
    """The table of a remote root may have got the columns of a topic in another order."""
    store, inputs = open_store("memory://"), []
    for number, text in enumerate(("n bigint, s string", "s string, n bigint")):
        declaration = parse(text)
        batch = records([b'{"n":%d,"s":"x"}' % number, b'{"n":"no"}'], declaration, base=2 * number)
        data = segments.encode(batch, "zstd")
        store.put_new(f"table/{number}.parquet", data)
        inputs.append(segments.describe(f"{number}.parquet", batch, data, number, declaration.id))
    made = rewrite.merge(store, "table", inputs, "zstd", ManualClock())
    found = pa.Table.from_batches(segments.read(store, "table", made, 0, 4, None))
    assert found.select(["n", "s"]).to_pydict() == {"n": [0, None, 1, None], "s": ["x", None, "x", None]}
    assert found["value_error"].null_count == 2
