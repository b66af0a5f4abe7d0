"""The kinds of settings that a topic has, and the values that they take."""

import re
from dataclasses import dataclass

from log_tables.columns.declaration import parse
from log_tables.errors import InvalidConfig

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
