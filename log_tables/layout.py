"""The names of paths, files, tables and columns, which no other module spells out.

Paths are relative to the root.
"""

import re
from hashlib import sha256

TOPICS = "topics"
CLUSTER_METADATA = "__cluster_metadata"
CONSUMER_OFFSETS = "__consumer_offsets"
MAINTENANCE = "__maintenance"
AUDIT = "__audit"
MIRROR_GAPS = "__lakelog_mirror_gaps"
STAGING = "staging"
AUDIT_SPILLS = "audit"
BROKERS = "brokers"
MIRRORS = "mirrors"
STANDBYS = "standbys"
BUSY_TABLES = "busy"

SCHEMAS = "schemas"
SCHEMA_FILES = f"{SCHEMAS}/files"
"""The directory of the schemas that an operator put there, beside those of registries."""

CREDENTIALS = "credentials"
"""The directory that no reader of the root needs to see, and that a policy of a bucket can keep from them."""

PEER_SECRET = f"{CREDENTIALS}/peer-secret"
"""The object of a local root that only gateways read."""

CREDENTIALS_DIRECTORY = f"{CREDENTIALS}/log"
"""The directory of the log of credentials."""


def is_secret(path: str) -> bool:
    """Whether `path` is that of an object which readers of the root need not see."""
    return path.startswith(f"{CREDENTIALS}/")


INTERNAL_TOPICS = (CONSUMER_OFFSETS, MAINTENANCE, AUDIT, MIRROR_GAPS)
"""Topics that no client reads. A reader of tables reads CLUSTER_METADATA, which names the others."""

KAFKAS_TOPICS = ("__transaction_state", "__share_group_state", "__remote_log_metadata")
RESERVED_TOPICS = frozenset((CLUSTER_METADATA, *INTERNAL_TOPICS, *KAFKAS_TOPICS))
"""Names that are no client's: those of lakelog's own topics, and of Kafka's."""

RESERVED_PREFIX = "__lakelog"
"""Names that begin so are kept for topics of lakelog's own to come."""

FORMAT = "2"
"""The version of docs/FORMAT.md that a root follows."""

PARTITION = "partition"
OFFSET = "offset"
TIMESTAMP = "timestamp"
KEY = "key"
VALUE = "value"
HEADERS = "headers"
VALUE_TEXT = "value_text"
KEY_TEXT = "key_text"
VALUE_ERROR = "value_error"

REMOTE_MARK = "lakelog-cluster"
"""The object at the top of a remote root that holds the id of the cluster which owns it."""

REMOTE_OWNER = "lakelog-owner"
"""The object at the top of a remote root that names the root which may change it. It is absent until a root
is adopted with the id of its cluster."""

UNFINISHED_COPY = "lakelog-copy"
"""The object at the top of an unfinished copy of a root. It holds the URL of the original."""

STANDBY = "lakelog-standby"
"""The object at the top of a root that follows another one."""

PROMOTED = "lakelog-promoted"
"""The object at the top of a root that was promoted. It names the clusters in whose place that was done."""

HOME_ANCHOR = "home/anchor"
HOME = "home/identity"
"""An object, and its identity in the store when the root was last known to be whole. A copy of the anchor has
another identity."""

NO_RESERVE, HALF_RESERVE, WHOLE_RESERVE = 0.0, 0.5, 1.0
"""The part of the reserve of a disk that may be given up for an object."""

TXN_HIGH_WATERMARK = "lakelog.log"
TXN_LEADER = "lakelog.leader"
TXN_LEADER_BROKER = "lakelog.broker"
TXN_LOG_START = "lakelog.start"
TXN_CLEANED = "lakelog.cleaned"
TXN_MIRRORED = "lakelog.mirrored"
TXN_TIERED = "lakelog.tiered"
TXN_DELETED = "lakelog.deleted"
PROPERTY_FORMAT = "lakelog.format"
PROPERTY_CLUSTER = "lakelog.cluster"
PROPERTY_REMOTE_ROOT = "lakelog.remoteRoot"
PROPERTY_REMOTE_OWNER = "lakelog.remoteOwner"
PROPERTY_FILE_RETENTION = "delta.deletedFileRetentionDuration"
PRODUCER_TXN = r"lakelog\.producer\.(?P<id>0|[1-9][0-9]{0,18})\.(?P<kind>seq|end)"
_TXN_PRODUCER = re.compile(PRODUCER_TXN)
_LOG_EPOCH = "lakelog.epoch."
_TXN_LOG_EPOCH = re.compile(r"lakelog\.epoch\.([1-9][0-9]{0,9})")

