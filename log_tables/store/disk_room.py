"""The room of the store: looked at in the background, as appends only read a flag.

Below a threshold records are refused, so that what makes room goes on: retention, deletions, settings, and
the offsets of groups. Behind it there is the reserve of the disk (log_tables/store/reserve.py). A bucket, or
a quota that the system does not show, is full when it says so to a write, and until a write succeeds again.
"""

import logging
import os
from contextlib import suppress
from typing import NamedTuple

from log_tables.clock import Clock
from log_tables.errors import LakelogError, StoreFull
from log_tables.limits import MIB
from log_tables.store.local import LocalStore
from log_tables.store.store import Store

SMALL_DISK_SHARE = 8
"""Neither the reserve nor the threshold is more than one part in so many of a small disk."""

FILES_MIN = 256
"""Inodes below which a disk is full: four times what the reserve has."""

_PROBE_BYTES = 1 * MIB
"""What has to find room before a store that has refused a write is full no longer."""

_log = logging.getLogger(__name__)


class DiskBounds(NamedTuple):
    """The reserve that a disk is to have, and the room below which it takes no records; 0 is none."""

    reserve_bytes: int = 0
    free_min_bytes: int = 0


UNBOUNDED = DiskBounds()
"""It takes records up to its end."""


class DiskRoom:
    """Whether the store has room for records. `look` is called by one thread, the rest by any."""

    def __init__(self, store: Store, bounds: DiskBounds, clock: Clock) -> None:
        self._store, self._bounds, self._clock = store, bounds, clock
        self._refused: StoreFull | None = None
        self._lacks_reserve = False
        self.full: StoreFull | None = None
        """Why records are refused now."""
        self.free_bytes: int | None = None
        """The room that is left, as last looked at; None where nobody can tell, as of a bucket."""

    def check(self) -> None:
        """Raise StoreFull while records are refused."""
        if self.full is not None:
            raise StoreFull(self.full.message)

    def refused(self, error: LakelogError) -> None:
        """A commit failed with `error`: where there was no room, there is none for others either."""
        if isinstance(error, StoreFull):
            self._refused = self.full = error

    def look(self) -> None:
        """Look how much room there is, and have the reserve. Raises StoreFull where there is too little,
        StoreUnavailable where the reserve cannot be made for another reason.
        """
        try:
            if isinstance(self._store, LocalStore):
                self._look_at_disk(self._store)
            if self._refused is not None:
                # No zeros: a file system that makes them smaller finds room for them where there is none.
                self._store.check_room(bytes.fromhex(self._clock.random_hex(2 * _PROBE_BYTES)))
                self._refused = None
        except StoreFull as error:
            self.full = error
            raise
        self.full = None

    def _look_at_disk(self, store: LocalStore) -> None:
        self.free_bytes = None
        found: os.statvfs_result | None = None
        with suppress(OSError):  # the root is away, as every other duty says
            found = os.statvfs(store.root)
        if found is None:
            return
        share = found.f_blocks * found.f_frsize // SMALL_DISK_SHARE
        least, reserve = min(self._bounds.free_min_bytes, share), min(self._bounds.reserve_bytes, share)
        self.free_bytes = free = found.f_bavail * found.f_frsize
        if free < least:
            raise _full(f"{free:,} bytes left, and disk_free_min_bytes is {least:,}")
        if found.f_files and found.f_favail < FILES_MIN:
            raise _full(f"{found.f_favail:,} inodes left")
        # Records are let in again when the reserve is there again, or they would take it at once.
        if store.reserve(reserve, least):
            self._lacks_reserve = False
        elif self.full is not None:
            raise _full(f"{free:,} bytes left, and a reserve of {reserve:,} still to be made")
        elif not self._lacks_reserve:
            self._lacks_reserve = True
            _log.warning(
                "the disk of the root has no whole reserve of disk_reserve_bytes=%d: with %d bytes left "
                "there is no room for it above disk_free_min_bytes=%d; make room, and it is made",
                reserve,
                free,
                least,
            )


def _full(what: str) -> StoreFull:
    return StoreFull(
        f"the disk of the root is full, with {what}: records are refused, and all else goes on; shorten "
        "retention and run `lakelog maintain --once`, free deleted topics with `lakelog topic purge`, or "
        "make room; then repeat the request"
    )
