"""Acts that happen once in a while for each key, however often they are asked for."""

from collections.abc import Hashable
from itertools import islice
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Seldom(Generic[Key]):
    """The keys for which it was done a short time ago. Used on the event loop."""

    def __init__(self, again_s: float, most: int) -> None:
        """Once in `again_s` for a key, and for `most` keys in that time; for others it is not done then."""
        self._again_s, self._most = again_s, most
        self._since: dict[Key, float] = {}

    def is_due(self, key: Key, now_s: float) -> bool:
        """Whether to do it for `key` now; then that is noted. `now_s`: a monotonic clock."""
        for earlier, since in [*islice(self._since.items(), 2)]:  # the oldest; one more than is added
            if now_s >= since + self._again_s:
                del self._since[earlier]
        before_s = self._since.get(key)
        if (before_s is not None and now_s < before_s + self._again_s) or len(self._since) >= self._most:
            return False
        self._since.pop(key, None)
        self._since[key] = now_s
        return True
