"""Whether a standby is of one moment, and its mark that says so."""

import logging
import math
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from jobs.replica.causes import Cause
from jobs.replica.table_log import Diverged
from jobs.replica.tables import ROOT, Standing
from log_tables.clock import Clock
from log_tables.cluster.standby import StandbyMark, put_mark, read_mark
from log_tables.errors import LakelogError
from log_tables.store.store import Store

_log = logging.getLogger(__name__)

_AGAIN_S = 1.0
"""How long after a mark that could not be put it is tried again."""


class Level:
    """The mark of `target`, and what the standby still lacks to be of one moment. Of one thread, but for
    `note`.
    """

    def __init__(self, target: Store, clock: Clock, standing: Standing, owns: Callable[[str], bool]) -> None:
        """`owns` says whether this process copies a part; that of the root's tables marks it level."""
        self._target, self._clock, self._standing, self._owns = target, clock, standing, owns
        self._mark, self._is_sure = StandbyMark("", ""), False
        self._noted: StandbyMark | None = None
        self._obligations = list[Cause]()
        self._obliged_s = 0.0
        self._failed_s = -math.inf
        self.trouble = ""
        """The error that keeps the mark from being put; empty without one."""

    def begin(self, mark: StandbyMark) -> None:
        """Begin with the mark as it is."""
        self._mark, self._is_sure = mark, True

    @property
    def is_level(self) -> bool:
        """Whether the standby is of one moment, as far as this process knows."""
        return self._is_sure and self._mark.is_level

    def oblige(self, causes: Iterable[Cause]) -> None:
        """Nothing is of one moment until the standby has `causes`."""
        self._obligations += causes
        self._obliged_s = self._clock.monotonic()

    def note(self, mark: StandbyMark) -> None:
        """Note what the mark says, which another process may have changed. Of any thread."""
        self._noted = mark

    def keep(self) -> None:
        """Mark the standby level once it is. Raises Diverged."""
        noted, self._noted = self._noted, None
        if noted is not None and noted.is_level != self._mark.is_level:
            self._try(self._look)
        if self._obligations:
            self._obligations = self._standing.lacks(self._obligations, self._obliged_s)
        elif self._may_mark() and not self._is_apart():
            self._try(lambda: self.set(True))

    def set(self, is_level: bool) -> None:
        """Mark the standby. Only the process that copies the root's tables marks it level: others cannot know
        that it is not so marked.

        Raises Diverged for one that was promoted, and what the store raises: then it may be done or not.
        """
        if self._is_sure and self._owns(ROOT) and self._mark.is_level == is_level:
            return
        self._look()
        if self._mark.is_level != is_level:
            mark = replace(self._mark, is_level=is_level)
            self._is_sure = False
            put_mark(self._target, mark)
            self._mark = mark
            _log.info("the standby %s of one moment", "is" if is_level else "is not yet")
        self._is_sure = True

    def _look(self) -> None:
        found = read_mark(self._target)
        if found is None or found.is_promoted:
            raise Diverged("the standby was promoted; nothing is replicated to it any more")
        if self._mark.is_level and not found.is_level:
            for copy in self._standing.tables.values():
                copy.is_known = False
        self._mark = found

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
            self.trouble = ""
        except Diverged:
            raise
        except LakelogError as error:
            if str(error) != self.trouble:
                _log.warning("the standby is not marked as of one moment now: %s", error)
            self.trouble, self._failed_s = str(error), self._clock.monotonic()

    def _may_mark(self) -> bool:
        is_time = self._clock.monotonic() >= self._failed_s + _AGAIN_S
        return is_time and not self.is_level and self._owns(ROOT)

    def _is_apart(self) -> bool:
        """Whether some table is not as of the moment of the others."""
        return self._standing.is_torn or any(copy.is_to_begin for copy in self._standing.tables.values())