_TOPIC_DIRECTORY = re.compile(rf"{TOPICS}/(?P<name>[a-zA-Z0-9._-]+)(~(?P<number>[1-9]\d*))?")
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_SEGMENT = re.compile(r"(\d{20})-[0-9a-f]{8}\.parquet")
_DATA_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LEDGER = re.compile(r"\d{20}-[0-9a-f]{8}(-replaced)?\.json")
_AUDIT_SPILL = re.compile(rf"{AUDIT_SPILLS}/\d{{20}}-[0-9a-f]{{32}}\.jsonl")
_STAGED = re.compile(rf"{STAGING}/(?:[0-9]+/)?[0-9a-f]{{32}}-([0-9a-f]{{16}})\.arrow")


def topic_directory(name: str, incarnation: int = 1) -> str:
    """The directory of a topic's tables. A topic that is re-created gets `~2`, `~3` …"""
    return f"{TOPICS}/{name}" if incarnation == 1 else f"{TOPICS}/{name}~{incarnation}"


def incarnation_of(directory: str) -> tuple[str, int] | None:
    """The name and the number of which `directory` is the `topic_directory`; None for any other path."""
    match = _TOPIC_DIRECTORY.fullmatch(directory)
    return (match["name"], int(match["number"] or 1)) if match else None


def partition_directory(topic_directory: str, partition: int) -> str:
    """The directory of one partition. Its name is that of a Hive partition, so that every reader of the
    topic's table knows the value of the column `partition`.
    """
    return f"{topic_directory}/{PARTITION}={partition}"


def old_partition_directory(topic_directory: str, partition: int) -> str:
    """The directory of a partition in format 1."""
    return f"{topic_directory}/{partition}"


def reserve_share(path: str) -> float:
    """The part of the reserve of a disk that may be given up for the object at `path`: nothing for records,
    which take room and make none, and for the audit, whose events wait; half for what groups commit.
    """
    top, _, rest = path.partition("/")
    if top in (STAGING, AUDIT_SPILLS):
        return NO_RESERVE
    topic = rest.partition("/")[0] if top == TOPICS else ""
    if topic == AUDIT:
        return NO_RESERVE
    if topic == CONSUMER_OFFSETS:
        return HALF_RESERVE
    is_records = topic not in ("", *RESERVED_TOPICS) and _SEGMENT.fullmatch(rest.rpartition("/")[2])
    return NO_RESERVE if is_records else WHOLE_RESERVE


METADATA_DIRECTORY = partition_directory(topic_directory(CLUSTER_METADATA), 0)
"""The directory of the metadata log."""


def log_directory(table: str) -> str:
    return f"{table}/_delta_log"


def commit_path(table: str, version: int) -> str:
    return f"{table}/_delta_log/{version:020}.json"


def checkpoint_path(table: str, version: int) -> str:
    return f"{table}/_delta_log/{version:020}.checkpoint.parquet"


def last_checkpoint_path(table: str) -> str:
    return f"{table}/_delta_log/_last_checkpoint"


def offer_path(table: str) -> str:
    """The object with a commit that waits for the leader. Delta tools skip names that begin with `_`."""
    return f"{table}/_offer.json"


def vacuum_directory(table: str) -> str:
    """The directory of the ledgers of vacuums. Delta tools skip names that begin with `_`."""
    return f"{table}/_vacuum"


def ledger_path(table: str, store_ms: int, suffix: str, replaced: bool = False) -> str:
    """The ledger of a vacuum that began at `store_ms`; `suffix` is 8 hexadecimal digits.

    It names files that others have `replaced`, or files whose records were deleted or moved.
    """
    return f"{table}/_vacuum/{store_ms:020}-{suffix}{'-replaced' if replaced else ''}.json"


