"""A process that is killed when it changes the files below a directory for the n-th time, in this process.

For code that opens its stores by itself, to which no FaultyStore can be handed.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from log_tables.store.objects import TEMPORARY_PREFIX
from log_tables.testing import Crash, Failure


class Kill:
    """The `nth` change below `directory` ends in `failure`, a crash; after it nothing is changed any more.

    A change is a file that gets or loses its name, temporary files left out: what one write of a store does.
    """

    def __init__(self, directory: Path, nth: int, failure: Failure) -> None:
        self.dead = False
        self._directory, self._left, self._failure = f"{directory}{os.sep}", nth, failure
        self._lock = Lock()

    def of(self, call: Callable[..., Any], name: int) -> Callable[..., Any]:
        """`call` of the operating system, whose argument number `name` is the file that it changes."""

        def called(*args: Any, **named: Any) -> object:
            if not self._is_change(args):
                return call(*args, **named)
            with self._lock:
                if self.dead:
                    raise Crash
                self._left -= self._counts(os.fspath(args[name]))
                dies = self.dead = self._left == 0
            return self._failure(lambda: call(*args, **named)) if dies else call(*args, **named)

        return called

    def _is_change(self, args: tuple[Any, ...]) -> bool:
        """Whether a call changes files. An `open` does by its flags."""
        return not (len(args) > 1 and isinstance(args[1], int) and not args[1] & os.O_CREAT)

    def _counts(self, file: str) -> bool:
        return file.startswith(self._directory) and not os.path.basename(file).startswith(TEMPORARY_PREFIX)


@contextmanager
def killed(directory: Path, nth: int, failure: Failure) -> Iterator[Kill]:
    """This process as one that is killed so; when the context ends, another one begins."""
    kill = Kill(directory, nth, failure)
    with pytest.MonkeyPatch.context() as patch:
        for name, argument in {"open": 0, "unlink": 0, "link": 1, "replace": 1}.items():
            patch.setattr(os, name, kill.of(getattr(os, name), argument))
        yield kill
