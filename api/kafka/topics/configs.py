"""DescribeConfigs and ListConfigResources: the settings of topics and of this gateway (KIP-133, KIP-226)."""

import asyncio
from collections.abc import Iterator, Mapping
from enum import IntEnum
from functools import cache
from itertools import islice
from typing import NamedTuple

from api.client_topics import TopicDescription, describe_named, describe_topics
from api.kafka.clients.client import Client
from api.kafka.clients.door import Door, named_once
from api.kafka.clients.errors import ErrorCode, Refusal, said
from api.kafka.protocol.messages.configs import (
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from api.kafka.topics.group_configs import GROUP, GroupSetting, group_settings, named_groups
from coordinator.groups.state.group import Group
from ingest.settings import Settings
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.config import TopicConfig
from log_tables.cluster.credential import AuthenticationMethod
from log_tables.cluster.setting import WITHOUT_EFFECT, Columns, ListSetting, Ratio, Setting
from log_tables.cluster.topic_settings import KAFKA_SETTINGS
from log_tables.errors import AuthorizationFailed, BufferFull, LakelogError, UnknownTopic
from log_tables.limits import KAFKA_RESOURCES_MAX, KIB

DESCRIBED_BYTES = 16 * KIB
"""Room for the settings of one resource, as they are sent."""

_INT_MAX = 2**31 - 1

PROTOCOL_VERSION = "4.3-IV0"
"""As brokers of Kafka write it: a version, and a count of changes of their own protocol."""


_BROKER_FIELDS: Mapping[str, tuple[str, str]] = {
    "auto.create.topics.enable": (
        "auto_create_topics_enable",
        "Whether a Kafka client that asks for a topic by name makes it, as Kafka's do.",
    ),
    "broker.rack": ("broker_rack", "Where the gateway stands, as Kafka's clients name it in client.rack."),
    "connections.max.idle.ms": (
        "kafka_connections_max_idle_ms",
        "How long, in ms, a connection of a Kafka client may be idle before it is closed.",
    ),
    "group.consumer.assignment.interval.ms": (
        "group_consumer_assignment_interval_ms",
        "The least time, in ms, between two assignments of a group's partitions.",
    ),
    "group.consumer.heartbeat.interval.ms": (
        "group_consumer_heartbeat_interval_ms",
        "How often, in ms, a member by KIP-848 is to say that it is alive.",
    ),
    "group.consumer.max.size": ("group_max_size", "Members that one group may have."),
    "group.consumer.session.timeout.ms": (
        "group_consumer_session_timeout_ms",
        "How long, in ms, a member by KIP-848 may be silent.",
    ),
    "group.max.session.timeout.ms": (
        "group_max_session_timeout_ms",
        "The most session.timeout.ms, in ms, that an instance may ask for.",
    ),
    "group.max.size": ("group_max_size", "Consumer instances that one group may have; more answer 429."),
    "group.min.session.timeout.ms": (
        "group_min_session_timeout_ms",
        "The least session.timeout.ms, in ms, that an instance may ask for.",
    ),
    "max.connections": (
        "max_connections",
        "Connections at once, fewer where the file limit is low; more are answered 503.",
    ),
    "max.connections.per.ip": (
        "max_connections_per_ip",
        "Connections at once from one address; 0 means no bound of its own.",
    ),
    "num.partitions": ("num_partitions", "Partitions of a topic that is created without naming a count."),
    "offsets.retention.minutes": (
        "offsets_retention_minutes",
        "How long, in minutes, a group without instances and commits is remembered.",
    ),
    "offsets.topic.num.partitions": (
        "offsets_topic_num_partitions",
        "Partitions of __consumer_offsets when it is made: what groups are spread over.",
    ),
    "socket.request.max.bytes": (
        "max_request_bytes",
        "Largest request body, in bytes; a larger one answers 413.",
    ),
    "ssl.client.auth": ("ssl_client_auth", "Whether clients are asked for a certificate, and need one."),
}
"""The settings of a gateway, by Kafka's names, and what each is for."""


class ConfigSource(IntEnum):
    """Where the value of a setting comes from, by Kafka's numbers."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_GROUP_CONFIG = 8
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


class BrokerSetting(NamedTuple):
    """A setting, its default, and what it is for."""

    name: str
    value: bool | int | str
    default: bool | int | str
    meaning: str


def broker_settings(settings: Settings) -> Iterator[BrokerSetting]:
    """The settings of this gateway that Kafka has a name for, by name. Clients read them; only its
    owner changes them.
    """
    meaning = "HOST:PORT that Kafka's clients are told; empty: made from kafka_listener."
    yield BrokerSetting("advertised.listeners", _advertised(settings), "", meaning)
    meaning = "The version of Kafka whose APIs this gateway speaks; consoles choose what they show by it."
    yield BrokerSetting("inter.broker.protocol.version", PROTOCOL_VERSION, PROTOCOL_VERSION, meaning)
    for name, (field, meaning) in _BROKER_FIELDS.items():
        yield BrokerSetting(name, getattr(settings, field), Settings.model_fields[field].default, meaning)


def _advertised(settings: Settings) -> str:
    """As Kafka writes an address: with the protocol of security that clients use there."""
    if not settings.kafka_advertised_listener:
        return ""
    words = ["SASL"] if {*settings.authentication_methods} - {AuthenticationMethod.MTLS} else []
    words.append("SSL" if settings.ssl_certfile else "PLAINTEXT")
    return f"{'_'.join(words)}://{settings.kafka_advertised_listener}"


class ConfigResourceType(IntEnum):
    """The kinds of what has settings, by Kafka's numbers (org.apache.kafka.common.config.ConfigResource)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = GROUP


_GROUP_NEEDS = Operation.DESCRIBE_CONFIGS, ResourceType.GROUP


class ConfigType(IntEnum):
    """The kind of a setting's values, by Kafka's numbers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


async def describe_configs(
    door: Door, client: Client, request: DescribeConfigsRequest, _version: int
) -> DescribeConfigsResponse:
    """All settings with their values. Those of a gateway only it knows."""
    full: Refusal | None = None

    def describe() -> list[DescribeConfigsResult]:
        named = named_once(request.resources, lambda each: (each.resource_type, each.resource_name))
        topics = describe_named(door.here, (each.resource_name for each, _ in named))
        return [
            _described(door, client, request, each, full or refusal or _found(each, topics, groups))
            for each, refusal in named
        ]

    room = min(len(request.resources), KAFKA_RESOURCES_MAX) * DESCRIBED_BYTES
    try:
        client.room.settle(room)
    except BufferFull as error:
        full = Refusal(*said(error))
    asked = (each.resource_name for each in request.resources if each.resource_type == GROUP)
    allowed = (name for name in asked if client.caller.may(*_GROUP_NEEDS, name))
    groups = await named_groups(door, islice(allowed, 0 if full else KAFKA_RESOURCES_MAX))
    return DescribeConfigsResponse(results=await asyncio.to_thread(describe))


def _found(
    asked: DescribeConfigsResource,
    topics: Mapping[str, TopicDescription],
    groups: Mapping[str, Group | LakelogError],
) -> TopicDescription | Group | LakelogError | None:
    name = asked.resource_name
    return groups.get(name) if asked.resource_type == GROUP else topics.get(name)


def _described(
    door: Door,
    client: Client,
    request: DescribeConfigsRequest,
    asked: DescribeConfigsResource,
    found: TopicDescription | Group | LakelogError | Refusal | None,
) -> DescribeConfigsResult:
    """With no more than was asked for."""
    kind, name, keys = asked.resource_type, asked.resource_name, asked.configuration_keys
    result = DescribeConfigsResult(error_message=None, resource_type=kind, resource_name=name)
    more = (request.include_synonyms, request.include_documentation)
    try:
        if isinstance(found, Refusal | LakelogError):
            raise found
        wanted = {*keys} if keys else None
        result.configs = [
            _entry(each, *more)
            for each in _settings(door, client, asked, found)
            if wanted is None or each.name in wanted
        ]
    except (LakelogError, Refusal) as error:
        result.error_code, result.error_message = said(error, denied_code(kind))
    return result


def denied_code(resource_type: int) -> ErrorCode:
    """The code of a denial of what has settings."""
    if resource_type == ConfigResourceType.TOPIC:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if resource_type == ConfigResourceType.GROUP:
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def check_resource(client: Client, operation: Operation, resource_type: int, name: str) -> None:
    """Raise AuthorizationFailed unless `client` may do this with settings, Refusal where there are none."""
    if resource_type == ConfigResourceType.TOPIC:
        client.caller.check(operation, ResourceType.TOPIC, name)
        return
    if resource_type == ConfigResourceType.GROUP:
        client.caller.check(operation, ResourceType.GROUP, name)
        return
    client.caller.check(operation, ResourceType.CLUSTER)
    if resource_type != ConfigResourceType.BROKER:
        known = "topics (2), brokers (4) and groups (32)"
        message = f"resources of type {resource_type} have no settings here; {known} have"
        raise Refusal(ErrorCode.INVALID_REQUEST, message)


class _Found(NamedTuple):
    """A setting of a resource, as an answer has it."""

    name: str
    value: str
    default: str
    source: ConfigSource
    type: ConfigType
    read_only: bool
    meaning: str


def _settings(
    door: Door, client: Client, asked: DescribeConfigsResource, found: TopicDescription | Group | None
) -> Iterator[_Found]:
    """All settings of a resource. Raises AuthorizationFailed, UnknownTopic, Refusal."""
    name = asked.resource_name
    check_resource(client, Operation.DESCRIBE_CONFIGS, asked.resource_type, name)
    if asked.resource_type == ConfigResourceType.TOPIC:
        if not isinstance(found, TopicDescription):
            raise UnknownTopic(f"there is no topic {name[:249]!r}; check its name, or create it")
        return _of_topic(found.config)
    if isinstance(found, Group):
        return map(_of_group, group_settings(door.here.settings, found.configs))
    if name == "":
        return iter(())  # Kafka's defaults for all brokers: a gateway has settings of its own alone
    if name != str(door.node_id):
        message = f"this is gateway {door.node_id}; ask the gateway {name[:20]!r} for its settings"
        raise Refusal(ErrorCode.INVALID_REQUEST, message)
    return map(_of_broker, broker_settings(door.here.settings))


def _of_topic(config: TopicConfig) -> Iterator[_Found]:
    for name, default in _DEFAULTS.items():
        if name in config.overrides:
            yield default._replace(value=config[name], source=ConfigSource.DYNAMIC_TOPIC_CONFIG)
        else:
            yield default


def _entry(found: _Found, synonyms: bool, documentation: bool) -> DescribeConfigsResourceResult:
    is_default = found.source is ConfigSource.DEFAULT_CONFIG
    return (_shared_entry if is_default else _new_entry)(found, synonyms, documentation)


def _new_entry(found: _Found, synonyms: bool, documentation: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=found.name,
        value=found.value,
        read_only=found.read_only,
        config_source=found.source,
        synonyms=_synonyms(found) if synonyms else [],
        config_type=found.type,
        documentation=found.meaning if documentation else None,
    )


_shared_entry = cache(_new_entry)
"""Of defaults, which most settings of most topics have: the answers do not change it."""


def _type(setting: Setting) -> ConfigType:
    if isinstance(setting, ListSetting):
        return ConfigType.LIST
    if isinstance(setting, Ratio):
        return ConfigType.DOUBLE
    if "false" in setting.choices:
        return ConfigType.BOOLEAN
    if isinstance(setting, Columns) or not setting.default.lstrip("-").isdigit():
        return ConfigType.STRING
    return ConfigType.INT if setting.high <= _INT_MAX else ConfigType.LONG


def _meaning(setting: Setting) -> str:
    return f"Without effect. {setting.meaning}" if setting.name in WITHOUT_EFFECT else setting.meaning


_DEFAULTS = {
    name: _Found(
        name, each.default, each.default, ConfigSource.DEFAULT_CONFIG, _type(each), False, _meaning(each)
    )
    for name, each in KAFKA_SETTINGS.items()
}
"""The settings of a topic for which nobody has set one."""


def _of_broker(setting: BrokerSetting) -> _Found:
    is_set = setting.value != setting.default
    source = ConfigSource.STATIC_BROKER_CONFIG if is_set else ConfigSource.DEFAULT_CONFIG
    kinds = {bool: ConfigType.BOOLEAN, str: ConfigType.STRING}
    kind = kinds.get(type(setting.default), ConfigType.LONG)
    value, default = _text(setting.value), _text(setting.default)
    return _Found(setting.name, value, default, source, kind, True, setting.meaning)


def _of_group(found: GroupSetting) -> _Found:
    setting, value = found
    source = ConfigSource.DEFAULT_CONFIG if value is None else ConfigSource.DYNAMIC_GROUP_CONFIG
    shown = setting.default if value is None else value
    return _Found(setting.name, shown, setting.default, source, ConfigType.INT, False, setting.meaning)


def _text(value: bool | int | str) -> str:
    return (
        str(value).lower() if isinstance(value, bool) else f"{value:d}" if isinstance(value, int) else value
    )


def _synonyms(found: _Found) -> list[DescribeConfigsSynonym]:
    """Where the value may come from: the first of them is the one that holds."""
    name, source = found.name, ConfigSource.DEFAULT_CONFIG
    held = [DescribeConfigsSynonym(name=name, value=found.default, source=source)]
    if found.source is not source:
        held.insert(0, DescribeConfigsSynonym(name=name, value=found.value, source=found.source))
    return held


async def list_config_resources(
    door: Door, client: Client, request: ListConfigResourcesRequest, version: int
) -> ListConfigResourcesResponse:
    """Topics that the client may describe, and gateways. Version 0 knows only resources that are not here."""
    wanted = {*request.resource_types}
    if version == 0:
        wanted = {ConfigResourceType.CLIENT_METRICS}
    elif not wanted:
        wanted = {*ConfigResourceType}
    try:
        client.caller.check(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
    except AuthorizationFailed:
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not wanted <= {*ConfigResourceType}:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    found = []
    if ConfigResourceType.TOPIC in wanted:
        topics = await asyncio.to_thread(describe_topics, door.here)
        seen = [each.name for each in topics if client.caller.describes(each.name)]
        found += [_resource(ConfigResourceType.TOPIC, name) for name in seen]
    if ConfigResourceType.BROKER in wanted:
        found += [_resource(ConfigResourceType.BROKER, str(each.id)) for each in door.brokers()]
    if ConfigResourceType.GROUP in wanted:
        groups = await door.here.shard_manager.named_groups()
        seen = [each.id for each in groups if each.configs and client.caller.allows(*_GROUP_NEEDS, each.id)]
        found += [_resource(ConfigResourceType.GROUP, name) for name in seen]
    return ListConfigResourcesResponse(config_resources=found)


def _resource(kind: ConfigResourceType, name: str) -> ConfigResource:
    return ConfigResource(resource_name=name, resource_type=kind)
