"""A read that the threads of a process share: each serves all callers that came before it began."""

import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


class SharedRead:
    """The reads of one thing. Thread-safe with `share`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.begun = self._done = 0
        self._found = False

    def is_since(self, came: int) -> bool:
        """Whether a read has ended that began after `begun` was `came`."""
        return self._done > came

    def read(self, act: Callable[[], Result]) -> Result:
        """Read once more; the caller lets only one read begin at a time."""
        self.begun += 1
        found = act()
        self._done = self.begun
        return found

    def share(self, act: Callable[[], bool]) -> bool:
        """The result of a read that begins after this call: its own, or that of another caller."""
        came = self.begun
        with self._lock:
            if not self.is_since(came):
                self._found = self.read(act)
            return self._found
