"""The metadata log `__cluster_metadata`: the topics and the gateways of a cluster, as records by key.

It is a partition like any other. Every change is one conditional append, so concurrent processes take turns.
The newest record of a key counts. The key of a topic is its name, that of a gateway `~` and its id.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import TypeVar

import msgspec

from log_tables.clock import Backoff, Clock
from log_tables.cluster.root_format import check_format, check_not_old
from log_tables.cluster.root_location import check_finished
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
    FORMAT,
    METADATA_DIRECTORY,
    PROPERTY_FORMAT,
    TOPICS,
)
from log_tables.limits import BATCH_MAX_BYTES, METADATA_ATTEMPTS_MAX, METADATA_PAUSE_MAX_S, METADATA_PAUSE_S
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import Record, input_batch, to_records
from log_tables.store.store import Store
from log_tables.table.table import create_table

WRITERS_RACE = Backoff(METADATA_PAUSE_S, max_s=METADATA_PAUSE_MAX_S)
"""The pauses of processes that append to one internal topic at the same time."""

_log = logging.getLogger(__name__)

_BROKER = b"~"
"""The first character of a gateway's key, which no topic's name has."""


class TopicRecord(msgspec.Struct, frozen=True):
    """A topic as it is from this record on.

    `deleted` gives the times at which earlier incarnations were deleted (milliseconds since 1970), by number,
    until their files are gone. `columns` are all that were ever declared, in the form of `value.columns`.
    """

    name: str
    topic_id: str
    incarnation: int
    partitions: int
    configs: dict[str, str]
    live: bool = True
    deleted: dict[int, int] = {}
    columns: str = ""


class BrokerRecord(msgspec.Struct, frozen=True):
    """A gateway: its URL, the time of its start (milliseconds since 1970), and the partitions that it leads.

    A gateway that restarts at the same URL keeps its id and gets another `incarnation`. `leads` is what it
    last reported, at most a moment ago: the truth about a partition's leader is in the partition's table. A
    gateway that is `leaving` hands over its partitions, and gets no others.
    """

    id: int
    url: str
    incarnation: str
    since_ms: int
    leads: dict[str, list[int]] = {}
    leaving: bool = False


class BrokerLeft(msgspec.Struct, frozen=True):
    """A gateway that has left in order: a null value."""

    id: int


MetadataRecord = TopicRecord | BrokerRecord | BrokerLeft
_Made = TypeVar("_Made", TopicRecord, BrokerRecord, BrokerLeft)


def decode(record: Record) -> MetadataRecord:
    """The content of a record of the metadata log. Raises CorruptLog."""
    key = record.key or b""
    try:
        if not key.startswith(_BROKER):
            return _checked(msgspec.json.decode(record.value or b"", type=TopicRecord))
        if record.value is None:
            return BrokerLeft(int(key.removeprefix(_BROKER)))
        return msgspec.json.decode(record.value, type=BrokerRecord)
    except (msgspec.MsgspecError, ValueError, InvalidTopicName) as error:
        raise CorruptLog(
            f"the record at offset {record.offset} of {METADATA_DIRECTORY} cannot be read "
            f"({error}); restore the metadata log from a backup"
        ) from None


def _checked(topic: TopicRecord) -> TopicRecord:
    """`topic`, if its tables are inside of `topics/`. Raises InvalidTopicName, ValueError."""
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
    """The partition that holds the metadata log of `store`'s root; an empty root gets one unless `create` is
    false.

    Raises InvalidArgument when there is no log to open, CorruptLog when there are topics and no metadata log,
    UnsupportedTable for a root of another format.
    """
    try:
        log = Partition(store, METADATA_DIRECTORY, clock)
    except ObjectMissing:
        log = _first(store, clock, create)
    check_format(log.snapshot)
    return log


def _first(store: Store, clock: Clock, create: bool) -> Partition:
    """The new metadata log of an empty root. Raises CorruptLog when the root is not empty.

    If the log was lost and began again from nothing, the tables that it named would be swept.
    """
    directory = METADATA_DIRECTORY
    if store.list_dirs(f"{TOPICS}/"):
        try:
            return Partition(store, directory, clock)  # another process has just created it, and topics
        except ObjectMissing:
            check_not_old(store)
            check_finished(store)
            raise CorruptLog(
                f"there are topics, but the log of {directory}, which names them, is missing or lacks "
                "version 0; restore it from a backup"
            ) from None
    check_finished(store)
    if not create:
        raise InvalidArgument(f"there is no lakelog data at {store.url}; name the root that a gateway serves")
    try:
        create_table(store, directory, clock, {PROPERTY_FORMAT: FORMAT})
    except AlreadyExists:
        pass  # another process was first, with the same table
    return Partition(store, directory, clock)


class MetadataLog:
    """The content of the log as last refreshed. Thread-safe; blocking.

    `url` is the URL of this process, for its claims. `follow` is called with each record of a topic, in
    order.
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
        """The number of records of topics that were read here: it grows with every change of a topic."""
        return self._topic_changes

    @property
    def brokers(self) -> Mapping[int, BrokerRecord]:
        """The gateways that have registered and not left, by id."""
        return self._brokers

    def topic(self, name: str) -> TopicRecord | None:
        """The newest record of the topic `name`, which may be deleted; None if there never was one."""
        return self._topics.get(name)

    def refresh(self, wait: bool = False) -> None:
        """Follow the log; with `wait`, after a commit of this process that is in flight. Raises
        CorruptLog.
        """
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
        """Make all records that were read here durable, before an action relies on them.

        Raises StoreUnavailable.
        """
        self.partition.table.make_durable()

    def _read(self, record: Record) -> None:
        try:
            self._take(decode(record))
        except CorruptLog as error:
            if not (record.key or b"").startswith(_BROKER):
                raise
            _log.error("the record of a gateway is skipped, on which no data depends: %s", error)

    def _take(self, record: MetadataRecord) -> None:
        if isinstance(record, TopicRecord):
            self._topics[record.name] = record
            self._follow(record)
            self._topic_changes += 1
            return
        # A new mapping: readers of the old one are not disturbed.
        others = {number: broker for number, broker in self._brokers.items() if number != record.id}
        self._brokers = others if isinstance(record, BrokerLeft) else {**others, record.id: record}

    def change_topic(self, name: str, decide: Callable[[TopicRecord | None], TopicRecord]) -> None:
        """Append what `decide` makes of the newest record of `name`; repeated when another append comes
        between.
        """
        self._change(f"topic {name!r}", lambda: decide(self._topics.get(name)))

    def register_broker(self, url: str, leaving: bool = False) -> BrokerRecord:
        """Register this process as the gateway at `url`, with the id that `url` had before, or a free one.

        A gateway that is `leaving` gets no partitions to lead.
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
        """Replace the record of the same incarnation by `record`. Raises BrokerReplaced when there is
        none.
        """

        def decide() -> BrokerRecord:
            newest = self._brokers.get(record.id)
            if newest is None or newest.incarnation != record.incarnation:
                raise BrokerReplaced(
                    f"another gateway registered at {record.url} as broker {record.id}; give each gateway "
                    "its own URL with the setting peer_url"
                )
            return record

        self._change(f"broker {record.id}", decide)

    def remove_broker(self, record: BrokerRecord) -> None:
        """Record that the gateway has left, unless another one has replaced it."""

        def decide() -> BrokerLeft | None:
            newest = self._brokers.get(record.id)
            same = newest is not None and newest.incarnation == record.incarnation
            return BrokerLeft(record.id) if same else None

        self._change(f"broker {record.id}", decide)

    def _change(self, what: str, decide: Callable[[], _Made | None]) -> _Made | None:
        """Append what `decide` makes of the newest records, None for nothing; repeated when another process
        was first.

        Raises NotLeader when others were first too often.
        """
        # Another process may write the metadata log at the same time.
        for _ in WRITERS_RACE.attempts(self._clock, METADATA_ATTEMPTS_MAX):
            with suppress(NotLeader, OffsetMismatch), self._lock:
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
        raise NotLeader(
            f"too many processes change the metadata log at once, so {what} was not changed; repeat "
            "the request"
        )
