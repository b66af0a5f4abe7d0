"""The kinds of settings that a topic has, and the values that they take.

Kafka's clients send some that lakelog has no use for. They are taken from these clients, kept, shown, and
without effect. One that promises something about records is taken with the one value that says what lakelog
does.
"""

import re
from dataclasses import dataclass

from log_tables.columns.declaration import parse
from log_tables.errors import InvalidConfig
from log_tables.limits import MIB, SCHEMA_TEXT_MAX_CHARS
from log_tables.schemas.source import check_source

_INTEGER = re.compile(r"-?[0-9]{1,19}")
_RATIO = re.compile(r"0(\.[0-9]{1,15})?|1(\.0{1,15})?")
_REPLICAS = re.compile(r"|\*|[0-9]{1,10}:[0-9]{1,10}(,[0-9]{1,10}:[0-9]{1,10})*")


@dataclass(frozen=True, slots=True)
class Setting:
    """A topic setting: its Kafka name, default, meaning and values.

    Its values are `choices`, or without these whole numbers from `low` to `high`.
    """

    name: str
    default: str
    meaning: str
    choices: tuple[str, ...] = ()
    low: int = 0
    high: int = 2**63 - 1

    @property
    def shown_choices(self) -> list[str]:
        """The choices as people read them: an empty one as quotation marks."""
        return [choice or '""' for choice in self.choices]

    def check(self, value: str) -> None:
        """Raise InvalidConfig for a value that the setting cannot have."""
        if self.choices:
            if value not in self.choices:
                choices = ", ".join(self.shown_choices)
                raise InvalidConfig(f"{self.name}={value!r} is not one of its values; use one of {choices}")
        elif not _INTEGER.fullmatch(value) or not self.low <= int(value) <= self.high:
            raise InvalidConfig(
                f"{self.name}={value!r} is not allowed; use a whole number from {self.low} to {self.high}"
            )


class Ratio(Setting):
    """A setting that is a fraction from 0 to 1."""

    def check(self, value: str) -> None:
        if not _RATIO.fullmatch(value):
            raise InvalidConfig(
                f"{self.name}={value!r} is not allowed; use a fraction from 0 to 1, such as 0.5"
            )


class Columns(Setting):
    """A setting that declares columns."""

    def check(self, value: str) -> None:
        parse(value)


class FreeText(Setting):
    """A setting that is a text of up to SCHEMA_TEXT_MAX_CHARS."""

    def check(self, value: str) -> None:
        if len(value) > SCHEMA_TEXT_MAX_CHARS:
            raise InvalidConfig(
                f"{self.name} has {len(value)} characters; use at most {SCHEMA_TEXT_MAX_CHARS}"
            )


class SchemaSource(Setting):
    """A setting that says where schemas are found by their ids."""

    def check(self, value: str) -> None:
        try:
            check_source(value)
        except InvalidConfig as error:
            raise InvalidConfig(f"{self.name}: {error.message}") from None


class ListSetting(Setting):
    """A setting that is a list of words with commas between them; `choices` are whole lists."""

    @property
    def words(self) -> frozenset[str]:
        """All that stand in one of the lists."""
        return frozenset(word for choice in self.choices for word in choice.split(","))


class ReplicaList(ListSetting):
    """A setting that lists replicas, each as PARTITION:BROKER, or is * for all."""

    def check(self, value: str) -> None:
        if not _REPLICAS.fullmatch(value):
            raise InvalidConfig(
                f"{self.name}={value!r} is not allowed; use PARTITION:BROKER,PARTITION:BROKER… or *"
            )


_INT_MAX, _LONG_MAX = 2**31 - 1, 2**63 - 1
_TRUTHS = ("false", "true")


def _number(name: str, default: int, meaning: str, low: int, high: int = _LONG_MAX) -> Setting:
    return Setting(name, str(default), meaning, low=low, high=high)


def _only(name: str, value: str | int, meaning: str) -> Setting:
    return Setting(name, str(value), meaning, choices=(str(value),))


WITHOUT_EFFECT = {
    setting.name: setting
    for setting in (
        _number("min.insync.replicas", 1, "The store keeps the copies.", 1, _INT_MAX),
        Setting(
            "unclean.leader.election.enable", "false", "A leader never lacks what was acknowledged.", _TRUTHS
        ),
        _number("flush.messages", _LONG_MAX, "Records that are acknowledged with acks=all are durable.", 1),
        _number("flush.ms", _LONG_MAX, "Records that are acknowledged with acks=all are durable.", 0),
        _number("index.interval.bytes", 4096, "Segments are Parquet files.", 0, _INT_MAX),
        _number("segment.index.bytes", 10 * MIB, "Segments are Parquet files.", 4, _INT_MAX),
        _number("segment.jitter.ms", 0, "Segments end with their commits.", 0),
        Setting("preallocate", "false", "Segments are Parquet files.", _TRUTHS),
        _number("compression.gzip.level", -1, "Segments have the usual level.", -1, 9),
        _number("compression.lz4.level", 9, "Segments have the usual level.", 1, 17),
        _number("compression.zstd.level", 3, "Segments have the usual level.", -131_072, 22),
        ReplicaList("leader.replication.throttled.replicas", "", "The store keeps the copies."),
        ReplicaList("follower.replication.throttled.replicas", "", "The store keeps the copies."),
        _only("remote.log.copy.disable", "false", "See remote.storage.enable."),
        _only(
            "remote.log.delete.on.disable", "false", "Segments that have moved to the remote root stay there."
        ),
    )
}
"""By name. The defaults are Kafka's."""
