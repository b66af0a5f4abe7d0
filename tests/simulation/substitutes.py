"""Names in our modules that mean something else while a world is there."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

OURS = ("api", "coordinator", "ingest", "log_tables", "jobs", "lakelog", "tests.kit")
"""The packages of which a world replaces parts."""


@contextmanager
def substituted(instead: Callable[[str, object], object]) -> Iterator[None]:
    """Give each name in our modules the value that `instead` has for it and for its value; None: its own."""
    before = [*_substitute(instead)]
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def _substitute(instead: Callable[[str, object], object]) -> Iterator[tuple[ModuleType, str, object]]:
    """Replace the names; yields what they were."""
    for module_name, module in sorted(sys.modules.items()):
        if module_name.startswith(OURS):
            for name, value in [*vars(module).items()]:
                new = instead(name, value)
                if new is not None:
                    yield module, name, value
                    setattr(module, name, new)
