"""What `__consumer_offsets` holds: the state of consumer groups as records by key, and how it is read back.

Keys and values are JSON. The newest record of a key counts, a null value deletes it. Six kinds of keys: a
group, a member of a group, the offset that a group has committed for a partition; and of a group's
transactions their count, each one that is not applied yet, and each retry key that is remembered.
"""

from collections.abc import Iterable, Iterator

import msgspec

from log_tables.errors import CorruptLog, InvalidArgument, InvalidConsumer
from log_tables.layout import staging_seal
from log_tables.limits import BATCH_MAX_BYTES, PRODUCER_EPOCH_MAX
from log_tables.partition.partition import Partition
from log_tables.record import Record, to_records
from log_tables.segments.staging import StagedFile

NAME_MAX_CHARS = 249
"""Of a group, a member or a retry key: as long as a topic's."""


class GroupKey(msgspec.Struct, frozen=True, tag_field="kind", tag="group"):
    """The key of what is said of a group as a whole."""

    group: str


class MemberKey(msgspec.Struct, frozen=True, tag_field="kind", tag="member"):
    """The key of a member of a group."""

    group: str
    member: str


class OffsetKey(msgspec.Struct, frozen=True, tag_field="kind", tag="offset"):
    """The key of a committed offset."""

    group: str
    topic: str
    partition: int


class TransactionsKey(msgspec.Struct, frozen=True, tag_field="kind", tag="transactions"):
    """The key of the count of a group's transactions."""

    group: str


class IntentKey(msgspec.Struct, frozen=True, tag_field="kind", tag="intent"):
    """The key of a transaction that is committed and not applied yet."""

    group: str
    number: int


class RetryKey(msgspec.Struct, frozen=True, tag_field="kind", tag="retry"):
    """The key of what is remembered of a transaction by the retry key that its client chose."""

    group: str
    key: str


Key = GroupKey | MemberKey | OffsetKey | TransactionsKey | IntentKey | RetryKey


class GroupValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """`generation` counts the changes of who owns what.

    `idle_ms` is when the group was found without members, in milliseconds since 1970; 0: it has some, or
    nobody has looked yet.
    """

    generation: int
    idle_ms: int = 0


class MemberConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a member consumes, by Kafka's names; times in milliseconds.

    An empty `strategy` takes the group's.
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


class MemberValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """A member: how it chooses partitions (one of `topics`, `pattern`, `assigned`), and what it owns.

    `epoch` is the generation of its last change; `positions` are the places that it was set to and that it
    has not committed since; `topic_ids` the incarnations of the topics of both.
    """

    config: MemberConfig
    topics: list[str] = []
    pattern: str = ""
    assigned: bool = False
    owned: dict[str, list[int]] = {}
    epoch: int = 0
    positions: dict[str, dict[int, int]] = {}
    topic_ids: dict[str, str] = {}


class OffsetValue(msgspec.Struct, frozen=True):
    """A committed offset: that of the next record to read, of the topic's incarnation `topic_id`.

    `committed_ms` is the time of the commit in milliseconds since 1970, `member` who made it (empty: nobody
    in the group, but a tool or a Spark query).
    """

    offset: int
    topic_id: str
    metadata: str = ""
    committed_ms: int = 0
    member: str = ""


class TransactionsValue(msgspec.Struct, frozen=True):
    """`number` is that of the newest transaction; `producer_id` is the producer that applies it."""

    producer_id: int
    number: int

    def newest_epoch(self, producer_id: int) -> int:
        """The newest epoch with which the group can have used a producer, this one or one that it had before:
        that of a committed number.
        """
        if producer_id == self.producer_id:
            return self.number % (PRODUCER_EPOCH_MAX + 1)
        return min(self.number - 1, PRODUCER_EPOCH_MAX)


class Intent(msgspec.Struct, frozen=True, omit_defaults=True):
    """A transaction to be applied: its rows are in staged files, `key` is its retry key, if any.

    They are appended by the producer `producer_id`, with `epoch` and, in each partition, sequences from 0.
    """

    producer_id: int
    epoch: int
    staged: tuple[StagedFile, ...]
    key: str = ""


