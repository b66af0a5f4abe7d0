"""The partitions that a query reads: which there are, and how far their logs go, followed side by side."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from lakelog.spark.decoding import ValueDecoder, decoder_of
from lakelog.spark.source.offsets import EARLIEST, LATEST, Position
from lakelog.spark.source.options import Options, WithoutMatch
from lakelog.spark.worker import store_at
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.errors import InvalidArgument, NotFound, UnknownPartition, UnknownTopic
from log_tables.partition.reader import PartitionReader
from log_tables.topic_partition import TopicIdPartition, TopicPartition

_FOLLOWED_AT_ONCE = 32
"""Logs that are read at the same time: what an object store's latency asks for."""

_PRUNE_COMMITS = 1_000
"""Commits after which what a followed log has left behind in memory is forgotten."""

T = TypeVar("T")
OffsetsByPartition = dict[TopicPartition, int]


class Subscription:
    """The topics that the options choose, as of the last `refresh`. One thread uses it."""

    def __init__(self, options: Options) -> None:
        """Open the root. Raises InvalidArgument when there is none, StoreUnavailable."""
        self._options = options
        self._cluster = Cluster.open(store_at(options.location), create=False)
        self._pool = ThreadPoolExecutor(_FOLLOWED_AT_ONCE, thread_name_prefix="lakelog-follow")
        self._pruned: dict[str, int] = {}
        self.missing: dict[tuple[str, int | None], NotFound] = {}
        self.topics: dict[str, Topic] = {}
        self.partitions: dict[TopicPartition, PartitionReader] = {}
        self.log_epochs: frozenset[int] = frozenset()

    @property
    def remote_root(self) -> str:
        """The URL of the remote root, empty when there is none."""
        return self._cluster.remote_root or ""

    def decoder(self, topic: str) -> ValueDecoder:
        """`decoder_of` a topic that was chosen."""
        return decoder_of(self._cluster, topic)

    def refresh(self) -> None:
        """Follow the metadata log and the log of every partition chosen.

        `missing` holds the errors for topics and partitions that the options name and that do not exist.
        """
        self._cluster.refresh()
        self.missing = {}
        topics = {topic.name: topic for topic in self._chosen_topics()}
        chosen = self._chosen(topics)
        self.topics = topics

        def followed(wanted: TopicPartition) -> PartitionReader:
            topic, number = topics[wanted.topic], wanted.partition
            was_open = topic.is_open(number)
            log = topic.partition(number)
            if was_open:
                log.refresh()
                self._prune(log)
            return log

        self.partitions = dict(zip(chosen, self._pool.map(followed, chosen), strict=True))
        # One that has begun since the metadata log was read is in the logs alone.
        epochs = (self._cluster.log_epochs, *(log.snapshot.log_epochs for log in self.partitions.values()))
        self.log_epochs = frozenset(number for each in epochs for number in each.numbers())

    def _prune(self, partition: PartitionReader) -> None:
        version = partition.snapshot.version
        if version - self._pruned.setdefault(partition.directory, version) >= _PRUNE_COMMITS:
            partition.prune()
            self._pruned[partition.directory] = version

    def _chosen_topics(self) -> list[Topic]:
        options = self._options
        if options.pattern is not None:
            matches = options.pattern.fullmatch
            return [t for t in self._cluster.topics() if matches(t.name)]
        found = []
        for name in options.topics:
            topic = self._cluster.cached_topic(name)
            if topic is None:
                self.missing[name, None] = UnknownTopic(
                    f"there is no topic {name!r} to read; create it, or name another"
                )
            else:
                found.append(topic)
        return found

    def _chosen(self, topics: Mapping[str, Topic]) -> list[TopicPartition]:
        if self._options.assigned is None:
            return [
                TopicPartition(name, partition)
                for name, topic in topics.items()
                for partition in range(topic.partition_count)
            ]
        found = []
        for wanted in self._options.assigned:
            name, number = wanted
            if name in topics and number >= topics[name].partition_count:
                last = topics[name].partition_count - 1
                self.missing[wanted] = UnknownPartition(
                    f"assign names partition {number} of topic {name}, which has 0 to {last}; name one of "
                    "these"
                )
            elif name in topics:
                found.append(wanted)
        return found

    def earliest(self) -> OffsetsByPartition:
        return {chosen: partition.log_start for chosen, partition in self.partitions.items()}

    def latest(self) -> OffsetsByPartition:
        return {chosen: partition.high_watermark for chosen, partition in self.partitions.items()}

    def with_topic_id(self, partition: TopicPartition) -> TopicIdPartition:
        """A current partition, with the id of its topic."""
        topic_name, number = partition
        return TopicIdPartition(topic_name, self.topics[topic_name].topic_id, number)

    @property
    def log_epoch(self) -> int:
        """The log epoch of what is read now."""
        return max(self.log_epochs)

    def parting(self, partition: TopicIdPartition, offset: int, epoch: int) -> tuple[int, str]:
        """Up to where the log has what was before `offset` in a log epoch, and why not to `offset`; "" where
        it has all of that.

        A log that goes on from an older state, as that of a promoted standby, has other records from there
        on (KIP-320). One that ends before `offset` is not meant.
        """
        name = TopicPartition(partition.topic, partition.partition)
        if offset == 0 or name not in self.partitions or self.with_topic_id(name) != partition:
            return offset, ""
        _, end = self.partitions[name].snapshot.log_epochs.end_of(epoch, offset)
        taken = f"offset {offset} of {name} was taken in log epoch {epoch}"
        if epoch not in self.log_epochs:
            return min(end, offset), f"{taken}, which this root does not have"
        if end < offset:
            return end, f"{taken}, and the log has gone on from an older state at offset {end}"
        return offset, ""

    def resolve(self, position: Position, without_match: WithoutMatch) -> OffsetsByPartition:
        """The offsets that a position stands for, for every partition there is now.

        `without_match` is what to do for a time after the last record: "latest" or "error". Raises
        InvalidArgument when the position does not name exactly the partitions there are.
        """
        if position.everywhere is not None:
            return self.earliest() if position.everywhere == EARLIEST else self.latest()
        if position.everywhere_ms is not None:
            return self._at_times(dict.fromkeys(self.partitions, position.everywhere_ms), without_match)
        if position.times_ms is not None:
            self._check_named(position.option, position.times_ms)
            return self._at_times(position.times_ms, without_match)
        assert position.offsets is not None
        self._check_named(position.option, position.offsets)
        self._check_taken_of(position)
        ends = {EARLIEST: self.earliest(), LATEST: self.latest()}
        return {
            chosen: ends[offset][chosen] if offset in ends else offset
            for chosen, offset in position.offsets.items()
        }

    def _check_named(self, option: str, named: Iterable[TopicPartition]) -> None:
        missing = _shown(self.partitions.keys() - set(named))
        unknown = _shown(set(named) - self.partitions.keys())
        if missing or unknown:
            wrong = f"misses {missing}" if missing else f"names {unknown}, which the query does not read"
            raise InvalidArgument(
                f"{option} must name every partition that the query reads and no other: it {wrong}"
            )

    def _check_taken_of(self, position: Position) -> None:
        for (topic, number), offset in (position.offsets or {}).items():
            taken_of = position.taken_of.get(topic)
            if taken_of is None:
                continue
            if self.topics[topic].topic_id != taken_of.topic_id:
                raise InvalidArgument(
                    f"{position.option} holds offsets of an earlier topic {topic}, which was re-created "
                    "since; begin at earliest"
                )
            partition = TopicIdPartition(topic, taken_of.topic_id, number)
            end, why = self.parting(partition, max(0, offset), taken_of.epoch)
            if why:
                raise InvalidArgument(f"{position.option}: {why}; begin at earliest, or at offset {end}")

    def _at_times(
        self, times_ms: Mapping[TopicPartition, int], without_match: WithoutMatch
    ) -> OffsetsByPartition:
        def found(chosen: TopicPartition) -> int:
            partition = self.partitions[chosen]
            offset = partition.position(times_ms[chosen] * 1000)
            if offset is None and without_match == "error":
                raise InvalidArgument(
                    f"{chosen} has no record at or after the timestamp {times_ms[chosen]}; "
                    "name an earlier one, or set startingOffsetsByTimestampStrategy=latest"
                )
            return partition.high_watermark if offset is None else offset

        return self._side_by_side(found)

    def _side_by_side(self, ask: Callable[[TopicPartition], T]) -> dict[TopicPartition, T]:
        return dict(zip(self.partitions, self._pool.map(ask, self.partitions), strict=True))

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _shown(partitions: Iterable[TopicPartition]) -> str:
    names = [str(partition) for partition in sorted(partitions)]
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
