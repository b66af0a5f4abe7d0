"""The partition of a record: the one that it names, else its key's, else the topic's sticky one."""

from collections.abc import Callable, Sequence

from log_tables.cluster.topic import Topic
from log_tables.errors import InvalidRecord
from log_tables.topic_partition import partition_for_key


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


def assign(topic: Topic, keys: Sequence[bytes | None], named: Sequence[int | None], sticky: int) -> list[int]:
    """The partition of each record. Raises InvalidRecord, with its index, for one that does not exist."""
    count = topic.partition_count
    chosen = []
    for index, (key, partition) in enumerate(zip(keys, named, strict=True)):
        if partition is None:
            chosen.append(sticky if key is None else partition_for_key(key, count))
        elif 0 <= partition < count:
            chosen.append(partition)
        else:
            raise InvalidRecord(
                f"record {index}: topic {topic.name!r} has no partition {partition}; use 0 to {count - 1}"
            )
    return chosen
