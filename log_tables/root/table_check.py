"""Check one table of a root: its log, its segments, and that it has all offsets."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from log_tables.columns.declaration import Declaration
from log_tables.errors import LakelogError
from log_tables.layout import log_directory, segment_base_offset
from log_tables.root.column_replay import ValueSchemas
from log_tables.root.log_replay import replay
from log_tables.root.segment_replay import check_segment
from log_tables.store.store import Store
from log_tables.table.invariant import broken_state, gaps
from log_tables.table.snapshot import Segment, Snapshot


@dataclass(slots=True)
class PartitionReport:
    """The result for one table. `unreferenced` counts segment files that are not part of its newest version:
    they are harmless, and a vacuum deletes them.
    """

    directory: str
    version: int = -1
    segments: int = 0
    records: int = 0
    log_start: int = 0
    high_watermark: int = 0
    leader_epoch: int = 0
    unreferenced: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """The result for a root, which is sound when `problems` is empty.

    `doubts` are about what may be right, or wrong. `deep` says whether declared columns are derived again, by
    `schemas` of the topics whose partitions are at some directories.
    """

    partitions: list[PartitionReport] = field(default_factory=list)
    root_problems: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    deep: bool = False
    schemas: Mapping[str, ValueSchemas] = field(default_factory=dict, repr=False)

    @property
    def problems(self) -> list[str]:
        """Every problem, with the table that has it."""
        return self.root_problems + [f"{p.directory}: {text}" for p in self.partitions for text in p.problems]

    def as_dict(self) -> dict[str, object]:
        return {
            "sound": not self.problems,
            "problems": self.problems,
            "doubts": self.doubts,
            "partitions": [asdict(partition) for partition in self.partitions],
        }


def check_partition(store: Store, directory: str, deep: bool = False) -> PartitionReport:
    """Check the table at `directory`, without its remote table; `deep` as in `check`."""
    report = Report(deep=deep)
    checked(store, directory, report)
    return report.partitions[0]


def checked(store: Store, directory: str, report: Report) -> Snapshot | None:
    """Check the table at `directory`, and that it has all offsets from its border on; None if it is
    unreadable.
    """
    found = PartitionReport(directory)
    report.partitions.append(found)
    snapshot = _check_table(store, directory, found, report)
    if snapshot is not None:
        begin = max(snapshot.whole_from, snapshot.tiered)
        found.problems += gaps(snapshot, begin, snapshot.high_watermark)
    return snapshot


def _check_table(store: Store, directory: str, report: PartitionReport, of: Report) -> Snapshot | None:
    try:
        found = replay(store, directory)
    except LakelogError as error:
        report.problems.append(str(error))
        return None
    if found is None:
        report.problems.append(
            "there is no table, though the metadata log names it; restore it from a backup"
        )
        return None
    snapshot = found.snapshot
    report.problems += found.problems
    report.version, report.segments = snapshot.version, len(snapshot.segments)
    report.log_start, report.high_watermark = snapshot.log_start, snapshot.high_watermark
    report.leader_epoch = snapshot.leader_epoch
    report.problems += broken_state(snapshot)
    problems, declared = {}, declared_columns(snapshot) if of.deep else None
    schemas = of.schemas.get(directory, ValueSchemas())
    for segment in snapshot.segments:
        report.records += segment.records
        problems[segment] = [*check_segment(store, directory, segment, declared, schemas)]
    report.problems += _lasting(store, directory, problems)
    live = {segment.path for segment in snapshot.segments}
    report.unreferenced = sum(
        segment_base_offset(item.path) is not None and item.path.rsplit("/", 1)[-1] not in live
        for item in store.list(f"{directory}/")
    )
    return snapshot


def declared_columns(snapshot: Snapshot) -> Declaration | None:
    """The columns of a table; None where its schema cannot be read, which the check of its log says."""
    try:
        return snapshot.declared
    except (KeyError, TypeError, ValueError):
        return None


def _lasting(store: Store, directory: str, problems: Mapping[Segment, Sequence[str]]) -> Iterator[str]:
    """The problems of segments that are still in the table: it may be in use, and the check take hours."""
    if any(problems.values()):
        now = replay(store, directory, deep=False)
        live = set() if now is None else {segment.path for segment in now.snapshot.segments}
        for segment, said in problems.items():
            yield from said if segment.path in live else ()


def check_remote(store: Store, directory: str, here: Snapshot, cluster_id: str, report: Report) -> None:
    """Check the remote table of a partition, and that it has all offsets up to the local one."""
    needed = here.tiered > here.log_start
    if not needed and not any(True for _ in store.list(log_directory(directory) + "/")):
        return
    found = PartitionReport(f"{directory} (remote)")
    report.partitions.append(found)
    there = _check_table(store, directory, found, report)
    if there is None:
        return
    if there.cluster != cluster_id:
        found.problems.append(
            f"it is of cluster {there.cluster}, not of {cluster_id}; set another remote root"
        )
    if needed:
        # Offsets that retention has removed since `here` was read are not missing.
        found.problems += gaps(there, max(here.whole_from, there.log_start), here.tiered)
