"""Which topics members of groups may read, by rules that do not change: other rules are another filter."""

from collections.abc import Callable

from coordinator.access.principal import RequestContext

KEPT_MAX = 256
"""Answers that are kept: members of a group ask for the same."""


class TopicFilter:
    """Used on the event loop."""

    def __init__(self, reads: Callable[[RequestContext, str], bool]) -> None:
        """`reads` says whether a principal may read a topic, by its name."""
        self._reads = reads
        self._kept: dict[tuple[RequestContext, frozenset[str]], frozenset[str]] = {}

    def of(self, context: RequestContext, names: frozenset[str]) -> frozenset[str]:
        """The `names` that `context` may read."""
        found = self._kept.get((context, names))
        if found is None:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            found = frozenset(name for name in names if self._reads(context, name))
            self._kept[context, names] = found
        return found
