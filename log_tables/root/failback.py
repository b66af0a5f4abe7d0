"""The way back: an old root becomes a standby of the one that was promoted in its place.

Up to a version both have the same commits of a table. What only the old root has after it was acknowledged
there and never came over; it is taken off, and the files that both have are not copied again. Audit events
that wait in the old root go over to the new one, whose gateways append them.
"""

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from log_tables.clock import Clock
from log_tables.cluster.admin.audit_spill import spilled
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import BrokerLeft, BrokerRecord
from log_tables.cluster.metadata_log import decode as decode_record
from log_tables.cluster.standby import StandbyMark, check_served, put_mark, read_mark, read_promoted
from log_tables.counts import counted
from log_tables.errors import Conflict, InvalidArgument, ObjectMissing
from log_tables.layout import (
    HOME,
    HOME_ANCHOR,
    METADATA_DIRECTORY,
    TOPICS,
    TXN_HIGH_WATERMARK,
    checkpoint_version,
    commit_path,
    commit_version,
    last_checkpoint_path,
    log_directory,
)
from log_tables.limits import TABLES_AT_ONCE
from log_tables.record import to_records
from log_tables.root.listed_brokers import find_living
from log_tables.segments import segment as segments
from log_tables.store.store import Store, overlap
from log_tables.table.checkpoint import hinted_version
from log_tables.table.commit import decode, read_data
from log_tables.table.snapshot import segment_of

_TABLE = re.compile(rf"{TOPICS}/(?P<name>[a-zA-Z0-9._-]+)(~(?P<number>\d+))?(/|$)")