class AppendedRange(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where `count` records of a transaction are, one after the other; None: that is no longer known."""

    topic: str
    partition: int
    count: int
    base_offset: int | None = None


class Retry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A transaction with a retry key, committed at `committed_ms` (since 1970).

    `digest` is that of its request; `placed` is None until it is applied; `lost` says that some of its
    records were given up.
    """

    number: int
    digest: str
    committed_ms: int
    placed: tuple[AppendedRange, ...] | None = None
    lost: bool = False


Value = GroupValue | MemberValue | OffsetValue | TransactionsValue | Intent | Retry
Records = list[tuple[Key, Value | None]]

_decode_key = msgspec.json.Decoder(Key).decode
_encode = msgspec.json.Encoder().encode
_VALUES: dict[type[Key], msgspec.json.Decoder[Value]] = {
    GroupKey: msgspec.json.Decoder(GroupValue),
    MemberKey: msgspec.json.Decoder(MemberValue),
    OffsetKey: msgspec.json.Decoder(OffsetValue),
    TransactionsKey: msgspec.json.Decoder(TransactionsValue),
    IntentKey: msgspec.json.Decoder(Intent),
    RetryKey: msgspec.json.Decoder(Retry),
}


def check_group_name(name: str) -> None:
    """Raise InvalidConsumer for a name that no group can have."""
    _check_name("group", name)


def check_member_name(name: str) -> None:
    """Raise InvalidConsumer for a name that no member can have."""
    _check_name("consumer instance", name)


def check_retry_key(key: str) -> None:
    """Raise InvalidArgument for what cannot be a retry key. An empty one stands for none."""
    if len(key) > NAME_MAX_CHARS or not key.isprintable():
        raise InvalidArgument(
            f"the retry key {key[:40]!r} cannot be used; use up to {NAME_MAX_CHARS} printable characters"
        )


def _check_name(what: str, name: str) -> None:
    """It is a part of URLs, and so neither has a slash nor is `.` or `..`."""
    usable = 1 <= len(name) <= NAME_MAX_CHARS and "/" not in name and name.isprintable()
    if not usable or name in (".", ".."):
        raise InvalidConsumer(
            f"the {what} cannot be called {name[:40]!r}; use 1 to {NAME_MAX_CHARS} printable characters, no "
            "slash, and not . or .."
        )


def encode(key: Key, value: Value | None) -> Record:
    """The record that says `value` of `key`; None deletes it."""
    return Record(None if value is None else _encode(value), key=_encode(key))


def decode(record: Record, directory: str) -> tuple[Key, Value | None]:
    """What a record says. Raises CorruptLog, naming its offset and `directory`."""
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
    """Raise ValueError for an intent that names anything but staged files: they are deleted when it ends."""
    for file in intent.staged:
        if staging_seal(file.path) is None:
            raise ValueError(f"{file.path!r} is not the path of a staged file")


def replay(partition: Partition) -> Iterator[tuple[Key, Value | None]]:
    """Everything that a partition says, in order, up to its high watermark. Raises CorruptLog."""
    offset = partition.log_start
    while offset < partition.high_watermark:
        plan = partition.plan_read(offset, BATCH_MAX_BYTES)
        for batch in partition.read(plan):
            for record in to_records(batch):
                yield decode(record, partition.directory)
        offset = plan.end


def committed_offsets(partitions: Iterable[Partition]) -> dict[OffsetKey, OffsetValue]:
    """What every group has committed, by `partitions` of `__consumer_offsets` as last refreshed."""
    found: dict[OffsetKey, OffsetValue] = {}
    for partition in partitions:
        for key, value in replay(partition):
            if isinstance(key, OffsetKey):
                if isinstance(value, OffsetValue):
                    found[key] = value
                else:
                    found.pop(key, None)
    return found


def pending_files(partitions: Iterable[Partition]) -> set[str]:
    """The paths of the staged files that transactions name which are not applied yet, by `partitions` of
    `__consumer_offsets` as last refreshed: a vacuum of staged files leaves these.
    """
    pending: dict[Key, Intent] = {}
    for partition in partitions:
        for key, value in replay(partition):
            if isinstance(value, Intent):
                pending[key] = value
            elif value is None:
                pending.pop(key, None)
    return {file.path for intent in pending.values() for file in intent.staged}
