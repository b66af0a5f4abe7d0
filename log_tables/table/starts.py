"""Where one can begin to read the log of a table: at version 0, and at the checkpoints that are there."""

from collections.abc import Callable, Iterable

from log_tables.errors import ObjectMissing
from log_tables.layout import checkpoint_path, checkpoint_version, commit_version, log_directory
from log_tables.store.store import Store
from log_tables.table.checkpoint import decode
from log_tables.table.commit import Commit, read_commit
from log_tables.table.snapshot import Snapshot, check_supported, first_snapshot, from_checkpoint

Start = tuple[Snapshot, int]
"""The table at a version, and the time of its commit, milliseconds since 1970."""


class Starts:
    """The starts of the log of the table at `directory`. All raise StoreUnavailable, Damaged."""

    def __init__(self, store: Store, directory: str) -> None:
        self._store, self._directory = store, directory
        versions = set[int]()
        for item in store.list(f"{log_directory(directory)}/"):
            version = checkpoint_version(item.path)
            if version is None and commit_version(item.path) == 0:
                version = 0
            if version is not None:
                versions.add(version)
        self._versions = sorted(versions)

    def __bool__(self) -> bool:
        return bool(self._versions)

    def oldest(self) -> Start | None:
        """The first one; None when all have just been removed."""
        return self._first(self._versions, lambda *_: True)

    def newest(self, wanted: Callable[[int, int], bool]) -> Start | None:
        """The last one that is `wanted`, by its version and the time of its commit; None if none is."""
        return self._first(reversed(self._versions), wanted)

    def _first(self, versions: Iterable[int], wanted: Callable[[int, int], bool]) -> Start | None:
        for version in versions:
            commit = read_commit(self._store, self._directory, version)
            if commit is not None and wanted(version, commit.info.timestamp):
                found = self._at(version, commit)
                if found is not None:
                    return found, commit.info.timestamp
        return None

    def _at(self, version: int, commit: Commit) -> Snapshot | None:
        """The snapshot at a start, of which there is the commit; None if its checkpoint is gone."""
        if version == 0:
            return first_snapshot(commit, self._directory)
        try:
            data = self._store.get(checkpoint_path(self._directory, version))
        except ObjectMissing:
            return None
        snapshot = from_checkpoint(decode(data, version, self._directory))
        check_supported(self._directory, snapshot)
        return snapshot
