"""A topic as DataFusion reads it: it hands over the columns and the filter of a query, and takes batches.

DataFusion knows pyarrow's datasets, so a scan is one. It reads no file that the filter leaves out. The others
it reads through the reader of their partition: with checksums, from both tiers, and on in another file where
a merge has replaced one.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from log_tables.errors import LakelogError, OffsetOutOfRange, StoreUnavailable, TopicDeleted
from log_tables.layout import OFFSET, PARTITION
from log_tables.partition.read_plan import ReadPlan
from log_tables.sql.file_slices import FileSlice, file_slices, mentioned, spread
from log_tables.sql.topic_files import TOPIC, TopicFiles

# These look at the text of a filter. A match only leaves the filter to DataFusion.
_NAN = re.compile(r"(?<!\w)nan(?!\w)")
_LOOKED_AT = re.compile(r"invert\(|is_(?:null|valid)\((?:\(|is_in)|\}\) [=!<>]|[=<>] \(*is_in\(")

Failures = list[LakelogError]
"""The errors of scans, which DataFusion would show as text only."""


def read_slices(
    files: TopicFiles, slices: Sequence[FileSlice], columns: Collection[str], where: pc.Expression | None
) -> Iterator[pa.RecordBatch]:
    """The rows of `slices` of `files` for which `where` is true, lazily: `columns`, in this order.

    Raises CorruptSegment, StoreUnavailable; the latter also for records that were deleted meanwhile.
    """
    needed = {OFFSET, *columns, *(field.name for field in mentioned(where, files.schema))}
    schema = pa.schema([field for field in files.schema if field.name in needed])
    try:
        for item in slices:
            for batch in _records(item, schema.names):
                rows = _with_place(batch, files.name, item.files.partition, schema)
                yield (rows if where is None else rows.filter(where)).select(columns)
    except (OffsetOutOfRange, TopicDeleted):
        raise StoreUnavailable(
            f"records of topic {files.name} were deleted while the query read them; repeat the query"
        ) from None


def _records(item: FileSlice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    plan = ReadPlan(
        start=item.start,
        end=item.end,
        log_start=item.files.log_start,
        high_watermark=item.files.end,
        segments=(item.segment,),
    )
    return item.files.reader.read(plan, columns)


def _with_place(batch: pa.RecordBatch, topic: str, partition: int, schema: pa.Schema) -> pa.RecordBatch:
    """The columns `schema` of the rows, with the two that no file has; those declared since are null."""
    place = {TOPIC: topic, PARTITION: partition}
    had = {*batch.schema.names}
    arrays = [
        batch.column(field.name)
        if field.name in had
        else pa.repeat(pa.scalar(place.get(field.name), field.type), batch.num_rows)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _checked(where: pc.Expression | pa.Scalar | None, schema: pa.Schema) -> pc.Expression | None:
    """The filter `where`. Raises ValueError for one that means something else to Arrow than to DataFusion.

    DataFusion has NaN above all numbers. A null that is sought in a list is null to it, and false to Arrow:
    that is the same, unless the answer is negated, compared or looked at for being null.
    """
    if isinstance(where, pa.Scalar):  # DataFusion hands over a constant as it is
        where = pc.scalar(where)
    if where is None:
        return None
    text = str(where)
    sought = "is_in(" in text and any(column.nullable for column in mentioned(where, schema))
    if _NAN.search(text) or (sought and _LOOKED_AT.search(text)):
        raise ValueError("the filter cannot be over a scan")
    return where


class TopicScan(ds.Dataset):  # type: ignore[misc] # pyarrow ships no types
    """The records of a topic, in the columns of its files."""

    def __init__(self, files: TopicFiles, failures: Failures) -> None:
        self._files, self._failures = files, failures

    @property
    def schema(self) -> pa.Schema:
        return self._files.schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 (DataFusion calls it so)
        **_: object,
    ) -> "Batches":
        """The schema of the columns, for a plan."""
        return self.batches((), columns, filter)

    def get_fragments(self, where: pc.Expression | None = None) -> list["_Fragment"]:
        """The parts that are read at the same time. Raises ValueError for a filter that it cannot have."""
        wanted = _checked(where, self.schema)
        try:
            slices = file_slices(self._files, wanted)
        except LakelogError as error:
            self._failures.append(error)
            raise
        return [_Fragment(self, part) for part in spread(slices)]

    def batches(
        self, slices: Sequence[FileSlice], columns: Sequence[str] | None, where: pc.Expression | None
    ) -> "Batches":
        names = self.schema.names if columns is None else columns
        schema = pa.schema([self.schema.field(name) for name in names])
        wanted = _checked(where, self.schema)
        return Batches(schema, self._noted(read_slices(self._files, slices, names, wanted)))

    def _noted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except LakelogError as error:
            self._failures.append(error)
            raise


class Batches(NamedTuple):
    """The part of pyarrow's Scanner that DataFusion uses."""

    projected_schema: pa.Schema
    found: Iterator[pa.RecordBatch]

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        return self.found


class _Fragment:
    """The part of pyarrow's Fragment that DataFusion uses."""

    def __init__(self, scan: TopicScan, slices: Sequence[FileSlice]) -> None:
        self._scan, self._slices = scan, slices

    def scanner(
        self,
        _schema: pa.Schema,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 (as above)
        **_: object,
    ) -> Batches:
        return self._scan.batches(self._slices, columns, filter)
