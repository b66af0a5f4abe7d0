"""Failures of a store that are none: a step that happens in the middle of a call."""

from collections.abc import Callable

from log_tables.testing import Failure


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
