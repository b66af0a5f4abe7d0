"""The partition of records without a key: a sticky one for each topic."""

from collections.abc import Callable, Sequence


class StickyPartitioner:
    """Records without a key stay on one partition until its batch is sealed, then move on (KIP-480)."""

    def __init__(self) -> None:
        self._current = 0

    def partition(self, count: int, among: Sequence[int] = ()) -> int:
        """The partition of the moment, of `count`; one `among` these if there are any."""
        if among and self._current % count not in among:
            self._current = min(among, key=lambda index: (index - self._current) % count)
        return self._current % count

    def sealed(self, partition: int, count: int, committing: Callable[[int], bool]) -> None:
        """A batch of `partition` was sealed: what comes now goes to the next one that is not `committing`.

        A partition whose commit hangs is skipped, so that it does not hold up the others' records.
        """
        if partition != self._current % count:
            return
        following = ((partition + step) % count for step in range(1, count + 1))
        self._current = next((index for index in following if not committing(index)), (partition + 1) % count)
