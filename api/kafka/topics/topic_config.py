"""The settings of topics as Kafka's clients write them."""

from collections.abc import Iterable
from enum import IntEnum

from api.kafka.clients.errors import ErrorCode, Refusal
from log_tables.cluster.config import KAFKA_SETTINGS
from log_tables.cluster.setting import Columns, ListSetting

_TRUTHS = {"false", "true"}


class ConfigSource(IntEnum):
    """Where the value of a setting comes from, by Kafka's numbers."""

    DYNAMIC_TOPIC_CONFIG = 1
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


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
