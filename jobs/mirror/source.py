"""The Kafka cluster that is copied: what its brokers say of its topics, and one consumer of their records."""

import base64
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
    Uuid,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from log_tables.clock import timer
from log_tables.cluster.admin.mirror_progress import SourceRange
from log_tables.errors import (
    AuthorizationFailed,
    Conflict,
    InvalidArgument,
    LakelogError,
    NotFound,
    Unreachable,
)
from log_tables.limits import MIB
from log_tables.topic_partition import TopicPartition as Place

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

_SAID_S = 60.0
_NUMBERS = re.compile(r"\d+")

ASKED_S = 10.0
"""How long a broker may take to answer."""

_READING = {
    "queued.max.messages.kbytes": 32 * 1024,
    "queued.min.messages": 1_000_000,
    "fetch.queue.backoff.ms": 10,
    "fetch.message.max.bytes": 2 * MIB,
    "fetch.max.bytes": 16 * MIB,
    "receive.message.max.bytes": 2**31 - 1,
    "max.poll.interval.ms": 86_400_000,
}
"""How librdkafka reads ahead, where the file does not say: it may hold 32 MiB, and goes on soon after it has
less. By default it would wait for a second then, and a record of 100 MB would end each connection.
"""

_CONNECTING = {"reconnect.backoff.ms": 500}
"""How soon librdkafka tries again where nobody listens, where the file does not say. By default it would
20 times a second.
"""

_OURS = {
    "auto.offset.reset": "error",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
}
"""On these a copy stands, so the file cannot change them."""

_FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,
}

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]

_ANY: Any = None
_EVERY_ACL = AclBindingFilter(
    ResourceType.ANY, _ANY, ResourcePatternType.ANY, _ANY, _ANY, AclOperation.ANY, AclPermissionType.ANY
)

INTERNAL = "__"
"""How the names of Kafka's own topics begin."""


class UnknownAtSource(Conflict):
    """The source has no such topic, partition or group."""


class NotNow(Unreachable):
    """The partition has no leader, or is moving; or the offset of a group waits for a transaction."""


class GroupOffset(NamedTuple):
    """An offset that a group has committed, and its note."""

    offset: int
    metadata: str


