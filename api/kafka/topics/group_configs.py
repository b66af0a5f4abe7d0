"""The settings of groups, by Kafka's names, described and changed one by one (KIP-848).

They belong to a name: a group need not be there to have some, and keeps them when it is deleted. Where none
is set the gateway's own settings hold.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from api.kafka.clients.client import Client
from api.kafka.clients.door import Door, named_once
from api.kafka.clients.errors import ErrorCode, Refusal, group_error_code, said
from api.kafka.protocol.messages.configs import (
    AlterConfigsResourceResponse,
    IncrementalConfig,
    IncrementalConfigsResource,
)
from coordinator.groups.events import Configure
from coordinator.groups.state.group import (
    ASSIGNMENT_INTERVAL_MS,
    HEARTBEAT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    Group,
)
from ingest.settings import Settings
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.group_log import check_group_name
from log_tables.cluster.setting import Setting
from log_tables.errors import InvalidConfig, LakelogError

GROUP = 32
"""The type of groups among what has settings (org.apache.kafka.common.config.ConfigResource)."""

SET, DELETE = 0, 1
"""The operations on a setting that is no list (org.apache.kafka.clients.admin.AlterConfigOp)."""


ASSIGNMENT_INTERVAL_MAX_MS = 15_000
"""As Kafka's group.consumer.max.assignment.interval.ms: until then a member that joins may have nothing."""


class GroupSetting(NamedTuple):
    """A setting of a group: its value, None where nobody has set one, and that of the gateway."""

    setting: Setting
    value: str | None


def group_settings(settings: Settings, configs: Mapping[str, str]) -> list[GroupSetting]:
    """All settings of a group that has these `configs`."""
    low, high = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
    found = [
        Setting(
            ASSIGNMENT_INTERVAL_MS,
            str(settings.group_consumer_assignment_interval_ms),
            "The least time, in ms, between two assignments of the group's partitions.",
            low=0,
            high=ASSIGNMENT_INTERVAL_MAX_MS,
        ),
        Setting(
            HEARTBEAT_INTERVAL_MS,
            str(settings.group_consumer_heartbeat_interval_ms),
            "How often, in ms, a member by KIP-848 is to say that it is alive.",
            low=1,
            high=high,
        ),
        Setting(
            SESSION_TIMEOUT_MS,
            str(settings.group_consumer_session_timeout_ms),
            "How long, in ms, a member by KIP-848 may be silent.",
            low=low,
            high=high,
        ),
    ]
    return [GroupSetting(each, configs.get(each.name)) for each in found]


async def named_groups(door: Door, names: Iterable[str]) -> dict[str, Group | LakelogError]:
    """The groups of these names, or why one cannot be looked up."""

    async def found(name: str) -> Group | LakelogError:
        try:
            check_group_name(name)
            return await door.here.classic.group(name)
        except LakelogError as error:
            return error

    known = [*dict.fromkeys(names)]
    return dict(zip(known, await door.here.loop_share.results(found, known), strict=True))


async def alter_groups(
    door: Door, client: Client, resources: Sequence[IncrementalConfigsResource], only_checked: bool
) -> list[AlterConfigsResourceResponse]:
    """Change the settings of groups, each whole or not at all."""

    async def altered(
        asked: tuple[IncrementalConfigsResource, Refusal | None],
    ) -> AlterConfigsResourceResponse:
        each, refusal = asked
        name = each.resource_name
        outcome = AlterConfigsResourceResponse(error_message=None, resource_type=GROUP, resource_name=name)
        try:
            if refusal is not None:
                raise refusal
            client.caller.check(Operation.ALTER_CONFIGS, ResourceType.GROUP, name)
            await _alter(door, client, name, each.configs, only_checked)
        except Refusal as error:
            outcome.error_code, outcome.error_message = said(error)
        except LakelogError as error:
            outcome.error_code, outcome.error_message = group_error_code(error), error.message
        return outcome

    named = named_once(resources, lambda each: each.resource_name)
    return await door.here.loop_share.results(altered, named)


async def _alter(
    door: Door, client: Client, name: str, asked: Sequence[IncrementalConfig], only_checked: bool
) -> None:
    check_group_name(name)
    changes = _changes(asked)
    group = await door.here.classic.group(name)
    merged = {**group.configs, **changes}
    configs = {key: value for key, value in merged.items() if value is not None}
    _check(group_settings(door.here.settings, configs), configs)
    if not only_checked:
        with client.caller.changing("IncrementalAlterConfigs", ResourceType.GROUP, name, configs=changes):
            await door.here.classic.configure(name, Configure(changes))


def _changes(asked: Sequence[IncrementalConfig]) -> dict[str, str | None]:
    """The new values by their names; None resets one. Raises Refusal."""
    found: dict[str, str | None] = {}
    for each in asked:
        if each.name in found:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"the setting {each.name[:100]!r} is named twice")
        if each.config_operation not in (SET, DELETE) or (
            each.config_operation == SET and each.value is None
        ):
            raise Refusal(
                ErrorCode.INVALID_REQUEST, f"the setting {each.name[:100]!r} is a number; set it, or reset it"
            )
        found[each.name] = None if each.config_operation == DELETE else (each.value or "").strip()
    return found


def _check(settings: Sequence[GroupSetting], configs: Mapping[str, str]) -> None:
    """Raise InvalidConfig for names and values that groups cannot have."""
    known = {each.setting.name: each.setting for each in settings}
    for name, value in configs.items():
        if name not in known:
            raise InvalidConfig(f"groups have no setting {name[:100]!r}; use one of {', '.join(known)}")
        known[name].check(value)
    _, interval, session = (int(each.value or each.setting.default) for each in settings)
    if interval >= session:
        raise InvalidConfig(
            f"{HEARTBEAT_INTERVAL_MS}={interval} is not less than {SESSION_TIMEOUT_MS}={session}: members "
            "would be given up; choose a shorter one"
        )
