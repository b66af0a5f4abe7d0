"""The files of one partition over a day at 20 commits a second: what waits, and when it goes.

A day has 1.7 million commits, so segments are only described here, and nothing is written: the plans are
those of the real jobs, every five minutes, on a snapshot that grows as a table does. The cell `steady state`
does the same with real files, for three hours and half as fast.
"""

import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from msgspec.structs import replace as changed

from bench.cells import Figures
from jobs import housekeeping, segment_compaction
from jobs.state import PartitionState
from log_tables.cluster.config import TopicConfig
from log_tables.limits import CHECKPOINT_INTERVAL_COMMITS, LOG_RETENTION_MS, REPLACED_FILE_RETENTION_MS
from log_tables.record import timestamp_text
from log_tables.table.commit import Metadata, Protocol
from log_tables.table.snapshot import Segment, Snapshot

HOURS = 24
STEP_MS, ROUND_MS, TIDY_MS = 50, 5 * 60_000, 10 * 60_000
"""Between two commits, between two runs of the jobs, and between two cleanings of the log by the gateway."""
_RAW_BYTES, _FILE_BYTES = 1_000, 1_500
"""Of the records of a commit, and of a file besides its records."""
_HOUR_MS = 3_600_000


class Files(NamedTuple):
    """The files of the table right before a run of the jobs, when they are most."""

    live: int
    replaced: int
    commits: int
    checkpoints: int


class _Partition:
    """A partition as its snapshot and its log describe it, and the ledgers of its vacuums."""

    def __init__(self) -> None:
        snapshot = Snapshot(0, Protocol(1, 2), Metadata("id", "{}"))
        self.state = PartitionState(
            topic="t", partition=0, directory="t/0", config=TopicConfig(), snapshot=snapshot
        )
        self.unmarked = 0
        self.ledgers: deque[tuple[int, int]] = deque()
        self.commits: deque[int] = deque()

    def files(self) -> Files:
        replaced = self.unmarked + sum(count for _, count in self.ledgers)
        checkpoints = len(self.commits) // CHECKPOINT_INTERVAL_COMMITS
        return Files(len(self.state.snapshot.segments), replaced, len(self.commits), checkpoints)

    def append(self, now_ms: int) -> None:
        """The commits of one round that ends at `now_ms`."""
        version, made = self.state.snapshot.version, []
        for at_ms in range(now_ms - ROUND_MS + STEP_MS, now_ms + 1, STEP_MS):
            version += 1
            made.append(_segment(version, at_ms))
            self.commits.append(at_ms)
            if at_ms % TIDY_MS == 0:
                self.clean(at_ms)
        snapshot = self.state.snapshot
        self._become(replace(snapshot, version=version, segments=(*snapshot.segments, *made)))

    def _become(self, snapshot: Snapshot) -> None:
        self.state = replace(self.state, snapshot=snapshot)

    def clean(self, now_ms: int) -> None:
        """Delete the commits that are an hour old."""
        while self.commits and self.commits[0] < now_ms - LOG_RETENTION_MS:
            self.commits.popleft()

    def maintain(self, now_ms: int) -> None:
        """One run of the jobs."""
        for step in segment_compaction.plan([self.state], now_ms):
            self._merge(step.inputs, now_ms)
        for tidy in housekeeping.plan([self.state], now_ms):
            if tidy.clean:
                self.clean(now_ms)
                while self.ledgers and self.ledgers[0][0] < now_ms - REPLACED_FILE_RETENTION_MS:
                    self.ledgers.popleft()
                self.ledgers.append((now_ms, self.unmarked))
                self.unmarked, self.state = 0, replace(self.state, tidied_ms=now_ms)

    def _merge(self, inputs: Sequence[Segment], now_ms: int) -> None:
        raw = sum(item.raw_bytes for item in inputs)
        made = changed(
            inputs[-1],
            base_offset=inputs[0].base_offset,
            records=sum(item.records for item in inputs),
            raw_bytes=raw,
            size=raw + _FILE_BYTES,
        )
        snapshot = self.state.snapshot
        at = snapshot.segments.index(inputs[0])
        left = (*snapshot.segments[:at], made, *snapshot.segments[at + len(inputs) :])
        gone = [
            changed(item.remove(now_ms, data_change=False), path=f"{now_ms}-{item.path}") for item in inputs
        ]
        removed = replace(snapshot, segments=left, tombstones=snapshot.tombstones.after(gone))
        self._become(removed.pruned(now_ms, producer_expiration_ms=_HOUR_MS))
        self.unmarked += len(inputs)
        self.commits.append(now_ms)


def _segment(offset: int, at_ms: int) -> Segment:
    text = timestamp_text(at_ms * 1_000)
    return Segment(
        path=f"{offset:020}-0.parquet",
        size=_RAW_BYTES + _FILE_BYTES,
        base_offset=offset,
        last_offset=offset,
        records=1,
        min_timestamp=text,
        max_timestamp=text,
        modification_time=at_ms,
        nulls=(0, 0, 0),
        raw_bytes=_RAW_BYTES,
    )


def day(_seconds: int) -> Figures:
    """20 commits/s for 24 hours, all jobs every 5 minutes; the most of each hour: stderr."""
    print(
        "\n| hour | live segments | replaced segments | commits | checkpoints | all |\n"
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
        file=sys.stderr,
    )
    partition, most = _Partition(), 0
    for hour in range(HOURS):
        seen = []
        for now_ms in range(hour * _HOUR_MS + ROUND_MS, (hour + 1) * _HOUR_MS + 1, ROUND_MS):
            partition.append(now_ms)
            seen.append(partition.files())
            partition.maintain(now_ms)
        all_of_it = max(sum(files) for files in seen)
        most = max(most, all_of_it)
        counts = (hour + 1, *map(max, zip(*seen, strict=True)), all_of_it)
        print(f"| {' | '.join(f'{n:,}' for n in counts)} |", file=sys.stderr, flush=True)
    return {"files, most": most}
