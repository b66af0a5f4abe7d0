"""Failures of each kind of call of a store; and such that are none: a step in the middle of a call."""

from collections.abc import Callable, Mapping

from log_tables.testing import (
    WRITES,
    Crash,
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


def dies(then: Callable[[Callable[[], object]], Failure]) -> Callable[[Callable[[], object]], Failure]:
    """`before` or `after`, and the process dies with it."""

    def failure(step: Callable[[], object]) -> Failure:
        def perform_and_die(perform: Callable[[], object]) -> object:
            then(step)(perform)
            raise Crash

        return perform_and_die

    return failure


def unwritten(step: Callable[[], object]) -> Failure:
    """The process dies before the call, and `step` happens."""

    def die(perform: Callable[[], object]) -> object:
        step()
        raise Crash

    return die
