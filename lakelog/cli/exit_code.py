"""How a command ends: the table of docs/operating.md, from the kind of the error."""

from log_tables.errors import (
    AccessDenied,
    AlreadyExists,
    Conflict,
    InvalidRequest,
    NotFound,
    ObjectMissing,
    Unreachable,
)

FAILED, WRONG, UNREACHABLE, DENIED, INTERRUPTED = 1, 2, 3, 4, 130

_WRONG = (InvalidRequest, NotFound, Conflict)
"""The same command would fail again: the caller has to change something."""

_OF_THE_STORE = (ObjectMissing, AlreadyExists)
"""Errors of these kinds that are about objects of the store, which no user has named."""


def exit_code(error: BaseException) -> int:
    """The exit code of a command that `error` has ended."""
    if isinstance(error, Unreachable):
        return UNREACHABLE
    if isinstance(error, AccessDenied):
        return DENIED
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return WRONG if isinstance(error, _WRONG) and not isinstance(error, _OF_THE_STORE) else FAILED
