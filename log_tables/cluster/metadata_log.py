"""The metadata log `__cluster_metadata`: the topics, gateways and mirrors of a cluster, as records by key.

The key of a topic is its name, that of a gateway `~` and its id, that of a mirror `@` and its name; that of a
rule of access begins with `!` (log_tables/cluster/access_record.py).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import count

import msgspec

from log_tables.clock import Clock
from log_tables.cluster.access_record import ACCESS_KEY, AccessRules, AccessTable, RuleRecord, decode_rule
from log_tables.cluster.keyed_log import KeyedLog
from log_tables.cluster.root_location import check_finished, check_format, check_not_old
from log_tables.cluster.topic import check_topic_name
from log_tables.errors import (
    AlreadyExists,
    BrokerReplaced,
    CorruptLog,
    InvalidRequest,
    ObjectMissing,
    RootMissing,
)
from log_tables.layout import (
    CLUSTER_METADATA,
    FORMAT,
    METADATA_DIRECTORY,
    PROPERTY_FORMAT,
    TOPICS,
    incarnation_of,
    topic_directory,
)
from log_tables.partition.partition import Partition
from log_tables.record import Record
from log_tables.store.store import Store
from log_tables.table.table import create_table

_log = logging.getLogger(__name__)

_BROKER = b"~"
"""The first character of a gateway's key, which no topic's name has."""

_MIRROR = b"@"
"""The first character of a mirror's key."""


class MirroredFrom(msgspec.Struct, frozen=True):
    """The topic of a Kafka cluster that a topic is a copy of, which `mirror` makes; read-only until then.

    `topic_id` is Kafka's, as 32 hexadecimal digits; empty until the first look, or if it has none. `stopped`
    says why the copy does not go on; empty while it does.
    """

    mirror: str
    topic: str
    topic_id: str = ""
    stopped: str = ""


class DeletedTopic(msgspec.Struct, frozen=True, omit_defaults=True):
    """A deleted incarnation that can be brought back: the fields of TopicRecord as they were.

    `records` and `bytes` are what its partitions held when it was deleted, without the remote tier.
    """

    topic_id: str
    partitions: int
    configs: dict[str, str]
    columns: str = ""
    revived: int = 0
    records: int = 0
    bytes: int = 0


class TopicRecord(msgspec.Struct, frozen=True):
    """A topic as it is from this record on.

    `deleted` gives the times at which earlier incarnations were deleted (milliseconds since 1970), by number,
    until their files are gone. `columns` are all that were ever declared, in the form of `value.columns`.
    `mirrored` is where its records come from while it is a copy.

    `kept` are the deleted incarnations that can be brought back, by number. `revived` is how often this one
    was. `homes` are the directories of incarnations that came back under this name and had another one
    before, by number: until their files are gone.
    """

    name: str
    topic_id: str
    incarnation: int
    partitions: int
    configs: dict[str, str]
    live: bool = True
    deleted: dict[int, int] = {}
    columns: str = ""
    mirrored: MirroredFrom | None = None
    kept: dict[int, DeletedTopic] = {}
    revived: int = 0
    homes: dict[int, str] = {}

    @property
    def directory(self) -> str:
        """The directory of its tables."""
        return self.directory_of(self.incarnation)

    def directory_of(self, incarnation: int) -> str:
        """The directory of the tables of one of its incarnations."""
        return self.homes.get(incarnation) or topic_directory(self.name, incarnation)


class BrokerRecord(msgspec.Struct, frozen=True):
    """A gateway: its URL, the time of its start (milliseconds since 1970), and the partitions that it leads.

    A gateway that restarts at the same URL keeps its id and gets another `incarnation`. `leads` is what it
    last reported, at most a moment ago: the truth about a partition's leader is in the partition's table. A
    gateway that is `leaving` hands over its partitions, and gets no others. `peer_keys` are the fingerprints
    of its peer secrets. It authenticates its clients if it is `secured`. `kafka` is where Kafka's clients
    reach it, `host:port`; empty if it does not listen for them. `rack` is where it stands; empty if nobody
    has said.
    """

    id: int
    url: str
    incarnation: str
    since_ms: int
    leads: dict[str, list[int]] = {}
    leaving: bool = False
    peer_keys: tuple[str, ...] = ()
    secured: bool = False
    kafka: str = ""
    rack: str = ""


class BrokerLeft(msgspec.Struct, frozen=True):
    """A gateway that has left in order: a null value."""

    id: int


class MirrorRecord(msgspec.Struct, frozen=True):
    """A mirror: it copies `topics`, names or patterns with `^` before them, of the Kafka cluster at the
    addresses `source` (`host:port,…`), and the offsets of `groups`.

    `config` is the file with the client's settings for that cluster, where the mirror runs; empty for none.
    `cluster_id` is what the cluster said of itself first. A gap in the source is noted if `records_gaps`; if
    not, the topic's copy stops. `created_ms` is the time of `mirror create`, milliseconds since 1970.
    """

    name: str
    source: str
    topics: tuple[str, ...]
    groups: tuple[str, ...] = ()
    config: str = ""
    cluster_id: str = ""
    records_gaps: bool = False
    paused: bool = False
    created_ms: int = 0


