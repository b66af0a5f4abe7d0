"""Numbers and times in paths, queries and headers: a number is written in one way, a time is milliseconds
since 1970, or ISO-8601.
"""

import re
from datetime import UTC, datetime, timedelta

from log_tables.errors import InvalidArgument

_DECIMAL = re.compile(r"0|-?[1-9][0-9]{0,18}")


def decimal(text: str) -> int | None:
    """The number that `text` is, of 19 digits at most; None for any other text: +1, 01, 1.0, 1_0."""
    return int(text) if _DECIMAL.fullmatch(text) else None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(timestamp: str) -> int:
    """A time in microseconds since 1970 UTC. Raises InvalidArgument."""
    try:
        milliseconds = decimal(timestamp)
        if milliseconds is not None:
            moment = _EPOCH + timedelta(milliseconds=milliseconds)
        elif timestamp.isdecimal():  # which ISO-8601 would read as a date without its dashes
            raise ValueError
        else:
            # In a query the + of a time zone is a space, unless the client has escaped it.
            text = timestamp.replace(" ", "+") if "T" in timestamp else timestamp
            moment = datetime.fromisoformat(text)
            # As UTC it must lie within the years 1 to 9999 too: OverflowError.
            moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise InvalidArgument(
            f"timestamp {timestamp[:50]!r} is neither milliseconds since 1970 nor ISO-8601,"
            " such as 2013-01-01T05:00:00Z"
        ) from None
