"""Whole numbers in paths, queries and headers: written in one way each."""

import re

_DECIMAL = re.compile(r"0|-?[1-9][0-9]{0,18}")


def decimal(text: str) -> int | None:
    """The number that `text` is, of 19 digits at most; None for any other text: +1, 01, 1.0, 1_0."""
    return int(text) if _DECIMAL.fullmatch(text) else None
