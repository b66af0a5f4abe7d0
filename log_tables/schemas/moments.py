"""Numbers of Avro and Protobuf as the JSON that stands for them: dates, times, durations, reals.

A date or a time that no calendar text has, before the year 1 or after 9999, stays the number that it is.
"""

import math
import re
from datetime import date, datetime, time, timedelta

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 (a zone is written, not computed)
_FIRST_DAY, _DAYS = _EPOCH.toordinal(), date.max.toordinal()
_DAY_S = 24 * 60 * 60
_FRACTION = re.compile(r"\.([0-9]{1,9})(?=$|[Zz+-])")
_FIRST_S = (datetime(1, 1, 1) - _EPOCH) // timedelta(seconds=1)  # noqa: DTZ001
_LAST_S = (datetime(9999, 12, 31, 23, 59, 59) - _EPOCH) // timedelta(seconds=1)  # noqa: DTZ001


def date_text(days: int) -> str | int:
    """`2013-01-31`, of days since 1970."""
    ordinal = _FIRST_DAY + days
    return date.fromordinal(ordinal).isoformat() if 1 <= ordinal <= _DAYS else days


def local_text(number: int, digits: int) -> str | int:
    """`2013-01-31T05:00:00.123`, of a number since 1970 in units of 10 ** -`digits` seconds."""
    seconds, rest = divmod(number, 10**digits)
    if not _FIRST_S <= seconds <= _LAST_S:
        return number
    text = (_EPOCH + timedelta(seconds=seconds)).isoformat()
    return f"{text}.{rest:0{digits}d}" if rest else text


def instant_text(number: int, digits: int) -> str | int:
    """`local_text`, as a time in UTC."""
    text = local_text(number, digits)
    return f"{text}Z" if isinstance(text, str) else text


def time_text(number: int, digits: int) -> str | int:
    """`05:00:00.123`, of the time since midnight in units of 10 ** -`digits` seconds."""
    seconds, rest = divmod(number, 10**digits)
    if not 0 <= seconds < _DAY_S:
        return number
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{rest:0{digits}d}" if rest else text


def duration_text(months: int, days: int, milliseconds: int) -> str:
    """`P1M2DT3.004S`, as ISO 8601 has it."""
    return f"P{months}M{days}DT{milliseconds // 1000}.{milliseconds % 1000:03d}S"


def days_of(text: str) -> int | None:
    """The days since 1970 of a date `2013-01-31`; None for any other text."""
    try:
        return date.fromisoformat(text).toordinal() - _FIRST_DAY
    except ValueError:
        return None


def time_of(text: str, digits: int) -> int | None:
    """The units of 10 ** -`digits` seconds since midnight of `05:00:00.123`; None for any other text."""
    rest = _FRACTION.sub("", text)
    try:
        at = time.fromisoformat(rest)
    except ValueError:
        return None
    seconds = at.hour * 3600 + at.minute * 60 + at.second
    return None if at.tzinfo else seconds * 10**digits + _fraction(text, digits)


def instant_of(text: str, digits: int) -> int | None:
    """The units of 10 ** -`digits` seconds since 1970 of `2013-01-31T05:00:00.123Z`, which is UTC without a
    zone; None for any other text. More digits are cut off.
    """
    try:
        at = datetime.fromisoformat(_FRACTION.sub("", text))
    except ValueError:
        return None
    seconds = (at.replace(tzinfo=None) - (at.utcoffset() or timedelta()) - _EPOCH) // timedelta(seconds=1)
    return int(seconds * 10**digits) + _fraction(text, digits)


def _fraction(text: str, digits: int) -> int:
    """The fraction of a second in `text`, in units of 10 ** -`digits`."""
    found = _FRACTION.search(text)
    return int(found[1].ljust(9, "0")[:digits] or "0") if found else 0


def real(number: float) -> float | str:
    """`number`; what JSON has no number for is NaN, Infinity or -Infinity, as in the JSON of proto3."""
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
