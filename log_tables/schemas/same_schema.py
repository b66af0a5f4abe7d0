"""Records of a batch whose values are of one schema, by the prefix, found for all at once."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from log_tables.layout import HEADERS, VALUE
from log_tables.limits import SAME_SCHEMA_MIN
from log_tables.schemas.decoded import Encoding, Format
from log_tables.schemas.framing import VALUE_HEADER
from log_tables.schemas.places import numbers_in

_PREFIX_BYTES = 5
_NONE = -1


@dataclass(frozen=True, slots=True)
class SameSchema:
    """The `rows` of a batch whose values are of one schema: in `data` they are from `begins` to `ends`."""

    schema_id: int
    rows: np.ndarray
    data: np.ndarray
    begins: np.ndarray
    ends: np.ndarray


def same_schema(records: pa.RecordBatch, encoding: Encoding) -> Iterator[SameSchema]:
    """The groups of records of one schema, of SAME_SCHEMA_MIN or more; `records` are RECORD_SCHEMA rows.

    There are none where a header names a schema, or the format has no plain columns.
    """
    if encoding.format not in (Format.AVRO, Format.AUTO) or records.num_rows < SAME_SCHEMA_MIN:
        return
    values, headers = records.column(VALUE), records.column(HEADERS)
    if headers.null_count < len(headers) and _names_schema(headers):
        return
    bounds = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)[bounds[0] : bounds[-1]]
    begins, ends = bounds[:-1] - bounds[0], bounds[1:] - bounds[0]
    ids = _ids(data, begins, ends) if encoding.schema is None else np.zeros(len(begins), np.int64)
    ids[values.is_null().to_numpy(zero_copy_only=False)] = _NONE
    skipped = _PREFIX_BYTES if encoding.schema is None else 0
    if ids[0] != _NONE and (ids == ids[0]).all():
        yield SameSchema(int(ids[0]), np.arange(len(ids)), data, begins + skipped, ends)
        return
    for schema_id, count in zip(*np.unique(ids, return_counts=True), strict=True):
        if schema_id != _NONE and count >= SAME_SCHEMA_MIN:
            rows = np.flatnonzero(ids == schema_id)
            yield SameSchema(int(schema_id), rows, data, begins[rows] + skipped, ends[rows])


def _ids(data: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The id in the prefix of each value; _NONE where there is none."""
    if len(data) < _PREFIX_BYTES:
        return np.full(len(begins), _NONE, np.int64)
    ids = numbers_in(data, ">u4")
    found = ids[np.minimum(begins + 1, len(ids) - 1)].astype(np.int64)
    named = (ends - begins >= _PREFIX_BYTES) & (data.take(begins, mode="clip") == 0)
    return np.where(named, found, _NONE)


def _names_schema(headers: pa.Array) -> bool:
    names = headers.flatten().field(0)
    return bool(pc.any(pc.equal(names, VALUE_HEADER)).as_py())
