"""The metadata log `__cluster_metadata`: which topics and which gateways there are, as records by key.

It is a partition like any other. Every change is one conditional append, so that processes that change it at
once take turns. The newest record of a key counts: a topic's key is its name, a gateway's `~` and its id.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from itertools import count
from typing import TypeVar

import msgspec

from log_tables.clock import Clock
from log_tables.cluster.home import check_finished
from log_tables.cluster.topic import check_topic_name
from log_tables.errors import (
    AlreadyExists,
    BrokerReplaced,
    CorruptLog,
    InvalidArgument,
    InvalidTopicName,
    NotLeader,
    ObjectMissing,
    OffsetMismatch,
)
from log_tables.layout import (
    CLUSTER_METADATA,
    TOPICS,
    partition_directory,
    topic_directory,
)
from log_tables.limits import BATCH_MAX_BYTES, METADATA_ATTEMPTS_MAX, METADATA_PAUSE_S
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import Record, input_batch, to_records
from log_tables.store.store import Store
from log_tables.table.table import create_table

_log = logging.getLogger(__name__)

_BROKER = b"~"
"""What the key of a gateway begins with: no name of a topic has it."""


class TopicRecord(msgspec.Struct, frozen=True):
    """A topic as it is from there on.

    `deleted` holds when earlier incarnations were deleted (milliseconds since 1970), by number, until their
    files are gone.
    """

    name: str
    topic_id: str
    incarnation: int
    partitions: int
    configs: dict[str, str]
    live: bool = True
    deleted: dict[int, int] = {}


class BrokerRecord(msgspec.Struct, frozen=True):
    """A gateway: where others reach it, since when (milliseconds since 1970), and what it leads.

    One that is started again at the same url keeps its id and has another `incarnation`. `leads` is what it
    has told, at most a moment old: the truth about a partition's leader is in the partition's table. One that
    is `leaving` hands over what it leads, and should be given no more.
    """

    id: int
    url: str
    incarnation: str
    since_ms: int
    leads: dict[str, list[int]] = {}
    leaving: bool = False


class BrokerLeft(msgspec.Struct, frozen=True):
    """A gateway has left in order: a null value."""

    id: int


MetadataRecord = TopicRecord | BrokerRecord | BrokerLeft
_Made = TypeVar("_Made", TopicRecord, BrokerRecord, BrokerLeft)


def decode(record: Record) -> MetadataRecord:
    """What a record of the metadata log says. Raises CorruptLog."""
    key = record.key or b""
    try:
        if not key.startswith(_BROKER):
            return _checked(msgspec.json.decode(record.value or b"", type=TopicRecord))
        if record.value is None:
            return BrokerLeft(int(key.removeprefix(_BROKER)))
        return msgspec.json.decode(record.value, type=BrokerRecord)
    except (msgspec.MsgspecError, ValueError, InvalidTopicName) as error:
        raise CorruptLog(
            f"the record at offset {record.offset} of {topic_directory(CLUSTER_METADATA)}/0 cannot be read "
            f"({error}); restore the metadata log from a backup"
        ) from None


def _checked(topic: TopicRecord) -> TopicRecord:
    """`topic`, if its tables lie where topics do. Raises InvalidTopicName, ValueError."""
    check_topic_name(topic.name)
    if min([topic.incarnation, *topic.deleted]) < 1:
        raise ValueError(f"topic {topic.name} has an incarnation below 1")
    return topic


def encode(record: MetadataRecord) -> Record:
    """`record` as a record of the metadata log."""
    match record:
        case TopicRecord():
            return Record(msgspec.json.encode(record), record.name.encode())
        case BrokerRecord():
            return Record(msgspec.json.encode(record), _BROKER + b"%d" % record.id)
        case BrokerLeft():
            return Record(None, _BROKER + b"%d" % record.id)


def open_log(store: Store, clock: Clock, create: bool = True) -> Partition:
    """The partition of `store`'s root that holds the log; an empty root gets one unless `create` is false.

    Raises InvalidArgument when there is none to open, CorruptLog when there are topics and no metadata log.
    """
    directory = partition_directory(topic_directory(CLUSTER_METADATA), 0)
    try:
        return Partition(store, directory, clock)
    except ObjectMissing:
        return _first(store, clock, directory, create)


def _first(store: Store, clock: Clock, directory: str, create: bool) -> Partition:
    """The metadata log of an empty root, made now. Raises CorruptLog when the root is not empty.

    To begin anew beside tables that a lost metadata log named would be to sweep them away.
    """
    if store.list_dirs(f"{TOPICS}/"):
        try:
            return Partition(store, directory, clock)  # another process made it meanwhile, and topics
        except ObjectMissing:
            check_finished(store)
            raise CorruptLog(
                f"there are topics, but the log of {directory}, which names them, is missing or lacks "
                "version 0; restore it from a backup"
            ) from None
    check_finished(store)
    if not create:
        raise InvalidArgument(f"there is no lakelog data at {store.url}; name the root that a gateway serves")
    try:
        create_table(store, directory, clock)
    except AlreadyExists:
        pass  # another process was first: the same table
    return Partition(store, directory, clock)


class MetadataLog:
    """What the log says, as last refreshed. Thread-safe; blocking.

    `url` is where this process answers, for the leader claims that it makes; `follow` is told each record of
    a topic, in order.
    """

    def __init__(self, partition: Partition, url: str, follow: Callable[[TopicRecord], None]) -> None:
        self.partition = partition
        self._url, self._follow = url, follow
        self._clock = partition.clock
        self._lock = threading.RLock()
        self._next = 0
        self._topics: dict[str, TopicRecord] = {}
        self._brokers: Mapping[int, BrokerRecord] = {}
        self._topic_changes = 0

    @property
    def topic_changes(self) -> int:
        """How many records of topics have been read here: it grows with every change of a topic."""
        return self._topic_changes

    @property
    def brokers(self) -> Mapping[int, BrokerRecord]:
        """The gateways that have come and have not left, by id."""
        return self._brokers

    def topic(self, name: str) -> TopicRecord | None:
        """The newest record of the topic `name`, a deleted one, too."""
        return self._topics.get(name)

    def refresh(self, wait: bool = False) -> None:
        """Follow the log; behind a commit of this process only when `wait`. Raises CorruptLog."""
        log = self.partition
        log.refresh(wait)
        with self._lock:
            while self._next < log.high_watermark:
                plan = log.plan_read(max(self._next, log.log_start), BATCH_MAX_BYTES)
                for batch in log.read(plan):
                    for record in to_records(batch):
                        self._read(record)
                self._next = plan.end

    def make_durable(self) -> None:
        """Make durable what has been read here, before something is done on account of it.

        Raises StoreUnavailable.
        """
        self.partition.table.make_durable()

    def _read(self, record: Record) -> None:
        try:
            self._take(decode(record))
        except CorruptLog as error:
            if not (record.key or b"").startswith(_BROKER):
                raise
            _log.error("a gateway is passed over, on which no record depends: %s", error)

    def _take(self, record: MetadataRecord) -> None:
        if isinstance(record, TopicRecord):
            self._topics[record.name] = record
            self._follow(record)
            self._topic_changes += 1
            return
        # A mapping of its own: who reads the old one is not disturbed.
        others = {number: broker for number, broker in self._brokers.items() if number != record.id}
        self._brokers = others if isinstance(record, BrokerLeft) else {**others, record.id: record}

    def change_topic(self, name: str, decide: Callable[[TopicRecord | None], TopicRecord]) -> None:
        """Append what `decide` makes of the newest record of `name`, if nothing was appended in between."""
        self._change(f"topic {name!r}", lambda: decide(self._topics.get(name)))

    def register_broker(self, url: str, leaving: bool = False) -> BrokerRecord:
        """Make this process the gateway at `url`, with the id that it had there before, or a free one.

        One that is `leaving` is given nothing to lead.
        """
        incarnation, now_ms = self._clock.unique_id(), self._clock.now_ms()

        def decide() -> BrokerRecord:
            before = (number for number, broker in self._brokers.items() if broker.url == url)
            number = next(before, None) or next(n for n in count(1) if n not in self._brokers)
            return BrokerRecord(number, url, incarnation, now_ms, leaving=leaving)

        made = self._change(f"the gateway at {url}", decide)
        assert made is not None
        return made

    def publish_broker(self, record: BrokerRecord) -> None:
        """Put `record` in the place of that of the same incarnation. Raises BrokerReplaced without one."""

        def decide() -> BrokerRecord:
            newest = self._brokers.get(record.id)
            if newest is None or newest.incarnation != record.incarnation:
                raise BrokerReplaced(
                    f"another gateway registered at {record.url} as broker {record.id}; give each gateway "
                    "a url of its own (peer_url)"
                )
            return record

        self._change(f"broker {record.id}", decide)

    def remove_broker(self, record: BrokerRecord) -> None:
        """Say that the gateway has left, unless another one has taken its place."""

        def decide() -> BrokerLeft | None:
            newest = self._brokers.get(record.id)
            same = newest is not None and newest.incarnation == record.incarnation
            return BrokerLeft(record.id) if same else None

        self._change(f"broker {record.id}", decide)

    def _change(self, what: str, decide: Callable[[], _Made | None]) -> _Made | None:
        """Append what `decide` makes of the newest records, None for nothing; repeated when others do, too.

        Raises NotLeader when it was not this process's turn too often.
        """
        for attempt in range(METADATA_ATTEMPTS_MAX):
            try:
                with self._lock:
                    if not self.partition.leading:
                        self.partition.claim(self._url)
                    self.refresh()
                    self.make_durable()
                    made = decide()
                    if made is not None:
                        batch = input_batch([encode(made)], self._clock.now_us())
                        self.partition.append([AppendRequest(batch, expected_offset=self._next)])
                        self.refresh()
                    return made
            except (NotLeader, OffsetMismatch):
                # Another process writes the metadata log too: wait for a random while and take a turn.
                self._clock.pause(METADATA_PAUSE_S * (attempt + 1) * self._clock.random())
        raise NotLeader(
            f"too many processes change the metadata log at once, {what} was not changed; repeat it"
        )
