"""A commit that waits for a busy leader, offered to it as an object next to the log.

A leader may commit faster than another process can read the log, decide, and put. That process then writes
what it would commit to `TABLE/_offer.json`, and the leader, which looks for it between two appends, commits
it: no race is left to lose (docs/decisions/0091-the-leader-commits-what-waits.md). A leader dies, and so does
who offers; the object is no lock, and neither waits for the other.
"""

from contextlib import suppress
from dataclasses import replace

import msgspec

from log_tables.errors import AlreadyExists, CorruptLog, ObjectMissing, OutcomeUnknown, StoreUnavailable
from log_tables.layout import offer_path
from log_tables.limits import OFFER_MAX_AGE_MS
from log_tables.store.store import Store
from log_tables.table.commit import Commit, decode, encode
from log_tables.table.invariant import CommitKind, is_ours, kind_of
from log_tables.table.snapshot import Snapshot


class _Content(msgspec.Struct, frozen=True):
    """The object: the id of the table, files that have to be in it besides those that the commit removes,
    and the commit.
    """

    table: str
    needs: list[str]
    commit: str


_decoder = msgspec.json.Decoder(_Content)


def fits(commit: Commit, snapshot: Snapshot) -> bool:
    """Whether `commit`, which was made for an earlier version, still does in `snapshot` what it was made for.

    Never once it is in the log: the files that it removes are gone then, and its txns stand where it sets
    them. So nobody has to know who else may have put it.
    """
    there = {segment.path for segment in snapshot.segments}
    steps = [txn.version - snapshot.version_of(txn.app_id) for txn in commit.txns]
    does = bool(commit.removes) or any(step > 0 for step in steps)
    needed = commit.needs.union(remove.path for remove in commit.removes)
    return does and needed <= there and all(step >= 0 for step in steps)


def is_offerable(snapshot: Snapshot, commit: Commit) -> bool:
    """Whether the leader may put `commit`, made for `snapshot`: maintenance of files, and no append, claim or
    change of the schema. A remote table has no leader.
    """
    files_only = commit.protocol is None and commit.metadata is None
    return files_only and snapshot.cluster is None and kind_of(snapshot, commit) is CommitKind.MAINTENANCE


def put_offer(store: Store, directory: str, snapshot: Snapshot, commit: Commit) -> bool:
    """Offer `commit`, made for `snapshot` of the table at `directory`, unless another offer is there.

    Returns whether the leader may see it. Without an answer of the store it may.
    """
    content = _Content(snapshot.metadata.id, sorted(commit.needs), encode(commit).decode())
    try:
        if has_offer(store, directory):
            return False
        store.put_if_absent(offer_path(directory), msgspec.json.encode(content))
    except OutcomeUnknown:
        return True
    except (AlreadyExists, StoreUnavailable):
        return False  # it is only help: its maker goes on trying all the same
    return True


def has_offer(store: Store, directory: str) -> bool:
    """Whether there is an offer to the leader of the table. Raises StoreUnavailable."""
    try:
        store.head(offer_path(directory))
    except ObjectMissing:
        return False
    return True


def read_offer(store: Store, directory: str, snapshot: Snapshot) -> Commit | None:
    """The commit that is offered for the table at `directory`, of which `snapshot` is known; None without one
    that counts.

    One that is older than OFFER_MAX_AGE_MS by the store's clock, or was copied with the files of another
    table, is none. Raises StoreUnavailable, CorruptLog for one that no process of ours has made.
    """
    path = offer_path(directory)
    try:
        # In this order: one that takes its place meanwhile is younger.
        modified_ms, data = store.head(path).modified_ms, store.get(path)
    except ObjectMissing:
        return None
    if modified_ms < store.now_ms() - OFFER_MAX_AGE_MS:
        return None
    try:
        content = _decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptLog(f"the offer {path} cannot be read ({error}); it is deleted") from None
    if content.table != snapshot.metadata.id:
        return None
    commit = decode(content.commit.encode(), path)
    if not is_ours(commit) or not is_offerable(snapshot, commit):
        raise CorruptLog(f"the offer {path} is no maintenance of lakelog; it is deleted")
    return replace(commit, needs=frozenset(content.needs))


def withdraw_offer(store: Store, directory: str) -> None:
    """Remove the offer, if there is one. It may stay where the store is away: an old one does not count."""
    with suppress(StoreUnavailable, OutcomeUnknown):
        store.delete(offer_path(directory))