class MirrorRemoved(msgspec.Struct, frozen=True):
    """A mirror that was deleted: a null value."""

    name: str


MetadataRecord = TopicRecord | BrokerRecord | BrokerLeft | MirrorRecord | MirrorRemoved


def decode(record: Record) -> MetadataRecord | RuleRecord:
    """The content of a record of the metadata log. Raises CorruptLog."""
    key = record.key or b""
    try:
        if key.startswith(ACCESS_KEY):
            return decode_rule(record)
        if key.startswith(_MIRROR):
            if record.value is None:
                return MirrorRemoved(key.removeprefix(_MIRROR).decode())
            return msgspec.json.decode(record.value, type=MirrorRecord)
        if not key.startswith(_BROKER):
            return _checked(msgspec.json.decode(record.value or b"", type=TopicRecord))
        if record.value is None:
            return BrokerLeft(int(key.removeprefix(_BROKER)))
        return msgspec.json.decode(record.value, type=BrokerRecord)
    except (msgspec.MsgspecError, ValueError, InvalidRequest) as error:
        raise _unreadable(record, error) from None


def _unreadable(record: Record, error: Exception) -> CorruptLog:
    return CorruptLog(
        f"the record at offset {record.offset} of {METADATA_DIRECTORY} cannot be read ({error}); restore the "
        "metadata log from a backup, or use the version of lakelog that wrote it"
    )


def _checked(topic: TopicRecord) -> TopicRecord:
    """`topic`, if its tables are inside of `topics/`. Raises InvalidTopicName, ValueError."""
    check_topic_name(topic.name)
    if min([topic.incarnation, *topic.deleted, *topic.kept, *topic.homes]) < 1:
        raise ValueError(f"topic {topic.name} has an incarnation below 1")
    outside = [home for home in topic.homes.values() if incarnation_of(home) is None]
    if outside:
        raise ValueError(f"topic {topic.name} is said to be in {outside[0][:100]!r}, outside of {TOPICS}/")
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
        case MirrorRecord():
            return Record(msgspec.json.encode(record), _MIRROR + record.name.encode())
        case MirrorRemoved():
            return Record(None, _MIRROR + record.name.encode())


