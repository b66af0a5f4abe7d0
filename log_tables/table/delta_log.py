"""The log of a Delta table: opened, followed, committed to, checkpointed, cleaned (docs/FORMAT.md).

A subclass says what its actions mean: `Table` is the log of a partition, `TopicTable` that of a whole topic.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, Self, TypeVar

from log_tables.clock import Clock
from log_tables.errors import (
    CorruptLog,
    ForeignCommit,
    ObjectMissing,
    OutcomeUnknown,
    StoreUnavailable,
    TopicDeleted,
)
from log_tables.layout import checkpoint_version, commit_version, log_directory
from log_tables.limits import (
    CHECKPOINT_INTERVAL_COMMITS,
    CONFIRMATION_MAX_AGE_S,
    LOG_RETENTION_MS,
    TOMBSTONE_RETENTION_MS,
)
from log_tables.store.store import PutIfAbsent, Store
from log_tables.table.checkpoint import (
    Checkpoint,
    hinted_version,
    newest_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from log_tables.table.commit import (
    ENGINE,
    Commit,
    CommitInfo,
    encode,
    make_table_durable,
    put_commit,
    read_commit,
    read_engine,
)
from log_tables.table.invariant import Violation, check_harmless, is_our_engine, is_ours
from log_tables.table.shared_read import SharedRead


def new_table_id(clock: Clock) -> str:
    """An id that no table has, as Delta writes it."""
    made = clock.unique_id()
    return "-".join((made[:8], made[8:12], made[12:16], made[16:20], made[20:]))


def commit_info(
    clock: Clock, operation: str, leader_epoch: int | None = None, leader_url: str | None = None
) -> CommitInfo:
    """The `commitInfo` of a commit of ours, with a fresh `batchId`."""
    return CommitInfo(
        timestamp=clock.now_ms(),
        operation=operation,
        engineInfo=ENGINE,
        batchId=clock.unique_id(),
        leaderEpoch=leader_epoch,
        leaderUrl=leader_url,
    )


def topic_deleted(directory: str) -> TopicDeleted:
    """The error of an operation on the table at `directory` when its topic was deleted."""
    return TopicDeleted(
        f"the topic of {directory} was deleted, and may have been re-created; list the topics, and "
        "repeat the request"
    )


class State(Protocol):
    """A table at a version: a value, of which `apply` gives the next one."""

    @property
    def version(self) -> int: ...

    @property
    def deleted(self) -> bool:
        """Whether the topic was deleted: then nothing is committed here until it is brought back."""
        ...

    def holds(self, path: str) -> bool:
        """Whether the file `path` is part of the table, or recently was."""
        ...

    def apply(self, commit: Commit) -> Self: ...

    def pruned(self, now_ms: int, producer_expiration_ms: int) -> Self:
        """This state without old tombstones and idle producers."""
        ...

    def checkpoint(self) -> Checkpoint: ...


S = TypeVar("S", bound=State)


class DeltaLog(ABC, Generic[S]):
    """The log of one Delta table, followed commit by commit. Thread-safe; blocking.

    Every method raises ForeignCommit when it reads a commit of another tool. `refresh` and `transact` raise
    TopicDeleted once the log says that the topic was deleted, and CorruptLog when the table is gone: it is
    damaged, or was swept after that.
    """

    remedy = "run `lakelog fsck`"
    """The advice when a commit would break an invariant."""

    def __init__(self, store: Store, directory: str, clock: Clock) -> None:
        """Open the table at `directory`. Raises ObjectMissing when there is none."""
        self.store, self.directory, self.clock = store, directory, clock
        self._lock = threading.RLock()
        self._committing = False
        self._batch_in_flight = ""
        self._refreshes, self._newest_checks = SharedRead(), SharedRead()
        self._confirmed = clock.boottime()
        self._checkpointed = 0
        self._cleaned: tuple[int, int] | None = None
        self._durable: S | None = None
        self._snapshot: S = self._reopened()

    @abstractmethod
    def _first(self, commit: Commit) -> S:
        """The state of version 0. Raises CorruptLog."""

    @abstractmethod
    def _from_checkpoint(self, checkpoint: Checkpoint) -> S:
        """The state that a checkpoint holds. Raises CorruptLog."""

    @abstractmethod
    def _check_supported(self, state: S) -> None:
        """Raise UnsupportedTable when the table needs a feature that this program does not have."""

    @abstractmethod
    def _classify(self, before: S, commit: Commit) -> tuple[S, bool]:
        """The state after `commit` of another process, and whether that may spoil a commit that was checked
        against `before` and is put after it. Raises ForeignCommit when it may not follow `before`.
        """

    @abstractmethod
    def _broken(self, before: S, commit: Commit, after: S) -> Violation:
        """The first invariant that our own `commit` would violate."""

    @property
    def snapshot(self) -> S:
        """The table as last refreshed; does not ask the store."""
        return self._snapshot

    @property
    def durable(self) -> S | None:
        """The newest snapshot that is known to be durable, as of the last commit or `make_durable`."""
        return self._durable

    @property
    def confirmed(self) -> float:
        """When (`Clock.boottime`) the snapshot was last known to be the newest version."""
        return self._confirmed

    @property
    def checkpointed(self) -> int:
        """The version of the newest known checkpoint."""
        return self._checkpointed

    def refresh(self, wait: bool = False) -> S:
        """Read the commits since the snapshot. A commit of this process that is in flight is waited for with
        `wait`, or when another process has committed since: otherwise the snapshot holds all that is
        answered.

        Concurrent callers share one read, which begins after each of them has asked. With `wait`, a log that
        a wrong clock has let be deleted too early is noticed as well.
        """
        came = self._refreshes.begun
        if not self._lock.acquire(blocking=wait or not self._committing):
            if self._newest_checks.share(self._is_newest):
                return self._live()
            self._lock.acquire()
        try:
            if wait or not self._refreshes.is_since(came):
                self._refreshes.read(self._look)
            if wait and not self._has_commit(self._snapshot.version):
                self._reopen()
        finally:
            self._lock.release()
        return self._live()

    def _live(self) -> S:
        """The snapshot. Raises TopicDeleted when it says so."""
        snapshot = self._snapshot
        if snapshot.deleted:
            raise topic_deleted(self.directory)
        return snapshot

    def _is_newest(self) -> bool:
        """Whether no other process has committed since the snapshot. A small get.

        Our commit in flight may be visible before its put is answered, and another may follow it.
        """
        version, ours = self._snapshot.version, self._batch_in_flight
        if self._is_stale():
            return False  # a missing commit may have been deleted
        found = read_commit(self.store, self.directory, version + 1)
        if found is None:
            return True
        return found.info.batchId == ours and read_commit(self.store, self.directory, version + 2) is None

    def transact(
        self,
        build: Callable[[S], Commit | None],
        put: PutIfAbsent | None = None,
        ended: bool = False,
    ) -> Commit | None:
        """Commit what `build` makes of the newest snapshot; repeated with the next one when another was
        first.

        `put` puts the commit instead of the store's `put_if_absent`; with `ended` also after the topic was
        deleted. The snapshot that `build` gets is durable. It returns None, or raises, to give up without
        harm. A commit that waits for a busy leader is offered to it (`_waiting`). Returns the commit that was
        made: the last one that was built, or an earlier one that the leader has put. Raises OutcomeUnknown,
        ForeignCommit, TopicDeleted; StoreUnavailable, or CorruptLog when the commit would break an invariant:
        then nothing is written.
        """
        with self._lock, self._commit_in_flight(), self._waiting() as lost:
            checked: Commit | None = None
            known, offered = self._snapshot.version, False
            while True:
                moved, ours = self._caught_up(known, offered)
                if ours is not None:
                    return ours
                checked = None if moved else checked
                self.make_durable()
                commit = build(self._snapshot if ended else self._live())
                if commit is None:
                    return None
                self._batch_in_flight = commit.info.batchId
                # Its check and its bytes are made once: they may take longer than a busy leader lets pass.
                if commit is not checked:
                    after, data = self._checked(commit), encode(commit)
                version, asked = self._snapshot.version + 1, self.clock.boottime()
                other = put_commit(self.store, self.directory, version, commit, self.clock, put, data)
                if other is not None:
                    ours, spoiled = self._follow(other)
                    if ours is not None:
                        return ours
                    checked = None if spoiled else commit
                    known = self._snapshot.version
                    offered = lost(commit)
                elif self._is_stale():
                    # The answer took so long that the log after the version may have been deleted since.
                    self._reopen_after_put()
                    if self._counted(commit, asked):
                        return commit
                else:
                    if after.version != version:
                        after = self._snapshot.apply(commit)
                    self._snapshot, self._confirmed = after, asked
                    self._note_durable()
                    return commit

    @contextmanager
    def _waiting(self) -> Iterator[Callable[[Commit], bool]]:
        """Gives what `transact` calls after each lost race, with its commit. That returns whether the leader
        may put it now, too.
        """
        yield lambda _commit: False

    def _pause(self, seconds: float) -> None:
        """Pause in `transact`, and let other threads use the table meanwhile."""
        batch = self._batch_in_flight
        self._lock.release()
        try:
            self.clock.pause(seconds)
        finally:
            self._lock.acquire()
            self._batch_in_flight, self._committing = batch, True

    def _caught_up(self, known: int, offered: bool) -> tuple[bool, Commit | None]:
        """Whether the snapshot is not that of version `known` any more, because it was opened again, or other
        threads have read on in a pause; and the commit of ours in between, if it was `offered` and put.

        Raises OutcomeUnknown where a commit in between was deleted since.
        """
        if self._is_stale():
            self._reopen()
        for version in range(known + 1, self._snapshot.version + 1) if offered else ():
            commit = read_commit(self.store, self.directory, version)
            if commit is None:
                raise OutcomeUnknown(
                    f"a commit was offered to the leader of {self.directory}, and version {version} of the "
                    "log, which may be it, was deleted since; look before you repeat it"
                )
            if commit.info.batchId == self._batch_in_flight:
                self.make_durable()
                return True, commit
        return self._snapshot.version != known, None

    def make_durable(self) -> None:
        """Make the snapshot durable, before any answer or action relies on it.

        On a disk, a visible commit of another process may not survive a power cut: that process may have died
        before the fsync. Costs nothing if there are no commits since the last call, and nothing on an object
        store. Raises StoreUnavailable.
        """
        with self._lock:
            if self._durable is None or self._durable.version < self._snapshot.version:
                make_table_durable(self.store, self.directory)
                self._note_durable()

    def _note_durable(self) -> None:
        """Note that the snapshot is durable."""
        self._durable = self._snapshot

    @contextmanager
    def _commit_in_flight(self) -> Iterator[None]:
        self._committing = True
        try:
            yield
        finally:
            self._committing = False

    def prune(self, producer_expiration_ms: int) -> None:
        """Forget idle producers and old tombstones, for a process that only follows and writes no
        checkpoint.
        """
        with self._lock:
            self._snapshot = self._snapshot.pruned(self.clock.now_ms(), producer_expiration_ms)

    def find_checkpoint(self) -> int:
        """The version of the newest checkpoint, also if another process wrote it since."""
        with self._lock:
            found = hinted_version(self.store, self.directory)
            if found is not None and found <= self._snapshot.version:
                self._checkpointed = max(self._checkpointed, found)
            return self._checkpointed

    def checkpoint_due(self, interval_commits: int = CHECKPOINT_INTERVAL_COMMITS) -> bool:
        """Whether so many commits, or more, came after the newest known checkpoint."""
        return self._snapshot.version - self._checkpointed >= interval_commits

    def checkpoint(self, producer_expiration_ms: int) -> None:
        """Write a checkpoint of the snapshot, without idle producers and old tombstones."""
        now_ms = self.clock.now_ms()
        snapshot = self._snapshot.pruned(now_ms, producer_expiration_ms)
        write_checkpoint(self.store, self.directory, snapshot.checkpoint())
        with self._lock:
            self._checkpointed = max(self._checkpointed, snapshot.version)
            self._snapshot = self._snapshot.pruned(now_ms, producer_expiration_ms)

    def delete_expired_log(self, dry_run: bool = False, retention_ms: int = LOG_RETENTION_MS) -> int:
        """Delete all before the newest checkpoint of an old version; returns how many files.

        With `dry_run` none is deleted. A file younger than `retention_ms` by the store's clock stays: a
        leader that slept relies on reading the claim that fenced it (docs/FORMAT.md, "Log cleanup"). So do
        all files after it, and the oldest goes first: a process that finds a version finds those after it,
        too. Several processes may do this at once, and be killed in it.
        """
        retention_ms = max(retention_ms, LOG_RETENTION_MS)
        known = self._snapshot.version, self._checkpointed
        paths, is_old = self._cleanable(retention_ms)
        if dry_run:
            return len(paths)
        if paths:
            self._clean(paths)
        if is_old:
            self._cleaned = known
        return len(paths)

    @property
    def is_clean(self) -> bool:
        """Whether `delete_expired_log` has found only old files, and nothing was committed or checkpointed
        here since: it would delete nothing, unless another process has written a checkpoint.
        """
        return self._cleaned == (self._snapshot.version, self._checkpointed)

    def _clean(self, paths: Sequence[str]) -> None:
        log = log_directory(self.directory)
        # The checkpoint that replaces them may be another process's: a power cut must not take both.
        self.store.make_durable(log)
        for path in paths:
            self.store.delete(path)
            if checkpoint_version(path) is not None:
                # If a power cut brought it back, a reader could begin there, and end at the hole behind it.
                self.store.make_durable(log)

    def _cleanable(self, retention_ms: int) -> tuple[list[str], bool]:
        """The files of the log to delete, in this order; and whether all files are old."""
        files = list(self.store.list(log_directory(self.directory) + "/"))
        horizon = self.store.now_ms() - retention_ms
        young = (commit_version(file.path) for file in files if file.modified_ms >= horizon)
        # Each young version stays readable, from a checkpoint before it. A checkpoint beyond the snapshot may
        # be another tool's, and hide that tool's commit.
        end = min([self._snapshot.version + 1, *(v for v in young if v is not None)])
        checkpoints = (checkpoint_version(file.path) for file in files)
        newest = max((v for v in checkpoints if v is not None and v < end), default=0)
        paths = []
        for file in files:
            version = commit_version(file.path)
            if version is None:
                version = checkpoint_version(file.path)
            if version is None:
                continue
            if version >= newest or file.modified_ms >= horizon:
                break
            paths.append(file.path)
        return paths, all(file.modified_ms < horizon for file in files)

    def _is_stale(self) -> bool:
        return self.clock.boottime() - self._confirmed > CONFIRMATION_MAX_AGE_S

    def _reopen_after_put(self) -> None:
        try:
            self._reopen()
        except StoreUnavailable as error:
            raise OutcomeUnknown(
                f"a commit to {self.directory} was put, and the log cannot be read to see that it counts "
                f"({error.message}); repeat the request with an idempotent producer, else read first"
            ) from None

    def _counted(self, commit: Commit, asked: float) -> bool:
        """Whether `commit`, put at some time since `asked`, is in the log that has just been re-opened.

        A commit without new files never counts, and is built again. Raises OutcomeUnknown.
        """
        if any(self._snapshot.holds(add.path) for add in commit.adds):
            return True
        if not commit.adds or (self.clock.boottime() - asked) * 1000 < TOMBSTONE_RETENTION_MS:
            return False
        raise OutcomeUnknown(
            f"a commit to {self.directory} was put, and the answer took so long that its files may have been "
            "removed since; repeat the request with an idempotent producer, else read first"
        )

    def _reopen(self) -> None:
        try:
            self._snapshot = self._reopened()
        except ObjectMissing:
            raise CorruptLog(f"the table at {self.directory} is gone; restore it from a backup") from None

    def _reopened(self) -> S:
        """The newest snapshot, as if this process had never seen the table."""
        start = self._open()
        while True:
            snapshot, broken = self._tried(start)
            whole = self._has_commit(start.version)
            # Otherwise the log was deleted up to here or beyond, now or long ago (a slow writer's hint is
            # old): its apparent end may be a hole, or hold what a fenced leader has put there since. The
            # listing has the newest checkpoint.
            newest = start if whole and broken is None else self._open(hinted=False)
            if newest.version == start.version:
                break
            start = newest
        if broken is not None:
            raise broken
        if whole:
            self._check_end(snapshot.version)
        self._checkpointed, self._durable = start.version, None
        return snapshot

    def _open(self, hinted: bool = True) -> S:
        """The state of the newest checkpoint, or of version 0 where there is none. Raises ObjectMissing.

        The newest is the checkpoint that `_last_checkpoint` names, which may be out of date; or the newest
        that a listing shows, unless `hinted`.
        """
        store, table = self.store, self.directory
        checkpoint = read_checkpoint(store, table) if hinted else newest_checkpoint(store, table)
        if checkpoint is None:
            commit = read_commit(store, table, 0)
            if commit is not None:
                return self._first(commit)
            checkpoint = newest_checkpoint(store, table)  # the first one may be new, and version 0 deleted
        if checkpoint is None:
            raise ObjectMissing(f"there is no table at {table}")
        return self._from_checkpoint(checkpoint)

    def _tried(self, start: S) -> tuple[S, ForeignCommit | None]:
        """`start` with all commits after it, or why one of them is not ours."""
        try:
            return self._followed(start), None
        except ForeignCommit as error:
            return start, error

    def _check_end(self, version: int) -> None:
        """Raise CorruptLog when the commit after `version` is lost: a commit of ours must not replace it.

        Versions are put in order, so it exists if the one after it does.
        """
        lost = version + 1
        there = read_commit(self.store, self.directory, lost + 1) is not None
        if there and read_commit(self.store, self.directory, lost) is None:
            raise CorruptLog(
                f"version {lost} of {self.directory} is missing, though version {lost + 1} is there; "
                "restore the file"
            )

    def _has_commit(self, version: int) -> bool:
        """Whether the log still has the commit of `version`, of which there is a checkpoint.

        Raises ForeignCommit when that is another tool's, which then wrote the checkpoint too: a process that
        opens the table at the checkpoint would not read that commit otherwise.
        """
        engine = read_engine(self.store, self.directory, version)
        if engine is None or is_our_engine(engine):
            return engine is not None
        while (commit := read_commit(self.store, self.directory, version)) is not None and not is_ours(
            commit
        ):
            check_harmless(self.directory, version, commit)
            version -= 1
        return True

    def _followed(self, snapshot: S) -> S:
        """`snapshot` with all commits after it: the newest version as of `_confirmed`."""
        self._check_supported(snapshot)
        asked = self.clock.boottime()
        while (commit := self._next(snapshot)) is not None:
            snapshot, _ = self._classify(snapshot, commit)
            asked = self.clock.boottime()
        self._confirmed = asked
        return snapshot

    def _next(self, snapshot: S) -> Commit | None:
        return read_commit(self.store, self.directory, snapshot.version + 1)

    def _look(self) -> None:
        if self._is_stale():
            return self._reopen()
        asked = self.clock.boottime()
        while (commit := self._next(self._snapshot)) is not None:
            self._snapshot, _ = self._classify(self._snapshot, commit)
            asked = self.clock.boottime()
        self._confirmed = asked
        return None

    def _follow(self, commit: Commit) -> tuple[Commit | None, bool]:
        """Follow the next `commit` and all after it. Returns the one of them that is ours, put by another
        process and durable then, and whether a commit that was checked before has to be checked again.
        """
        ours, spoiled = None, False
        following: Commit | None = commit
        while following is not None:
            asked = self.clock.boottime()
            self._snapshot, spoils = self._classify(self._snapshot, following)
            spoiled = spoiled or spoils
            ours = following if following.info.batchId == self._batch_in_flight else ours
            following = self._next(self._snapshot)
            self._confirmed = asked
        if ours is not None:
            self.make_durable()
        return ours, spoiled

    def _checked(self, commit: Commit) -> S:
        """The snapshot after `commit`. Raises CorruptLog if that would break an invariant."""
        after = self._snapshot.apply(commit)
        broken = self._broken(self._snapshot, commit, after)
        if broken is not None:
            raise CorruptLog(f"refused to commit to {self.directory}: {broken}; {self.remedy}")
        return after
