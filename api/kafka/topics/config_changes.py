"""AlterConfigs and IncrementalAlterConfigs: the settings of topics (KIP-133, KIP-339).

Each topic is changed whole or not at all. The settings of a gateway are its owner's.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import NamedTuple, TypeVar

from api.kafka.clients.client import Client
from api.kafka.clients.door import Door, in_thread, named_once
from api.kafka.clients.errors import ErrorCode, Refusal, said
from api.kafka.protocol.messages import configs
from api.kafka.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from api.kafka.topics.configs import ConfigResourceType, check_resource, denied_code
from api.kafka.topics.group_configs import GROUP, alter_groups
from api.topic_changes import with_readable_source
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.admin.topic_admin import change_config, check_change
from log_tables.cluster.config import TopicConfig
from log_tables.cluster.setting import Columns, ListSetting
from log_tables.cluster.topic_settings import KAFKA_SETTINGS
from log_tables.errors import InvalidConfig, LakelogError

_TRUTHS = {"false", "true"}


class AlterOperation(IntEnum):
    """A change of one setting, by Kafka's numbers (org.apache.kafka.clients.admin.AlterConfigOp)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class _Alteration(NamedTuple):
    """A change of the settings of a topic, and how the audit log shows it."""

    change: Callable[[TopicConfig], TopicConfig]
    shown: Mapping[str, str | None]


_Resource = TypeVar("_Resource", configs.AlterConfigsResource, configs.IncrementalConfigsResource)


async def alter_configs(
    door: Door, client: Client, request: AlterConfigsRequest, _version: int
) -> AlterConfigsResponse:
    """The settings that a topic is to have, all of them: those that are not named get their defaults."""
    alter = partial(_alter, door, client, "AlterConfigs", _replacement, request.validate_only)
    return AlterConfigsResponse(responses=await in_thread(door, lambda: alter(request.resources)))


async def incremental_alter_configs(
    door: Door, client: Client, request: IncrementalAlterConfigsRequest, _version: int
) -> IncrementalAlterConfigsResponse:
    """Single settings set or reset, and words put into lists or taken out of them."""
    alter = partial(_alter, door, client, "IncrementalAlterConfigs", _increment, request.validate_only)
    groups = [each for each in request.resources if each.resource_type == GROUP]
    others = [each for each in request.resources if each.resource_type != GROUP]
    responses = await in_thread(door, lambda: alter(others)) if others else []
    responses += await alter_groups(door, client, groups, request.validate_only)
    return IncrementalAlterConfigsResponse(responses=responses)


def _alter(
    door: Door,
    client: Client,
    operation: str,
    read: Callable[[_Resource], _Alteration],
    only_checked: bool,
    resources: Sequence[_Resource],
) -> list[configs.AlterConfigsResourceResponse]:
    """Change each of `resources` as `read` says; blocking."""
    outcomes = []
    for each, refusal in named_once(resources, lambda each: (each.resource_type, each.resource_name)):
        kind, name = each.resource_type, each.resource_name
        outcome = configs.AlterConfigsResourceResponse(
            error_message=None, resource_type=kind, resource_name=name
        )
        outcomes.append(outcome)
        try:
            if refusal is not None:
                raise refusal
            _check(client, kind, name)
            alteration = read(each)
            change = with_readable_source(client.caller, alteration.change)
            if only_checked:
                check_change(door.here.cluster, name, change)
            else:
                with client.caller.changing(operation, ResourceType.TOPIC, name, configs=alteration.shown):
                    change_config(door.here.cluster, name, change)
        except (LakelogError, Refusal) as error:
            outcome.error_code, outcome.error_message = said(error, denied_code(kind))
    return outcomes