class SourceAcl(NamedTuple):
    """An ACL of the source in Kafka's words; UNKNOWN for one that librdkafka does not know."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str

    def __str__(self) -> str:
        """It as `Acl` shows one."""
        pattern = f"{self.pattern_type} {self.resource_type} {self.resource_name}"
        return f"{self.permission} {self.operation} on {pattern} to {self.principal} from {self.host}"


class NoAcls(NotFound):
    """The source has no ACLs."""


class Source:
    """A Kafka cluster. Thread-safe but for `consumer`; blocking.

    Methods raise Unreachable where no broker answers, AuthorizationFailed where it forbids.
    """

    def __init__(self, bootstrap: str, config: str = "", group: str = "lakelog-mirror") -> None:
        """`bootstrap` has `host:port,…`, the file `config` librdkafka's settings. Raises InvalidArgument."""
        self.bootstrap = bootstrap
        self._group = group
        self._config = self._told(config)
        self._why: KafkaError | None = None
        told = {name: value for name, value in self._config.items() if name != "group.id"}
        settings = {**self._connecting(), **told, **self._common(), "error_cb": self._hear}
        self._admin = _made(AdminClient, settings, config)
        self._file = config

    def _told(self, file: str) -> dict[str, str]:
        return {"group.id": self._group, **(properties(file) if file else {})}

    def is_set_otherwise(self) -> bool:
        """Whether the file with its settings can be read, and has others now than when this was made."""
        try:
            return self._told(self._file) != self._config
        except InvalidArgument:
            return False

    def _connecting(self) -> dict[str, Any]:
        """_CONNECTING, unless the file says anything of that: it would have to fit."""
        return {} if any(name.startswith("reconnect.") for name in self._config) else _CONNECTING

    def _common(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap, "client.id": "lakelog-mirror", "logger": _seldom}

    def consumer(self, **reading: Any) -> Consumer:
        """A consumer that is told where it reads, and remembers nothing. Its caller closes it.

        `reading` has settings with `_` for `.`, which the file may change.
        """
        asked = {name.replace("_", "."): value for name, value in reading.items()}
        config = {
            **self._connecting(),
            **_READING,
            **asked,
            **self._config,
            **self._common(),
            **_OURS,
            "error_cb": _note,
        }
        return _made(Consumer, config, self._file)

    def cluster_id(self) -> str:
        """The id that the cluster gives itself; "" from brokers that do not say."""
        return (
            self._asked(lambda: self._admin.describe_cluster(request_timeout=ASKED_S).result()).cluster_id
            or ""
        )

    def topics(self) -> dict[str, int]:
        """How many partitions each topic has that clients may see; without Kafka's own."""
        found = self._asked(lambda: self._admin.list_topics(timeout=ASKED_S)).topics
        return {
            name: len(topic.partitions)
            for name, topic in found.items()
            if topic.error is None and not name.startswith(INTERNAL)
        }

    def ids(self, names: Iterable[str]) -> dict[str, str | UnknownAtSource | AuthorizationFailed]:
        """The ids of topics, 32 hexadecimal digits, "" where a broker is too old to have them; an error for
        those that are not there, or that this client may not see.
        """
        wanted = [*names]
        if not wanted:
            return {}
        asked = self._admin.describe_topics(TopicCollection(wanted), request_timeout=ASKED_S)
        found: dict[str, str | UnknownAtSource | AuthorizationFailed] = {}
        for name, future in asked.items():
            try:
                found[name] = _hex(self._asked(future.result).topic_id)
            except (UnknownAtSource, AuthorizationFailed) as error:
                found[name] = error
        return found

    def settings(self, names: Iterable[str]) -> dict[str, dict[str, str] | AuthorizationFailed]:
        """The settings of topics, those of the broker where they have none of their own; an error for those
        whose settings this client may not see. Without topics that are not there.
        """
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        if not resources:
            return {}
        found: dict[str, dict[str, str] | AuthorizationFailed] = {}
        for resource, future in self._admin.describe_configs(resources, request_timeout=ASKED_S).items():
            try:
                entries = self._asked(future.result)
            except UnknownAtSource:
                continue
            except AuthorizationFailed as error:
                found[resource.name] = error
                continue
            found[resource.name] = {
                key: entry.value for key, entry in entries.items() if entry.value is not None
            }
        return found

    def settings_of(self, name: str) -> dict[str, str]:
        """`settings` of one topic; none if it is not there. Raises AuthorizationFailed, too."""
        found = self.settings([name]).get(name, {})
        if isinstance(found, AuthorizationFailed):
            raise found
        return found

    def acls(self) -> list[SourceAcl]:
        """All ACLs of the cluster. Raises NoAcls, too."""
        found = self._asked(self._admin.describe_acls(_EVERY_ACL, request_timeout=ASKED_S).result)
        if not found:
            self._refuse_no_acls()
        return [*map(_acl, found)]

    def _refuse_no_acls(self) -> NoReturn:
        """Say why there are no ACLs: librdkafka gives none, and no error, where the cluster shows none."""
        options = {"include_authorized_operations": True, "request_timeout": ASKED_S}
        may = self._asked(self._admin.describe_cluster(**options).result).authorized_operations
        if AclOperation.DESCRIBE not in (may or ()):
            raise AuthorizationFailed(
                f"the source at {self.bootstrap} shows its ACLs only to those who may DESCRIBE the cluster; "
                "let this client do that, by `kafka-acls --add --allow-principal User:NAME --operation "
                "Describe --cluster` there"
            )
        raise NoAcls(
            f"the source at {self.bootstrap} has no ACLs: without an authorizer everybody may do everything "
            "there, and with one only its super users; make the ACLs that are wanted here by `lakelog acl "
            "create`"
        )

    def ranges(self, partitions: Sequence[Place]) -> dict[Place, SourceRange]:
        """The offsets of partitions; without those that are not there, or have no leader."""
        starts = self._offsets(partitions, _EARLIEST)
        ends = self._offsets(partitions, _LATEST)
        return {
            each: SourceRange(starts[each], ends[each])
            for each in partitions
            if each in starts and each in ends
        }

    def _offsets(self, partitions: Sequence[Place], spec: OffsetSpec) -> dict[Place, int]:
        if not partitions:
            return {}
        asked = self._admin.list_offsets(
            {TopicPartition(*each): spec for each in partitions},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=ASKED_S,
        )
        found = {}
        for at, future in asked.items():
            try:
                offset = self._asked(future.result).offset
                if offset >= 0:  # of a broker that ended amid its answer librdkafka gives none, and no error
                    found[Place(at.topic, at.partition)] = offset
            except (UnknownAtSource, NotNow):
                continue
        return found

    def groups(self, whole: bool) -> dict[str, bool]:
        """The groups that this client may see, and whether each has members: those of all brokers if it is to
        be `whole`, else of those that answer.
        """
        found = self._asked(lambda: self._admin.list_consumer_groups(request_timeout=ASKED_S).result())
        if found.errors and (whole or not found.valid):
            raise error_of(found.errors[0], self.bootstrap)
        return {each.group_id: each.state is not ConsumerGroupState.EMPTY for each in found.valid}

    def group_offsets(
        self, groups: Iterable[str], stable: bool
    ) -> "dict[str, dict[Place, GroupOffset] | LakelogError]":
        """The offsets that each of these groups has committed, or why they are not known: UnknownAtSource,
        AuthorizationFailed, and if they are to be `stable` NotNow while one waits for the end of a
        transaction.
        """
        asked = {
            name: self._admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(name)], require_stable=stable, request_timeout=ASKED_S
            )[name]
            for name in groups
        }
        found: dict[str, dict[Place, GroupOffset] | LakelogError] = {}
        for name, future in asked.items():
            try:
                offsets = self._asked(future.result).topic_partitions or ()
            except LakelogError as error:
                found[name] = error
                continue
            failed = next((each.error for each in offsets if each.error is not None), None)
            found[name] = (
                {
                    Place(each.topic, each.partition): GroupOffset(each.offset, each.metadata or "")
                    for each in offsets
                    if each.offset >= 0
                }
                if failed is None
                else error_of(failed, self.bootstrap)
            )
        return found

    def _asked(self, ask: Callable[[], _Result]) -> _Result:
        """Ask. Where no broker answers, librdkafka has said elsewhere why, since the last answer."""
        try:
            answer = ask()
        except KafkaException as error:
            self._admin.poll(0)
            failure = error.args[0]
            if failure.code() in _SILENT and self._why is not None:
                failure = self._why
            raise error_of(failure, self.bootstrap) from None
        self._admin.poll(0)
        self._why = None
        return answer

    def _hear(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._why = error


_SILENT = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}
_UNKNOWN = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError.GROUP_ID_NOT_FOUND,
}
_MOVING = {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}


