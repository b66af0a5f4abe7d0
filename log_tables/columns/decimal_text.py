"""Decimals of JSON numbers, and of texts that are written as these are. None of them goes through a double.

Nothing is computed of a number before it is known to be short: its digits are only counted, and an exponent
of many digits is not read. Arrow reads no text that has an exponent: a large one ends its process.
"""

import re
from decimal import Decimal
from functools import lru_cache

import pyarrow as pa

from log_tables.columns.column_type import ddl

_NUMBER = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?)0*([0-9]*))?", re.ASCII)
_EXPONENT_CHARS = 12
_HUGE = 10**_EXPONENT_CHARS
"""More than a text can have digits. A longer exponent is taken for it."""


def decimal_of(text: str, kind: pa.DataType) -> Decimal | str:
    """The number `text` as a value of the decimal type `kind`, or why it is none, without a place."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return "is text that is no number such as -12.5"
    minus, whole, fraction, sign, exponent = (part or "" for part in match.groups())
    digits = (whole + fraction).lstrip("0")
    significant = digits.rstrip("0")
    if not significant:
        return Decimal(0)
    shift = _HUGE if len(exponent) > _EXPONENT_CHARS else int(exponent or 0)
    power = (-shift if sign == "-" else shift) - len(fraction) + len(digits) - len(significant)
    if len(significant) + power > kind.precision - kind.scale:
        return f"is a number beyond {ddl(kind)}"
    if -power > kind.scale:
        return f"has more than {kind.scale} digits after the point, not {ddl(kind)}"
    return Decimal(f"{minus}{significant}E{power}")


@lru_cache(maxsize=1024)
def usual_form(kind: pa.DataType) -> str:
    """A regular expression of JSON that fits `kind`, as it is nearly always written: `-12.5`, `"-12.5"`.

    All that matches, Arrow can cast.
    """
    places = kind.precision - kind.scale
    whole = f"(?:0|[1-9][0-9]{{0,{places - 1}}})" if places else "0"
    number = f"-?{whole}" + (rf"(?:\.[0-9]{{1,{kind.scale}}})?" if kind.scale else "")
    return f'(?:{number}|"{number}")'