SHOWN = 5
"""How many tables an error names."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A table that the old root has gone on with alone: it shares commits up to `version`, or none if that is
    negative. `start` and `end` are the offsets of the records that only the old root has, if it has any.
    """

    directory: str
    version: int
    newest: int
    start: int = 0
    end: int = 0

    @property
    def records(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        if not self.records:
            return f"{self.directory}: {counted(self.newest - self.version, 'commit')} without records"
        return f"{self.directory}: offsets {self.start} to {self.end - 1}"


def fail_back(
    old: Store, new: Store, clock: Clock, wait_s: float, discard: bool = False, dry_run: bool = False
) -> list[Branch]:
    """Make `old` a standby of `new`, whose replication goes on from where both are alike; returns what only
    `old` had. With `dry_run` nothing is changed.

    Gateways on the list of `old` have `wait_s` seconds to show that they live. It may be called again after
    it was interrupted. Raises Conflict when one does; when only `old` has some records, unless `discard`; and
    always when `new` was not promoted in the place of `old`. Raises InvalidArgument, Damaged, CorruptLog,
    StoreUnavailable.
    """
    if overlap(old.url, new.url):
        raise InvalidArgument("a root cannot follow itself; name another directory or URL")
    check_served(new)
    kept = Cluster.open(new, clock, create=False)
    cluster_id = kept.cluster_id
    mark = StandbyMark(new.url, cluster_id)
    begun = read_mark(old)
    if begun is None:
        _check_promoted(Cluster.open(old, clock, create=False), kept)
        _check_silent(old, clock, wait_s)
    elif (begun.cluster_id, begun.is_promoted) != (cluster_id, False):
        raise Conflict(f"{old.url} is a standby of {begun.source} already; replicate to it from there")
    with ThreadPoolExecutor(TABLES_AT_ONCE, thread_name_prefix="failback") as pool:
        branches = [
            each for each in pool.map(lambda at: _branch(old, new, kept, at), [*_tables(old)]) if each
        ]
        lost = [each for each in branches if each.records]
        if dry_run:
            return branches
        if lost and not discard:
            raise Conflict(_lost(lost))
        for item in spilled(old):  # the new gateways append them, each once by its stamp
            with suppress(ObjectMissing):
                new.put(item.path, old.get(item.path))
        put_mark(old, mark)  # from here on no gateway serves it
        for path in (HOME, HOME_ANCHOR):
            old.delete(path)
        # The metadata log last: until it is cut, the tables that it names are there.
        branches.sort(key=lambda each: each.directory == METADATA_DIRECTORY)
        for _ in pool.map(lambda branch: _cut(old, branch), branches):
            pass
    return branches


def _check_promoted(old: Cluster, new: Cluster) -> None:
    """Raise Conflict unless `new` was promoted in the place of `old`."""
    if old.cluster_id not in read_promoted(new.store):
        raise Conflict(
            f"{new.url} (cluster {new.cluster_id}) was not promoted in the place of {old.url} (cluster "
            f"{old.cluster_id}), which stays as it is; name the root that was promoted with --data, or run "
            "`lakelog replicate` to an empty directory"
        )


def _check_silent(old: Store, clock: Clock, wait_s: float) -> None:
    living = find_living(Cluster.open(old, clock, create=False), wait_s)
    if living is not None:
        raise Conflict(f"broker {living.id} at {living.url} serves the old root; stop it first")


def _lost(lost: Sequence[Branch]) -> str:
    more = f"; and {counted(len(lost) - SHOWN, 'more table')}" if len(lost) > SHOWN else ""
    return (
        f"{counted(sum(each.records for each in lost), 'record')} are only in the old root: "
        f"{'; '.join(map(str, lost[:SHOWN]))}{more}; read them there with `lakelog sql --data OLD` if you "
        "need them, then run the command again with --discard"
    )


def _tables(store: Store) -> Iterator[str]:
    """Every table below `topics/`: those of topics, and of their partitions."""
    for topic in store.list_dirs(f"{TOPICS}/"):
        for directory in (topic, *store.list_dirs(topic)):
            name = directory.rstrip("/")
            if not name.endswith(("/_delta_log", "/_vacuum")) and _versions(store, name):
                yield name


def _versions(store: Store, directory: str) -> list[int]:
    """The versions whose commits the log of a table has, in order."""
    found = (commit_version(item.path) for item in store.list(f"{log_directory(directory)}/"))
    return sorted(version for version in found if version is not None)


def _branch(old: Store, new: Store, kept: Cluster, directory: str) -> Branch | None:
    """How a table of the old root went on alone; None if it did not."""
    here = _versions(old, directory)
    there = {*_versions(new, directory)}
    both = [version for version in here if version in there]
    low, high = 0, len(both)
    while low < high:  # they are alike up to a version
        middle = (low + high) // 2
        if read_data(old, directory, both[middle]) == read_data(new, directory, both[middle]):
            low = middle + 1
        else:
            high = middle
    version = both[low - 1] if low else -1
    if version == here[-1]:
        return None
    if directory == METADATA_DIRECTORY and not _has_changes(old, version, here):
        return Branch(directory, version, here[-1])
    ends = {at: _end(old, directory, at) for at in here if at >= version}
    known = [end for end in ends.values() if end is not None]
    if not known or (not there and _is_deleted(kept, directory)):
        return Branch(directory, version, here[-1])
    if version < 0:  # nothing says that the new root has a part of it
        return Branch(directory, version, here[-1], 0 if here[0] == 0 else known[0], known[-1])
    first = ends.get(version)
    return Branch(directory, version, here[-1], known[0] if first is None else first, known[-1])


def _has_changes(old: Store, version: int, here: Sequence[int]) -> bool:
    """Whether the metadata log after `version` changes more than the list of gateways."""
    for at in here:
        data = read_data(old, METADATA_DIRECTORY, at) if at > version else None
        commit = None if data is None else decode(data, commit_path(METADATA_DIRECTORY, at))
        if commit is None or all(txn.app_id != TXN_HIGH_WATERMARK for txn in commit.txns):
            continue  # it appends nothing
        for segment in map(segment_of, commit.adds):
            try:
                file = old.get(f"{METADATA_DIRECTORY}/{segment.path}")
            except ObjectMissing:
                return True  # it was merged since: nobody knows
            for batch in segments.read_bytes(file, METADATA_DIRECTORY, segment):
                records = map(decode_record, to_records(batch))
                if not all(isinstance(record, BrokerRecord | BrokerLeft) for record in records):
                    return True
    return False


def _is_deleted(new: Cluster, directory: str) -> bool:
    """Whether a table that `new` lacks was of a topic that was deleted there, not of the old root alone."""
    found = _TABLE.match(directory)
    record = None if found is None else new.metadata_log.topic(found["name"])
    if found is None or record is None:
        return False
    number = int(found["number"] or 1)
    return number < record.incarnation or (number == record.incarnation and not record.live)


def _end(store: Store, directory: str, version: int) -> int | None:
    """The high watermark that a commit sets."""
    data = read_data(store, directory, version)
    txns = () if data is None else decode(data, commit_path(directory, version)).txns
    return next((txn.version for txn in txns if txn.app_id == TXN_HIGH_WATERMARK), None)


def _cut(old: Store, branch: Branch) -> None:
    """Take off what only the old root has, the newest first: a reader ends where the log does."""
    paths, whole = list[tuple[int, str]](), False
    for item in old.list(f"{log_directory(branch.directory)}/"):
        checkpoint, commit = checkpoint_version(item.path), commit_version(item.path)
        version = commit if checkpoint is None else checkpoint
        if version is not None and version > branch.version:
            paths.append((version, item.path))
        elif version == 0 or checkpoint is not None:
            whole = True
    hinted = hinted_version(old, branch.directory)
    if hinted is not None and hinted > branch.version:
        with suppress(ObjectMissing):
            old.delete(last_checkpoint_path(branch.directory))
    for _, path in sorted(paths, reverse=True):
        old.delete(path)
    if not whole:  # nothing is left from which the log could be read
        for item in [*old.list(f"{log_directory(branch.directory)}/")]:
            old.delete(item.path)
