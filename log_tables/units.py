"""Times and sizes with units, as people write them (`7d`, `1GiB`), and back.

Kafka's clients send whole numbers and nothing else. Units are for what people type: settings of topics over
HTTP and in the console, settings of a gateway, quotas.
"""

import re
from collections.abc import Mapping
from decimal import Decimal

_SECOND = 1_000
MILLISECONDS: Mapping[str, int] = {
    "w": 7 * 24 * 3_600 * _SECOND,
    "d": 24 * 3_600 * _SECOND,
    "h": 3_600 * _SECOND,
    "m": 60 * _SECOND,
    "min": 60 * _SECOND,
    "s": _SECOND,
    "ms": 1,
}
BYTES: Mapping[str, int] = {
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGTP", 1)},
    **{f"{letter}B": 1000**power for power, letter in enumerate("KMGTP", 1)},
    "B": 1,
}
_ENDS = {".ms": MILLISECONDS, "_ms": MILLISECONDS, ".bytes": BYTES, "_bytes": BYTES, "byte_rate": BYTES}
_AMOUNT = re.compile(r"\s*(?P<number>[0-9]{1,15}(\.[0-9]{1,9})?)\s*(?P<unit>[A-Za-z]+)\s*")
_SHOWN_MS = ("d", "h", "m", "s")


def units_of(name: str) -> Mapping[str, int]:
    """The units that the value of a setting may have, which the end of its `name` says; often none."""
    return next((units for end, units in _ENDS.items() if name.endswith(end)), {})


def without_unit(text: str, units: Mapping[str, int]) -> str:
    """`7d` as `604800000`, by `units`; a text that is no whole amount with one of these as it is.

    Sizes may be in upper or lower case. Times are in lower case: a capital M is a month to many, and a minute
    of retention would lose what they have.
    """
    amount = _AMOUNT.fullmatch(text)
    known = {unit.lower(): each for unit, each in units.items()} if units is BYTES else units
    factor = amount and known.get(amount["unit"].lower() if units is BYTES else amount["unit"])
    if not amount or not factor:
        return text
    value = Decimal(amount["number"]) * factor
    return str(int(value)) if value == int(value) else text


def plain(name: str, text: str) -> str:
    """The value of the setting `name` as it is stored: `7d` of `retention.ms` is `604800000`."""
    return without_unit(text, units_of(name))


def explained(name: str, text: str) -> str:
    """The value of the setting `name` for people: `604800000 (7d)`."""
    amount = with_unit(text, units_of(name))
    return f"{text} ({amount})" if amount else text


def with_unit(text: str, units: Mapping[str, int]) -> str:
    """`604800000` as `7d`, in the largest unit that leaves a whole number of at most five digits; empty where
    none does.
    """
    if not text.isdecimal():
        return ""
    named = _SHOWN_MS if units is MILLISECONDS else [unit for unit in units if unit != "B"]
    for unit in sorted(named, key=lambda each: -units[each]) if units else ():
        count, rest = divmod(int(text), units[unit])
        if count and not rest and count < 100_000:
            return f"{count}{unit}"
    return ""
