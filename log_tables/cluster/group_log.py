"""The records of `__consumer_offsets`, which hold the state of consumer groups by key, and how they are read.

Keys and values are JSON. The newest record of a key counts; a null value deletes it. There are eleven kinds
of keys: a group, a member, the settings of a group, a classic group (as Kafka's clients form it) with all its
members, an offset that a group has committed for a partition, the offsets before what an operator has done,
the number of a group's newest transaction, a transaction that is not applied yet, and a retry key that is
remembered; a transactional id of a Kafka client, and offsets of a group that wait for the end of its
transaction.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from log_tables.errors import CorruptLog, InvalidArgument, InvalidConsumer
from log_tables.layout import staging_seal
from log_tables.limits import BATCH_MAX_BYTES, PRODUCER_EPOCH_MAX
from log_tables.partition.reader import PartitionReader
from log_tables.partition.sequencer import Author
from log_tables.record import Record, to_records
from log_tables.segments.staging import StagedFile

NAME_MAX_CHARS = 249
"""The longest id of a group or a member, and the longest retry key: as long as a topic's name."""


_HIDDEN = "/"
"""The beginning of the ids of groups that no client can name."""


def ids_group(partition: int) -> str:
    """The hidden group whose transactions are those of all transactional ids of a partition of
    `__consumer_offsets`.
    """
    return f"{_HIDDEN}ids-{partition}"


def is_hidden(group_id: str) -> bool:
    """Whether a group is no client's."""
    return group_id.startswith(_HIDDEN)


def mirror_member(mirror: str) -> str:
    """The name that stands for a member in offsets that the mirror `mirror` has set; no member is called
    so.
    """
    return f"{_HIDDEN}mirror-{mirror}"


class GroupKey(msgspec.Struct, frozen=True, tag_field="kind", tag="group"):
    """The key of the state of a group as a whole."""

    group: str


class MemberKey(msgspec.Struct, frozen=True, tag_field="kind", tag="member"):
    """The key of a member of a group."""

    group: str
    member: str


class SettingsKey(msgspec.Struct, frozen=True, tag_field="kind", tag="settings"):
    """The key of the settings of a group."""

    group: str


class ClassicKey(msgspec.Struct, frozen=True, tag_field="kind", tag="classic"):
    """The key of a group as Kafka's clients form it by JoinGroup and SyncGroup."""

    group: str


def deleted_name(topic_id: str) -> str:
    """The name in an OffsetKey of the deleted topic with this id, while it may come back. No topic has it."""
    return f"~{topic_id}"


def is_deleted_name(name: str) -> bool:
    """Whether `name` is a `deleted_name`."""
    return name.startswith("~")


class OffsetKey(msgspec.Struct, frozen=True, tag_field="kind", tag="offset"):
    """The key of a committed offset."""

    group: str
    topic: str
    partition: int


class UndoKey(msgspec.Struct, frozen=True, tag_field="kind", tag="undo"):
    """The key of the offsets that a group had before what operators have done."""

    group: str


class TransactionsKey(msgspec.Struct, frozen=True, tag_field="kind", tag="transactions"):
    """The key of the number of a group's newest transaction."""

    group: str


class IntentKey(msgspec.Struct, frozen=True, tag_field="kind", tag="intent"):
    """The key of a transaction that is committed and not applied yet."""

    group: str
    number: int


class RetryKey(msgspec.Struct, frozen=True, tag_field="kind", tag="retry"):
    """The key of a retry key, which a client chose for a transaction."""

    group: str
    key: str


class ProducerKey(msgspec.Struct, frozen=True, tag_field="kind", tag="producer"):
    """The key of a transactional id, by which a Kafka client writes."""

    id: str


class PendingKey(msgspec.Struct, frozen=True, tag_field="kind", tag="pending"):
    """The key of the offsets of a group that wait for the end of a transaction of a Kafka client."""

    group: str
    id: str


GroupKeys = (
    GroupKey
    | MemberKey
    | SettingsKey
    | ClassicKey
    | OffsetKey
    | UndoKey
    | TransactionsKey
    | IntentKey
    | RetryKey
    | PendingKey
)
Key = GroupKeys | ProducerKey


class GroupValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """`generation` counts the changes of the assignment.

    `idle_ms` is when the group was found without members, in milliseconds since 1970. It is 0 when the group
    has members, or has not been checked yet. `principal` is whoever made the group, as `User:<name>`; it is
    empty where nobody is authenticated.
    """

    generation: int
    idle_ms: int = 0
    principal: str = ""


class MemberConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a member consumes, by Kafka's names; times in milliseconds.

    An empty `strategy` stands for the strategy of the group.
    """

    format: str = "binary"
    auto_offset_reset: str = "latest"
    auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    fetch_min_bytes: int = 1
    request_timeout_ms: int = 1_000
    session_timeout_ms: int = 300_000
    max_poll_interval_ms: int = 300_000
    strategy: str = ""


class KafkaClient(msgspec.Struct, frozen=True, omit_defaults=True):
    """The Kafka client that is a member, as it names itself.

    `instance_id` is that of a static member (KIP-345). `protocols` are the names and the metadata of a member
    that speaks the classic protocol; without them it speaks that of KIP-848.
    """

    client_id: str = ""
    host: str = ""
    instance_id: str | None = None
    rack_id: str = ""
    protocols: tuple[tuple[str, bytes], ...] = ()

    @property
    def size_bytes(self) -> int:
        """The size of all that it says of itself."""
        names = len(self.client_id) + len(self.host) + len(self.instance_id or "") + len(self.rack_id)
        return names + sum(len(name) + len(data) for name, data in self.protocols)


class MemberValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """A member: how it chooses partitions (one of `topics`, `pattern`, `assigned`), and what it owns.

    `epoch` is the generation of its last change. `positions` are the offsets that it sought and has not
    committed since. `topic_ids` are the ids of the topics that `owned` and `positions` name. `starting` are
    the topics whose log ends are still to be noted as its start at `latest`; None: all of them. `principal`,
    with its `principal_groups` and its `host`, is whoever made the member, or has subscribed it last; empty
    where nobody is authenticated.

    `kafka` is a Kafka client, None an instance of the HTTP API. Such a client has been told to let go of
    `revoking`, which are among `owned` until it has. `previous_epoch` is the one before `epoch`. A static
    member that is `away` has left for a while.
    """

    config: MemberConfig
    topics: list[str] = []
    pattern: str = ""
    assigned: bool = False
    owned: dict[str, list[int]] = {}
    epoch: int = 0
    positions: dict[str, dict[int, int]] = {}
    topic_ids: dict[str, str] = {}
    starting: list[str] | None = None
    principal: str = ""
    principal_groups: list[str] = []
    host: str = ""
    kafka: KafkaClient | None = None
    revoking: dict[str, list[int]] = {}
    previous_epoch: int = 0
    away: bool = False


class SettingsValue(msgspec.Struct, frozen=True):
    """The settings of a group that were set, by Kafka's names."""

    configs: dict[str, str]


class ClassicMemberValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """A member of a classic group. Times in milliseconds.

    `metadata` is what it sent for the protocol of the group, `assignment` what the leader gave it: bytes that
    only clients read. `instance_id` is that of a static member (KIP-345). `principal` and `principal_groups`
    are whoever joined; empty where nobody is authenticated.
    """

    session_timeout_ms: int
    rebalance_timeout_ms: int
    metadata: bytes = b""
    assignment: bytes = b""
    instance_id: str | None = None
    client_id: str = ""
    host: str = ""
    principal: str = ""
    principal_groups: list[str] = []


class ClassicValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """A classic group as of its newest `generation` that all members have an assignment of.

    `begun` is a newer generation, of which members may know, and whose assignment never came. `members` are
    in the order in which they joined.
    """

    generation: int = 0
    begun: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: dict[str, ClassicMemberValue] = {}


SPARK_METADATA = "spark"
"""The metadata of offsets that a Spark query reports, by which it is told from a group of consumers."""


class OffsetValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """A committed offset: that of the next record to read, of the topic with the id `topic_id`.

    `committed_ms` is the time of the commit in milliseconds since 1970. `member` is the member that made it;
    it is empty for a tool or a Spark query, and `mirror_member` for a mirror. `leader_epoch` is what a Kafka
    client has committed with it (KIP-320), which nothing here goes by. `transaction` are the producer id and
    the number of the transaction of a Kafka client that has committed it: offsets of that one, or of one
    before, came late. Of two offsets of a partition that were given while one of them waited for its
    transaction, the later has the greater `order`.
    """

    offset: int
    topic_id: str
    metadata: str = ""
    committed_ms: int = 0
    member: str = ""
    leader_epoch: int = -1
    transaction: tuple[int, int] | None = None
    order: int = 0


