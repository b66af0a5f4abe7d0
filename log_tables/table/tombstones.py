"""The files that a table has removed and still remembers, as columns: a busy partition removes 50,000 in an
hour, and they take 80 bytes each instead of 500.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from log_tables.limits import DELETED_SEGMENTS_MAX, FILE_RETENTION_MS, TOMBSTONE_RETENTION_MS
from log_tables.table.commit import Remove

REMOVE = pa.struct(
    [
        ("path", pa.string()),
        ("deletionTimestamp", pa.int64()),
        ("dataChange", pa.bool_()),
        ("extendedFileMetadata", pa.bool_()),
        ("partitionValues", pa.map_(pa.string(), pa.string())),
        ("size", pa.int64()),
        ("stats", pa.string()),
        ("tags", pa.map_(pa.string(), pa.string())),
    ]
)
"""A remove in a checkpoint. Those of deleted records have stats and tags."""

_GIVEN = frozenset(REMOVE.names) - {"dataChange", "extendedFileMetadata"}
_PARTS_MAX = 16
"""More arrays than so many become one: each look goes through all of them."""


class Tombstones(Mapping[str, Remove]):
    """Removes by their paths: a value, of which `after` gives the next one.

    As in a checkpoint, none says that it changes data. A look for one path reads all of them.
    """

    __slots__ = ("_parts",)

    def __init__(self, removes: Iterable[Remove] = ()) -> None:
        newest = {remove.path: remove for remove in removes}
        self._parts: tuple[pa.StructArray, ...] = (_rows(newest.values()),) if newest else ()

    @classmethod
    def of_rows(cls, *parts: pa.StructArray) -> "Tombstones":
        """The removes in arrays of REMOVE, of which no two have the same path."""
        made = cls()
        made._parts = tuple(part for part in parts if len(part))
        return made

    @classmethod
    def of_column(cls, removes: pa.StructArray) -> "Tombstones":
        """The removes of a checkpoint, which may lack fields, as those of older versions do.

        Raises ValueError where one has no path.
        """
        there = {field.name: removes.field(field.name) for field in removes.type if field.name in _GIVEN}
        if "path" not in there or there["path"].null_count:
            raise ValueError("a remove has no path")
        there["dataChange"], there["extendedFileMetadata"] = _flags(len(removes))
        cast = [
            there[field.name].cast(field.type) if field.name in there else pa.nulls(len(removes), field.type)
            for field in REMOVE
        ]
        return cls.of_rows(pa.StructArray.from_arrays(cast, fields=list(REMOVE)))

    def after(self, removes: Iterable[Remove]) -> "Tombstones":
        """These and `removes`, in the place of older ones of the same paths."""
        added = Tombstones(removes)
        paths = pa.array([*added], pa.string())
        parts = [_without(part, paths) for part in self._parts]
        if len(parts) > _PARTS_MAX:
            parts = [pa.concat_arrays(parts)]
        return self.of_rows(*parts, *added._parts)

    def without(self, paths: Iterable[str]) -> "Tombstones":
        """These but those of `paths`, whose files are part of the table again."""
        if not self._parts:
            return self
        back = pa.array([*paths], pa.string())
        return self.of_rows(*(_without(part, back) for part in self._parts))

    def pruned(self, now_ms: int, deleted_max: int = DELETED_SEGMENTS_MAX) -> "Tombstones":
        """These without the old ones. The newest `deleted_max` of deleted records stay longer."""
        if not self._parts:
            return self
        rows = self.rows()
        kept = pc.and_(_has_stats(rows), _is_younger(rows, now_ms - FILE_RETENTION_MS))
        rows = rows.filter(pc.or_(kept, _is_younger(rows, now_ms - TOMBSTONE_RETENTION_MS)))
        deleted = pc.indices_nonzero(_has_stats(rows))
        if len(deleted) <= deleted_max:
            return self.of_rows(rows)
        first = deleted[len(deleted) - deleted_max].as_py()
        early = rows.slice(0, first)
        early = early.filter(_is_younger(early, now_ms - TOMBSTONE_RETENTION_MS))
        return self.of_rows(_bare(early), rows.slice(first))

    def deleted(self) -> list[Remove]:
        """The removes of deleted records, in the order of their deletion."""
        return [_remove(row) for part in self._parts for row in part.filter(_has_stats(part)).to_pylist()]

    def count_replaced(self) -> int:
        """How many there are of files whose records were not deleted."""
        return sum(part.field("stats").null_count for part in self._parts)

    def rows(self) -> pa.StructArray:
        """All of them, as an array of REMOVE."""
        return pa.concat_arrays([*self._parts, _none()])

    def __getitem__(self, path: str) -> Remove:
        for part in self._parts:
            index = pc.index(part.field("path"), path).as_py()
            if index >= 0:
                return _remove(part[index].as_py())
        raise KeyError(path)

    def __iter__(self) -> Iterator[str]:
        for part in self._parts:
            yield from part.field("path").to_pylist()

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __repr__(self) -> str:
        return f"Tombstones({[*self.values()]})"


def _remove(row: dict[str, Any]) -> Remove:
    values, tags = dict(row.pop("partitionValues") or ()), row.pop("tags")
    return Remove(**row, partitionValues=values, tags=None if tags is None else dict(tags))


def _has_stats(rows: pa.StructArray) -> pa.BooleanArray:
    return rows.field("stats").is_valid()


def _is_younger(rows: pa.StructArray, horizon_ms: int) -> pa.BooleanArray:
    return pc.greater(rows.field("deletionTimestamp").fill_null(0), horizon_ms)


def _bare(rows: pa.StructArray) -> pa.StructArray:
    """`rows` without stats and tags."""
    columns = [
        pa.nulls(len(rows), field.type) if field.name in ("stats", "tags") else rows.field(field.name)
        for field in REMOVE
    ]
    return pa.StructArray.from_arrays(columns, fields=list(REMOVE))


def _without(rows: pa.StructArray, paths: pa.Array) -> pa.StructArray:
    found = pc.is_in(rows.field("path"), paths)
    return rows.filter(pc.invert(found)) if pc.any(found).as_py() else rows


def _flags(count: int) -> tuple[pa.Array, pa.Array]:
    """`dataChange` and `extendedFileMetadata` of so many removes."""
    return pa.repeat(pa.scalar(False), count), pa.repeat(pa.scalar(True), count)


def _rows(removes: Collection[Remove]) -> pa.StructArray:
    columns = [
        pa.array([remove.path for remove in removes], pa.string()),
        pa.array([remove.deletionTimestamp for remove in removes], pa.int64()),
        *_flags(len(removes)),
        pa.array(
            [list((remove.partitionValues or {}).items()) for remove in removes],
            REMOVE["partitionValues"].type,
        ),
        pa.array([remove.size for remove in removes], pa.int64()),
        pa.array([remove.stats for remove in removes], pa.string()),
        pa.array(
            [None if remove.tags is None else list(remove.tags.items()) for remove in removes],
            REMOVE["tags"].type,
        ),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(REMOVE))


@cache
def _none() -> pa.StructArray:
    """No removes. Not made at import: Arrow then loads pandas, if it is installed."""
    return _rows(())