def error_of(error: KafkaError, bootstrap: str) -> LakelogError:
    """Our error that says what librdkafka's means to a copy."""
    said = error.str()
    if error.code() in _UNKNOWN:
        return UnknownAtSource(f"the source at {bootstrap} says: {said}")
    if error.code() in _MOVING:
        return NotNow(f"the source at {bootstrap} says: {said}; it is asked again")
    if error.code() in _FORBIDDEN:
        return AuthorizationFailed(
            f"the source at {bootstrap} says: {said}; check the credential in the file of --config, and what "
            "it may do there"
        )
    return Unreachable(f"the source at {bootstrap} does not answer: {said}; check its address")


def properties(file: str) -> dict[str, str]:
    """The settings in a file of `name=value` lines, of which `#` begins a comment. Raises InvalidArgument."""
    try:
        lines = Path(file).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the file {file} of --config cannot be read ({error}); correct it") from None
    found = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith(("#", "!")):
            continue
        name, separator, value = (part.strip() for part in line.partition("="))
        if not separator:
            raise InvalidArgument(f"line {number} of {file} is not name=value; write it so")
        if name in _OURS or name == "bootstrap.servers":
            raise InvalidArgument(f"{file} sets {name}, which the mirror sets itself; remove line {number}")
        found[name] = value
    return found


def _made(kind: Callable[[dict[str, Any]], _Result], config: Mapping[str, Any], file: str) -> _Result:
    try:
        return kind({**config})
    except (KafkaException, ValueError, TypeError) as error:
        said = error.args[0].str() if isinstance(error, KafkaException) else error
        raise InvalidArgument(
            f"librdkafka refuses the settings of {file or 'the source'}: {said}; see its CONFIGURATION.md"
        ) from None


def _note(error: KafkaError) -> None:
    _seldom.warning("the source: %s", error.str())


class _Seldom(logging.Filter):
    """Lets the same through once in a minute, whatever its numbers are: librdkafka says at each attempt that
    nobody listens.
    """

    def __init__(self) -> None:
        super().__init__()
        self._said_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text, now = _NUMBERS.sub("", record.getMessage().rpartition("]: ")[2]), timer()
        seldom = now >= self._said_s.get(text, -_SAID_S) + _SAID_S
        if seldom:
            self._said_s = {each: at for each, at in self._said_s.items() if now < at + _SAID_S}
            self._said_s[text] = now
        return seldom


_seldom = logging.getLogger(f"{__name__}.librdkafka")
_seldom.addFilter(_Seldom())


def _hex(topic_id: Uuid) -> str:
    number = base64.urlsafe_b64decode(f"{topic_id}==")
    return number.hex() if any(number) else ""


def _acl(binding: Any) -> SourceAcl:
    kind = "CLUSTER" if binding.restype is ResourceType.BROKER else binding.restype.name
    did = binding.operation.name, binding.permission_type.name
    pattern = binding.resource_pattern_type.name
    return SourceAcl(kind, binding.name, pattern, binding.principal, binding.host, *did)