def open_log(store: Store, clock: Clock, create: bool = True) -> Partition:
    """The partition that holds the metadata log of `store`'s root; an empty root gets one unless `create` is
    false.

    Raises RootMissing when there is no log to open, CorruptLog when there are topics and no metadata log,
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
    # Another process may be just creating the log: a bucket on a disk shows its directory before its file.
    own = topic_directory(CLUSTER_METADATA)
    if {*store.list_dirs(f"{TOPICS}/")} - {own} or any(True for _ in store.list(f"{own}/")):
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
        raise RootMissing(f"there is no lakelog data at {store.url}; name the root that a gateway serves")
    try:
        create_table(store, directory, clock, {PROPERTY_FORMAT: FORMAT})
    except AlreadyExists:
        return Partition(store, directory, clock)  # another process was first, with the same table
    log = Partition(store, directory, clock)
    at = store.url.removeprefix("file://")
    _log.info("there was no cluster at %s: made a new one, with the id %s", at, log.snapshot.metadata.id)
    return log


class MetadataLog(KeyedLog):
    """The content of the metadata log. `follow` is called with each record of a topic, in order."""

    def __init__(self, partition: Partition, url: str, follow: Callable[[TopicRecord], None]) -> None:
        super().__init__(partition, url)
        self._follow = follow
        self._topics: dict[str, TopicRecord] = {}
        self._homes: dict[str, str] = {}
        self._topic_changes = 0
        self._brokers: Mapping[int, BrokerRecord] = {}
        self._mirrors: Mapping[str, MirrorRecord] = {}
        self._access = AccessRules()
        self._begin()

    @property
    def topic_changes(self) -> int:
        """The number of records of topics that were read here: it grows with every change of a topic."""
        return self._topic_changes

    @property
    def brokers(self) -> Mapping[int, BrokerRecord]:
        """The gateways that have registered and not left, by id."""
        return self._brokers

    @property
    def mirrors(self) -> Mapping[str, MirrorRecord]:
        """The mirrors, by name."""
        return self._mirrors

    def topic(self, name: str) -> TopicRecord | None:
        """The newest record of the topic `name`, which may be deleted; None if there never was one."""
        return self._topics.get(name)

    def topics(self) -> list[TopicRecord]:
        """The newest record of every topic there ever was, all as of one moment."""
        return [*self._topics.values()]

    def owner_of(self, directory: str) -> tuple[TopicRecord, int] | None:
        """The topic that has, or had, the tables at `directory`, and their incarnation; None if no record
        says so.
        """
        name = self._homes.get(directory)
        record = None if name is None else self._topics.get(name)
        if record is not None:
            for number, home in record.homes.items():
                if home == directory:
                    return record, number
        name, number = incarnation_of(directory) or ("", 0)
        record = self._topics.get(name)
        return None if record is None or number in record.homes else (record, number)

    @property
    def access(self) -> AccessRules:
        """The rules of access; another object once they have changed."""
        return self._access

    def _begin(self) -> None:
        """Topics stay as they are: none is ever removed from the log."""
        self._listed: dict[int, BrokerRecord] = {}
        self._listed_mirrors: dict[str, MirrorRecord] = {}
        self._rules, self._is_rule_new = AccessTable(), True

    def _read(self, record: Record) -> None:
        try:
            self._take(decode(record))
        except CorruptLog as error:
            if not (record.key or b"").startswith(_BROKER):
                raise
            _log.error("the record of a gateway is skipped, on which no data depends: %s", error)

    def _take(self, record: MetadataRecord | RuleRecord) -> None:
        match record:
            case TopicRecord():
                self._homes |= dict.fromkeys(record.homes.values(), record.name)
                self._topics[record.name] = record
                self._follow(record)
                self._topic_changes += 1
            case BrokerRecord():
                self._listed[record.id] = record
            case BrokerLeft():
                self._listed.pop(record.id, None)
            case MirrorRecord():
                self._listed_mirrors[record.name] = record
            case MirrorRemoved():
                self._listed_mirrors.pop(record.name, None)
            case RuleRecord():
                self._rules.take(record)
                self._is_rule_new = True

    def _publish(self) -> None:
        self._brokers, self._mirrors = dict(self._listed), dict(self._listed_mirrors)
        if self._is_rule_new:
            self._access, self._is_rule_new = self._rules.rules(), False

    def change_topic(
        self,
        name: str,
        decide: Callable[[TopicRecord | None], TopicRecord],
        since: float | None = None,
    ) -> None:
        """Append what `decide` makes of the newest record of `name`; repeated when another append comes
        between. `since` is as in AppendRequest.
        """
        self._change(f"topic {name!r}", lambda: [encode(decide(self._topics.get(name)))], since)

    def change_topics(
        self,
        name: str,
        decide: Callable[[], Sequence[TopicRecord]],
        rules: Callable[[AccessRules], Sequence[Record]] = lambda _: (),
    ) -> None:
        """Append the records that `decide` makes because of the topic `name`, and those that `rules` makes of
        the rules of access, all at once; repeated when another append comes between.
        """
        self._change(f"topic {name!r}", lambda: [*map(encode, decide()), *rules(self.access)])

    def change_mirror(
        self, name: str, decide: Callable[[MirrorRecord | None], MirrorRecord | MirrorRemoved]
    ) -> None:
        """Append what `decide` makes of the mirror `name`; repeated when another append comes between."""
        self._change(f"the mirror {name!r}", lambda: [encode(decide(self._mirrors.get(name)))])

    def change_access(self, decide: Callable[[AccessRules], Sequence[Record]]) -> None:
        """Append the records that `decide` makes of the rules of access, all at once; repeated when another
        append comes between.
        """
        self._change("a rule of access", lambda: decide(self.access))

    def register_broker(
        self,
        url: str,
        leaving: bool = False,
        peer_keys: tuple[str, ...] = (),
        secured: bool = False,
        check: Callable[[], None] = lambda: None,
        kafka: str = "",
        rack: str = "",
    ) -> BrokerRecord:
        """Register this process as the gateway at `url`, with the id that `url` had before, or a free one.

        A gateway that is `leaving` gets no partitions to lead. The others are as in BrokerRecord. `check` may
        raise, because of gateways that are listed by then: of two that register at once, one sees the other.
        """
        incarnation, now_ms = self._clock.unique_id(), self._clock.now_ms()
        made: list[BrokerRecord] = []

        def decide() -> list[Record]:
            check()
            before = (number for number, broker in self._brokers.items() if broker.url == url)
            number = next(before, None) or next(n for n in count(1) if n not in self._brokers)
            made[:] = [
                BrokerRecord(number, url, incarnation, now_ms, {}, leaving, peer_keys, secured, kafka, rack)
            ]
            return [encode(made[0])]

        self._change(f"the gateway at {url}", decide)
        return made[0]

    def publish_broker(self, record: BrokerRecord) -> None:
        """Replace the record of the same incarnation by `record`. Raises BrokerReplaced when there is
        none.
        """

        def decide() -> list[Record]:
            newest = self._brokers.get(record.id)
            if newest is None or newest.incarnation != record.incarnation:
                raise BrokerReplaced(
                    f"another gateway registered at {record.url} as broker {record.id}; give each gateway "
                    "its own URL with the setting peer_url"
                )
            return [encode(record)]

        self._change(f"broker {record.id}", decide)

    def remove_broker(self, record: BrokerRecord) -> None:
        """Record that the gateway has left, unless another one has replaced it."""

        def decide() -> list[Record]:
            newest = self._brokers.get(record.id)
            same = newest is not None and newest.incarnation == record.incarnation
            return [encode(BrokerLeft(record.id))] if same else []

        self._change(f"broker {record.id}", decide)