def _check(client: Client, kind: int, name: str) -> None:
    """Raise AuthorizationFailed, Refusal unless `client` may change the settings of a topic."""
    check_resource(client, Operation.ALTER_CONFIGS, kind, name)
    if kind == ConfigResourceType.GROUP:
        message = "the settings of groups are changed one by one; send IncrementalAlterConfigs"
        raise Refusal(ErrorCode.INVALID_REQUEST, message)
    if kind != ConfigResourceType.TOPIC:
        message = "the settings of a gateway cannot be changed by its clients; set them where it is started"
        raise Refusal(ErrorCode.INVALID_REQUEST, message)


def _replacement(asked: configs.AlterConfigsResource) -> _Alteration:
    wanted = plain_configs(((each.name, each.value) for each in asked.configs), ErrorCode.INVALID_REQUEST)
    return _Alteration(lambda _: TopicConfig.parse(wanted, KAFKA_SETTINGS), wanted)


def _increment(asked: configs.IncrementalConfigsResource) -> _Alteration:
    changes = _plain_changes(asked.configs)

    def change(config: TopicConfig) -> TopicConfig:
        values = {each.name: _changed(config, each) for each in changes}
        return config.altered(values, KAFKA_SETTINGS)

    return _Alteration(change, {each.name: _shown(each) for each in changes})


class _SettingChange(NamedTuple):
    name: str
    operation: AlterOperation
    value: str


def _plain_changes(asked: Sequence[configs.IncrementalConfig]) -> list[_SettingChange]:
    """The changes of single settings. Raises Refusal, InvalidConfig for what cannot be done to any topic."""
    names = Counter(each.name for each in asked)
    found = []
    for each in asked:
        shown = repr(each.name[:100])
        if names[each.name] > 1:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"the setting {shown} is named twice")
        try:
            operation = AlterOperation(each.config_operation)
        except ValueError:
            message = f"{each.config_operation} is no operation on a setting; 0 to 3 are"
            raise Refusal(ErrorCode.INVALID_REQUEST, message) from None
        if each.value is None and operation is not AlterOperation.DELETE:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"the setting {shown} has no value; give it one")
        is_list = isinstance(KAFKA_SETTINGS.get(each.name), ListSetting)
        if operation in (AlterOperation.APPEND, AlterOperation.SUBTRACT) and not is_list:
            raise InvalidConfig(f"the setting {shown} is no list; set it")
        found.append(_SettingChange(each.name, operation, plain(each.name, each.value or "")))
    return found


def _changed(config: TopicConfig, asked: _SettingChange) -> str | None:
    """The new value of a setting; None resets it."""
    if asked.operation is AlterOperation.DELETE:
        return None
    if asked.operation is AlterOperation.SET:
        return asked.value
    words, named = _words(config[asked.name]), _words(asked.value)
    if asked.operation is AlterOperation.APPEND:
        return ",".join(dict.fromkeys([*words, *named]))
    return ",".join(word for word in words if word not in named)


def _words(value: str) -> list[str]:
    return [word for word in value.split(",") if word]


def _shown(asked: _SettingChange) -> str | None:
    """As the audit log shows it: null where a setting is reset, as over HTTP."""
    match asked.operation:
        case AlterOperation.DELETE:
            return None
        case AlterOperation.SET:
            return asked.value
    return f"{asked.operation.name} {asked.value}"


def plain(name: str, value: str) -> str:
    """`value` of the setting `name` as lakelog writes it: Kafka takes blanks around words, and TRUE."""
    setting = KAFKA_SETTINGS.get(name)
    if setting is None or isinstance(setting, Columns):
        return value
    if isinstance(setting, ListSetting):
        return ",".join(word.strip() for word in value.split(","))
    value = value.strip()
    return value.lower() if _TRUTHS.issuperset(setting.choices) else value


def plain_configs(configs: Iterable[tuple[str, str | None]], no_value: ErrorCode) -> dict[str, str]:
    """Settings with values, each named once. Raises Refusal, with `no_value` for one without a value."""
    found: dict[str, str] = {}
    for name, value in configs:
        if value is None:
            raise Refusal(no_value, f"the setting {name[:100]!r} has no value; give it one")
        if name in found:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"the setting {name[:100]!r} is named twice")
        found[name] = plain(name, value)
    return found