class Act(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of a group's offsets by an operator: `done` at `at_ms` (since 1970), by `principal`.

    `offsets` are those of before: topic, partition, and the offset, None where there was none. `principal` is
    empty where nobody is authenticated.
    """

    done: str
    at_ms: int
    offsets: tuple[tuple[str, int, OffsetValue | None], ...]
    principal: str = ""


class UndoValue(msgspec.Struct, frozen=True):
    """The newest acts of operators, the newest first, together of at most UNDO_OFFSETS_MAX offsets."""

    acts: tuple[Act, ...]


class TransactionsValue(msgspec.Struct, frozen=True):
    """`number` is that of the newest transaction; `producer_id` is the producer that applies it."""

    producer_id: int
    number: int

    def newest_epoch(self, producer_id: int) -> int:
        """The newest epoch with which the group can have used a producer, its current one or an earlier
        one.
        """
        if producer_id == self.producer_id:
            return self.number % (PRODUCER_EPOCH_MAX + 1)
        return min(self.number - 1, PRODUCER_EPOCH_MAX)


class Intent(msgspec.Struct, frozen=True, omit_defaults=True):
    """A transaction that is to be applied: its records are in staged files, `key` is its retry key, if any.

    The producer `producer_id` appends them with `epoch`, and in each partition with sequences from 0.
    `author` is who has committed it, or begun the transaction of a transactional id; None where nobody was
    authenticated.
    """

    producer_id: int
    epoch: int
    staged: tuple[StagedFile, ...]
    key: str = ""
    author: Author | None = None


class AppendedRange(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where `count` consecutive records of a transaction begin; `base_offset` is None if that is
    forgotten.
    """

    topic: str
    partition: int
    count: int
    base_offset: int | None = None


class Retry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A transaction with a retry key, committed at `committed_ms` (since 1970).

    `digest` is the digest of its request. `placed` is None until it is applied. `lost` says that some of its
    records could not be appended.
    """

    number: int
    digest: str
    committed_ms: int
    placed: tuple[AppendedRange, ...] | None = None
    lost: bool = False


class ProducerValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """A transactional id: its producer's id and epoch, and its newest transaction that has ended.

    `number` counts the transactions that have ended; `committed` says how the newest one did. `replaced` is
    the id and the epoch before the newest change of them, and `by_end` whether the end of one has. `groups`
    are those whose offsets were in a transaction, `telling` those that are to hear of the end of `number`.
    `sequences` are those that come next: topic id, partition, sequence. They stay where the epoch stays.
    `intent` is the number that the newest commit has among those of all ids of the partition. `changed_ms`:
    milliseconds since 1970. `principal` is whoever has begun it last, `User:<name>`.
    """

    producer_id: int
    epoch: int
    timeout_ms: int
    number: int = 0
    committed: bool = False
    replaced: tuple[int, int] | None = None
    by_end: bool = False
    groups: tuple[str, ...] = ()
    telling: tuple[str, ...] = ()
    sequences: tuple[tuple[str, int, int], ...] = ()
    intent: int = 0
    changed_ms: int = 0
    principal: str = ""


class PendingValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """Offsets of a group, as pairs of a topic's name with those of its partitions, that transaction `number`
    of a transactional id commits, or not.
    """

    number: int
    offsets: tuple[tuple[str, int, OffsetValue], ...]


Value = (
    GroupValue
    | MemberValue
    | SettingsValue
    | ClassicValue
    | OffsetValue
    | UndoValue
    | TransactionsValue
    | Intent
    | Retry
    | ProducerValue
    | PendingValue
)
Records = list[tuple[Key, Value | None]]

_decode_key = msgspec.json.Decoder(Key).decode
_encode = msgspec.json.Encoder().encode
_VALUES: dict[type[Key], msgspec.json.Decoder[Value]] = {
    GroupKey: msgspec.json.Decoder(GroupValue),
    MemberKey: msgspec.json.Decoder(MemberValue),
    SettingsKey: msgspec.json.Decoder(SettingsValue),
    ClassicKey: msgspec.json.Decoder(ClassicValue),
    OffsetKey: msgspec.json.Decoder(OffsetValue),
    UndoKey: msgspec.json.Decoder(UndoValue),
    TransactionsKey: msgspec.json.Decoder(TransactionsValue),
    IntentKey: msgspec.json.Decoder(Intent),
    RetryKey: msgspec.json.Decoder(Retry),
    ProducerKey: msgspec.json.Decoder(ProducerValue),
    PendingKey: msgspec.json.Decoder(PendingValue),
}


def check_group_name(name: str) -> None:
    """Raise InvalidConsumer for an id that no group can have."""
    _check_name("group", name)


def check_member_name(name: str) -> None:
    """Raise InvalidConsumer for an id that no member can have."""
    _check_name("consumer instance", name)


def check_retry_key(key: str) -> None:
    """Raise InvalidArgument for a text that cannot be a retry key. An empty one stands for none."""
    if len(key) > NAME_MAX_CHARS or not key.isprintable():
        raise InvalidArgument(
            f"the retry key {key[:40]!r} cannot be used; use up to {NAME_MAX_CHARS} printable characters"
        )


def _check_name(what: str, name: str) -> None:
    """The name is a part of URLs, so it has no slash and is neither `.` nor `..`."""
    usable = 1 <= len(name) <= NAME_MAX_CHARS and "/" not in name and name.isprintable()
    if not usable or name in (".", ".."):
        raise InvalidConsumer(
            f"the {what} cannot be called {name[:40]!r}; use 1 to {NAME_MAX_CHARS} printable characters, no "
            "slash, and not . or .."
        )


def encode(key: Key, value: Value | None) -> Record:
    """The record that sets `key` to `value`; None deletes the key."""
    return Record(None if value is None else _encode(value), key=_encode(key))


def decode(record: Record, directory: str) -> tuple[Key, Value | None]:
    """The key and the value of a record. Raises CorruptLog, which names its offset and `directory`."""
    try:
        key = _decode_key(record.key or b"")
        value = None if record.value is None else _VALUES[type(key)].decode(record.value)
        if isinstance(value, Intent):
            _check_staged(value)
        return key, value
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptLog(
            f"the record at offset {record.offset} of {directory} cannot be read ({error}); remove it with "
            "its segment, or restore the table from a backup"
        ) from None


def _check_staged(intent: Intent) -> None:
    """Raise ValueError for an intent that names a file that is not staged: its files are deleted in the
    end.
    """
    for file in intent.staged:
        if staging_seal(file.path) is None:
            raise ValueError(f"{file.path!r} is not the path of a staged file")


def replay(partition: PartitionReader) -> Iterator[tuple[Key, Value | None]]:
    """The keys and values of a partition, in order, up to its high watermark. Raises CorruptLog."""
    offset = partition.log_start
    while offset < partition.high_watermark:
        plan = partition.plan_read(offset, BATCH_MAX_BYTES)
        for batch in partition.read(plan):
            for record in to_records(batch):
                yield decode(record, partition.directory)
        offset = plan.end


def producers_of(newest: Mapping[Key, Value | None]) -> dict[str, ProducerValue]:
    """The transactional ids of the `newest` records."""
    return {
        key.id: value
        for key, value in newest.items()
        if isinstance(key, ProducerKey) and isinstance(value, ProducerValue)
    }


def committed_offsets(partitions: Iterable[PartitionReader]) -> dict[OffsetKey, OffsetValue]:
    """The committed offsets of all groups, in `partitions` of `__consumer_offsets` as last refreshed."""
    found: dict[OffsetKey, OffsetValue] = {}
    for partition in partitions:
        for key, value in replay(partition):
            if isinstance(key, OffsetKey):
                if isinstance(value, OffsetValue):
                    found[key] = value
                else:
                    found.pop(key, None)
    return found


def pending_files(partitions: Iterable[PartitionReader]) -> set[str]:
    """The paths of the staged files of transactions that are not applied yet, which a vacuum leaves.

    `partitions` are those of `__consumer_offsets`, as last refreshed.
    """
    pending: dict[Key, Intent] = {}
    for partition in partitions:
        for key, value in replay(partition):
            if isinstance(value, Intent):
                pending[key] = value
            elif value is None:
                pending.pop(key, None)
    return {file.path for intent in pending.values() for file in intent.staged}
