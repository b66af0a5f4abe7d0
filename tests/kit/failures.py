"""Failures of each kind of call of a store; and such that are none: a step in the middle of a call."""

from collections.abc import Callable, Mapping

from log_tables.testing import (
    WRITES,
    Failure,
    answer_lost,
    nothing_landed,
    refused,
    repeated,
    unavailable,
)

ABSENT = frozenset({"put_if_absent"})
READS = frozenset({"get", "get_range", "head", "list", "make_durable"})

FAILURES: Mapping[str, tuple[Failure, frozenset[str]]] = {
    "unread": (unavailable, READS),
    "unavailable": (unavailable, WRITES),
    "refused": (refused, WRITES),
    "lost": (answer_lost, WRITES),
    "repeated": (repeated, ABSENT),
    "nothing": (nothing_landed, ABSENT),
}
"""How calls fail, and which."""


def before(step: Callable[[], object]) -> Failure:
    """A failure that is none: `step` happens, then what was asked."""

    def perform_after(perform: Callable[[], object]) -> object:
        step()
        return perform()

    return perform_after


def after(step: Callable[[], object]) -> Failure:
    """A failure that performs the request, then `step`, and only then gives the answer or the error."""

    def perform_before(perform: Callable[[], object]) -> object:
        try:
            return perform()
        finally:
            step()

    return perform_before
