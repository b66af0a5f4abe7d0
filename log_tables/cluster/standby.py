"""The mark of a standby: a root that follows another one, file by file, until it is promoted.

While it is there only `lakelog replicate` writes to the root. Readers take it as any other.
"""

import msgspec

from log_tables.errors import Conflict, CorruptLog, ObjectMissing
from log_tables.layout import PROMOTED, STANDBY
from log_tables.store.store import Store


class StandbyMark(msgspec.Struct, frozen=True):
    """A root that follows the one at `source`, of the cluster `cluster_id`.

    It `is_level` once its tables are as of one moment: before its first copy is whole they are not. It
    `is_promoted` from the moment on from which it follows no longer, until it is a cluster of its own.
    """

    source: str
    cluster_id: str
    is_level: bool = False
    is_promoted: bool = False


def read_mark(store: Store) -> StandbyMark | None:
    """The mark of a standby; None for any other root. Raises CorruptLog, StoreUnavailable."""
    try:
        return msgspec.json.decode(store.get(STANDBY), type=StandbyMark)
    except ObjectMissing:
        return None
    except msgspec.MsgspecError as error:
        raise CorruptLog(
            f"the object {STANDBY} of this root cannot be read ({error}); replicate to an empty directory"
        ) from None


def put_mark(store: Store, mark: StandbyMark) -> None:
    """Raises as `Store.put`."""
    store.put(STANDBY, msgspec.json.encode(mark))


def delete_mark(store: Store) -> None:
    """Raises as `Store.delete`."""
    store.delete(STANDBY)
    store.make_durable("")


def read_promoted(store: Store) -> tuple[str, ...]:
    """The ids of the clusters in whose place this root was promoted, the newest last; none if it never was.

    Raises CorruptLog, StoreUnavailable.
    """
    try:
        return msgspec.json.decode(store.get(PROMOTED), type=tuple[str, ...])
    except ObjectMissing:
        return ()
    except msgspec.MsgspecError as error:
        raise CorruptLog(
            f"the object {PROMOTED} of this root cannot be read ({error}); remove it, then nothing can fail "
            "back to this root's original"
        ) from None


def note_promoted(store: Store, cluster_id: str) -> None:
    """Note that this root is promoted in the place of the cluster `cluster_id`. Raises as `Store.put`."""
    before = [each for each in read_promoted(store) if each != cluster_id]
    store.put(PROMOTED, msgspec.json.encode([*before, cluster_id]))


def check_no_standby(store: Store) -> None:
    """Raise Conflict for a standby, which nobody else may write to; StoreUnavailable."""
    mark = read_mark(store)
    if mark is not None and not mark.is_promoted:
        raise Conflict(
            f"this root is a standby of {mark.source}, and only `lakelog replicate` writes to it; write to "
            "the original, or make this one a cluster of its own with `lakelog root promote`"
        )


def check_served(store: Store) -> None:
    """Raise Conflict for a standby, also for one whose promotion has not ended; StoreUnavailable."""
    check_no_standby(store)
    if read_mark(store) is not None:
        raise Conflict(
            "the promotion of this root was interrupted; run `lakelog root promote` again, which goes on"
        )


def check_level(store: Store) -> None:
    """Raise CorruptLog for a standby whose tables are not of one moment yet; StoreUnavailable."""
    mark = read_mark(store)
    if mark is not None and not mark.is_level:
        raise CorruptLog(
            f"this root is a standby of {mark.source} whose tables are not of one moment yet; let `lakelog "
            "replicate` run until it says that it is level"
        )
