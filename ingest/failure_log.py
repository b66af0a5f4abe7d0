"""The failures of work that a gateway repeats in the background."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from log_tables.errors import LakelogError

_log = logging.getLogger(__name__)


class FailureLog:
    """Logs a failure when it begins and when it is over, and counts each one. Thread-safe for different work.

    A store that is away for minutes costs two lines, not one for each attempt.
    """

    def __init__(self, count: Callable[[str], None] = lambda _: None) -> None:
        """`count` is called with the name of the work for each failure."""
        self._count = count
        self._failing: dict[str, type[Exception]] = {}

    @property
    def failing(self) -> Mapping[str, type[Exception]]:
        """The work that failed when it was last tried, and how."""
        return dict(self._failing)

    @contextmanager
    def catch(self, work: str, part: str = "") -> Iterator[None]:
        """Run one attempt at `work`, or at a `part` of it. An error ends the attempt and goes no further."""
        name = _name(work, part)
        try:
            yield
        except Exception as error:  # noqa: BLE001 -- logged and counted; the next attempt may succeed
            if self._failing.get(name) is not type(error):
                # An error of ours says all in its message; any other is a bug, whose place is of interest.
                bug = None if isinstance(error, LakelogError) else error
                _log.error("duty %s failed; it is tried again: %s", name, error, exc_info=bug)
            self._failing[name] = type(error)
            self._count(work)
        else:
            if self._failing.pop(name, None) is not None:
                _log.warning("duty %s works again", name)

    def forget(self, work: str, part: str = "") -> None:
        """Nobody tries this any more: it fails no longer, whatever the last attempt came to."""
        self._failing.pop(_name(work, part), None)


def _name(work: str, part: str) -> str:
    return f"{work} of {part}" if part else work
