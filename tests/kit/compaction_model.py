"""A model of compaction by key in plain Python, record by record."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from log_tables.limits import DELETE_HORIZON_STEPS
from log_tables.record import Record
from log_tables.table.snapshot import Segment


@dataclass
class Model:
    """A log that is appended to, truncated and compacted; `kept` are its records by offset."""

    kept: dict[int, Record] = field(default_factory=dict)
    start: int = 0
    end: int = 0
    cleaned: int = 0
    _horizons: dict[int, int] = field(default_factory=dict)

    def append(self, records: Sequence[Record]) -> None:
        """Records with their timestamps, without offsets."""
        for record in records:
            self.kept[self.end] = replace(record, offset=self.end)
            self.end += 1

    def truncate(self, before: int) -> None:
        self.start = max(self.start, before)

    def cleanable_end(self, segments: Sequence[Segment], now_ms: int, lag_ms: int) -> int | None:
        """The end of the last of `segments` that a compaction may touch, or None."""
        end = None
        for item in segments:
            inside = [
                record.timestamp_us or 0
                for offset, record in self.kept.items()
                if item.base_offset <= offset <= item.last_offset
            ]
            too_young = any(stamp > (now_ms - lag_ms) * 1_000 for stamp in inside)
            if lag_ms and item.last_offset >= self.cleaned and too_young:
                break
            end = item.last_offset + 1
        return end

    def clean(self, end: int, now_ms: int, retention_ms: int) -> None:
        """A compaction of all below offset `end`, with this delete.retention.ms."""
        step = max(1, retention_ms // DELETE_HORIZON_STEPS)
        horizon_ms = (now_ms + retention_ms + step - 1) // step * step
        taking_part = {offset: kept for offset, kept in self.kept.items() if self.start <= offset < end}
        newest = {record.key: offset for offset, record in taking_part.items()}
        for offset, record in taking_part.items():
            superseded = record.key is not None and newest[record.key] != offset
            deletes = record.key is not None and record.value is None
            if superseded or (deletes and self._is_over(offset, now_ms, horizon_ms)):
                del self.kept[offset]
        self.cleaned = max(self.cleaned, end)

    def _is_over(self, offset: int, now_ms: int, horizon_ms: int) -> bool:
        """Whether a tombstone can be dropped: a compaction has met it before, and its horizon has passed."""
        if offset not in self._horizons:
            self._horizons[offset] = horizon_ms
            return False
        return self._horizons[offset] <= now_ms and offset != self.end - 1

    def readable(self) -> list[Record]:
        """The records that a reader finds, in order."""
        return [record for offset, record in self.kept.items() if offset >= self.start]
