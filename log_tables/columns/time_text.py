"""Dates and times of JSON texts: ISO 8601, as docs/columns.md has it."""

import re
from datetime import date, datetime, timedelta

from log_tables.limits import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 (all times are made UTC before they are compared)
_ZONE_MAX_HOURS = 18
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile(
    _DATE.pattern + r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
    r"(?:[Zz]|([+-])([0-9]{2}):?([0-9]{2})?)?)?"
)


def date_days(text: str) -> int | None:
    """The days since 1970 of a date `2013-01-31`; None for any other text."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    try:
        return (date(*map(int, match.groups())) - _EPOCH.date()).days
    except ValueError:
        return None


def time_us(text: str) -> int | None:
    """The microseconds since 1970 UTC of a time in ISO 8601; None for any other text.

    Without a zone it is UTC, without a time of day midnight. More digits than microseconds are cut off. It is
    from TIMESTAMP_MIN_US to TIMESTAMP_MAX_US.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, sign, zone_h, zone_min = match.groups()
    hours, minutes = int(zone_h or 0), int(zone_min or 0)
    if hours > _ZONE_MAX_HOURS or minutes > 59:
        return None
    micros = int((fraction or "").ljust(6, "0")[:6])
    try:
        local = datetime(  # noqa: DTZ001 (the zone is subtracted below)
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), micros
        )
    except ValueError:
        return None
    ahead = timedelta(hours=hours, minutes=minutes) * (-1 if sign == "-" else 1)
    found = (local - _EPOCH - ahead) // timedelta(microseconds=1)
    return found if TIMESTAMP_MIN_US <= found <= TIMESTAMP_MAX_US else None