def is_ledger(path: str, replaced: bool | None = None) -> bool:
    """Whether `path` is that of a ledger, of this kind if `replaced` says which."""
    found = _LEDGER.fullmatch(path.rsplit("/", 1)[-1])
    return found is not None and replaced in (None, found[1] is not None)


def staging_path(unique_id: str, seal: str, coordinator: int | None = None) -> str:
    """The path of a staged file: records that wait for their transaction, outside of all topics.

    `seal` is 16 hexadecimal digits that stand for the group and the content of the file. A file of Kafka's
    clients is in the directory of its `coordinator`, a partition of `__consumer_offsets`.
    """
    directory = STAGING if coordinator is None else staging_directory(coordinator)
    return f"{directory}/{unique_id}-{seal}.arrow"


def staging_directory(coordinator: int) -> str:
    """The directory of the staged files of one partition of `__consumer_offsets`."""
    return f"{STAGING}/{coordinator}"


def staging_seal(path: str) -> str | None:
    """The seal in the path of a staged file; None for any other path."""
    match = _STAGED.fullmatch(path)
    return match[1] if match else None


def audit_spill_path(time_ms: int, unique_id: str) -> str:
    """The object of audit events that could not be appended at that time; ordered by their times."""
    return f"{AUDIT_SPILLS}/{time_ms:020}-{unique_id}.jsonl"


def is_audit_spill(path: str) -> bool:
    return _AUDIT_SPILL.fullmatch(path) is not None


def schema_directory(digest: str) -> str:
    """The directory of the schemas of one registry; `digest` is 16 hexadecimal digits that stand for it."""
    return f"{SCHEMAS}/{digest}"


def broker_path(broker_id: int) -> str:
    """The object that a gateway rewrites at intervals, as a sign of life."""
    return f"{BROKERS}/{broker_id}"


def mirror_directory(mirror: str) -> str:
    """The directory of the reports of a mirror's processes: each rewrites an object there, as a sign of life
    and a report.
    """
    return f"{MIRRORS}/{mirror}"


def standby_directory(url: str) -> str:
    """The directory of the reports of the processes that replicate to the root at `url`."""
    return f"{STANDBYS}/{sha256(url.encode()).hexdigest()[:16]}"


def segment_name(base_offset: int, suffix: str) -> str:
    """The name of a new segment file. `suffix` is 8 random hexadecimal digits, so that two leaders which
    write the same offset never share a file.
    """
    return f"{base_offset:020}-{suffix}.parquet"


def commit_version(path: str) -> int | None:
    """The version of a commit file; None for any other path."""
    match = _COMMIT.fullmatch(path.rsplit("/", 1)[-1])
    return int(match[1]) if match else None


def checkpoint_version(path: str) -> int | None:
    match = _CHECKPOINT.fullmatch(path.rsplit("/", 1)[-1])
    return int(match[1]) if match else None


def is_data_file(path: str) -> bool:
    """Whether `path`, relative to its table, names a file directly in the table's directory.

    A path with a directory, an encoded character or a scheme does not, nor does a name of the table's own
    (`_delta_log`).
    """
    return _DATA_FILE.fullmatch(path) is not None


def segment_base_offset(path: str) -> int | None:
    match = _SEGMENT.fullmatch(path.rsplit("/", 1)[-1])
    return int(match[1]) if match else None


def producer_sequence_txn(producer_id: int) -> str:
    return f"lakelog.producer.{producer_id}.seq"


def producer_end_txn(producer_id: int) -> str:
    return f"lakelog.producer.{producer_id}.end"


def producer_of_txn(app_id: str) -> tuple[int, str] | None:
    """(producer id, "seq" or "end") of a producer's txn; None for any other."""
    match = _TXN_PRODUCER.fullmatch(app_id)
    return (int(match[1]), match[2]) if match else None


def log_epoch_txn(epoch: int) -> str:
    return f"{_LOG_EPOCH}{epoch}"


def log_epoch_of_txn(app_id: str) -> int | None:
    """The log epoch that a txn notes; None for any other."""
    match = _TXN_LOG_EPOCH.fullmatch(app_id) if app_id.startswith(_LOG_EPOCH) else None
    return int(match[1]) if match else None
