"""The reports of the processes of a mirror (process_report.py)."""

from collections.abc import Sequence

import msgspec


class SourcePartition(msgspec.Struct, frozen=True, array_like=True):
    """A partition that a process copies, at the last look: the source's first offset, and the one behind its
    last stable record; and for how many seconds the copy has lacked records of the source.
    """

    partition: int
    start: int
    end: int
    behind_s: float = 0.0


class MirrorReport(msgspec.Struct, frozen=True):
    """A process of a mirror at its last look.

    `number` grows with each report. `host` and `pid` are where the process is. `topics` has the partitions
    that it copies. `trouble` says why nothing is copied now; empty while it is. `offsets_behind` is how many
    committed offsets of groups are not here yet as they are at the source.
    """

    process: str
    number: int
    host: str = ""
    pid: int = 0
    topics: dict[str, Sequence[SourcePartition]] = {}
    trouble: str = ""
    offsets_behind: int = 0
