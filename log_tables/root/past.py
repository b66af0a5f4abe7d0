"""A table as it was: its versions that are still there, by the times of their commits.

The time of a commit is in it, by the clock of the process that made it. Commits stay for an hour at least,
and so do files that others have replaced; files of deleted records stay for a day, quiet tables keep all.
"""

from collections.abc import Callable
from dataclasses import dataclass

from log_tables.errors import InvalidArgument, ObjectMissing
from log_tables.record import timestamp_text
from log_tables.store.store import Store
from log_tables.table.commit import Commit, read_commit
from log_tables.table.invariant import followed
from log_tables.table.snapshot import Snapshot
from log_tables.table.starts import Start, Starts


@dataclass(frozen=True, slots=True)
class Past:
    """A table as it was, and when its newest commit was made (milliseconds since 1970). It is `early` where
    it ends before a commit of that time.
    """

    snapshot: Snapshot
    newest_ms: int
    early: bool = False


class TablePast:
    """The versions of the table at `directory` that are there. Raises StoreUnavailable, Damaged anywhere."""

    def __init__(self, source: Store, directory: str) -> None:
        """Raises ObjectMissing when there is no table."""
        self._source, self.directory = source, directory
        self._starts = Starts(source, directory)
        if not self._starts:
            raise ObjectMissing(f"there is no table at {directory}")

    def at(
        self,
        time_ms: int,
        is_end: Callable[[Commit], bool] = lambda _: False,
        seen: Callable[[Snapshot, int], object] = lambda *_: None,
    ) -> Past:
        """The table at `time_ms`: up to the first commit of a later time, or for which `is_end` holds.

        `seen` is called with the snapshot that it begins at, and with each that follows, and the time of its
        commit. Raises InvalidArgument when its log does not reach back so far.
        """
        begun = self._starts.newest(lambda _, at_ms: at_ms <= time_ms)
        if begun is None:
            raise InvalidArgument(
                f"{self.directory} cannot be had as of {_text(time_ms)}: its log reaches back to "
                f"{_text(self._oldest())}; name a later time, `lakelog root history` has that of each topic"
            )
        snapshot, newest_ms = begun
        seen(snapshot, newest_ms)
        while (commit := read_commit(self._source, self.directory, snapshot.version + 1)) is not None:
            if commit.info.timestamp > time_ms:
                break
            if is_end(commit):
                return Past(snapshot, newest_ms, early=True)
            snapshot, _ = followed(self.directory, snapshot, commit)
            newest_ms = max(newest_ms, commit.info.timestamp)
            seen(snapshot, newest_ms)
        return Past(snapshot, newest_ms)

    def reach(self) -> int:
        """The time since which every version has all its files, in milliseconds since 1970.

        Reads the whole log that is there.
        """
        prefix = f"{self.directory}/"
        there = {item.path.removeprefix(prefix) for item in self._source.list(prefix)}
        snapshot, since_ms = self._first()
        missing = {item.path for item in snapshot.segments} - there
        version = snapshot.version + 1
        while (commit := read_commit(self._source, self.directory, version)) is not None:
            had = bool(missing)
            missing -= {each.path for each in commit.removes}
            missing |= {each.path for each in commit.adds} - there
            if had and not missing:
                since_ms = commit.info.timestamp
            version += 1
        if missing:
            raise InvalidArgument(f"{self.directory} lacks {min(missing)}; run `lakelog fsck`")
        return since_ms

    def _first(self) -> Start:
        """The oldest start. Raises ObjectMissing when the table has just been removed."""
        found = self._starts.oldest()
        if found is None:
            raise ObjectMissing(f"there is no table at {self.directory}")
        return found

    def _oldest(self) -> int:
        return self._first()[1]


def _text(time_ms: int) -> str:
    return timestamp_text(time_ms * 1_000)
