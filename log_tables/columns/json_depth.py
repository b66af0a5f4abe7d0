"""How deep the objects and arrays of a value are nested, found without reading it as JSON."""

import numpy as np

from log_tables.limits import KIB, VALUE_DEPTH_MAX

_AT_ONCE = 64 * KIB
_CASE = 0x20
"""The bit in which `{` differs from `[`, and `}` from `]`."""


def too_deep(value: bytes, deepest: int = VALUE_DEPTH_MAX) -> bool:
    """Whether the brackets of `value`, outside of its texts, are nested more than `deepest` deep."""
    if value.count(b"{") + value.count(b"[") <= deepest:
        return False
    level, inside, escaped = 0, False, False
    for start in range(0, len(value), _AT_ONCE):
        piece = np.frombuffer(value, np.uint8, min(_AT_ONCE, len(value) - start), start)
        quotes, escaped = _quotes(piece, escaped)
        outside = (np.cumsum(quotes, dtype=np.uint8) & 1) == inside  # a sum that wraps stays odd or even
        folded = piece | _CASE
        steps = ((folded == ord("{")) & outside).astype(np.int8) - ((folded == ord("}")) & outside)
        levels = np.cumsum(steps, dtype=np.int64) + level
        if levels.max() > deepest:
            return True
        level, inside = int(levels[-1]), inside != bool(np.count_nonzero(quotes) & 1)
    return False


def _quotes(piece: np.ndarray, escaped: bool) -> tuple[np.ndarray, bool]:
    """(Which bytes of `piece` begin or end a text, whether the byte after it is escaped).

    `escaped` says whether its first byte is.
    """
    quotes = piece == ord('"')
    if escaped:
        quotes[0] = False
    backslashes = np.flatnonzero(piece == ord("\\"))
    backslashes = backslashes[1:] if escaped and piece[0] == ord("\\") else backslashes
    if len(backslashes) == 0:
        return quotes, False
    begins = np.concatenate([[True], np.diff(backslashes) > 1])
    run = backslashes[begins][np.cumsum(begins) - 1]
    hidden = backslashes[(backslashes - run) % 2 == 0] + 1  # the first of two backslashes escapes the second
    quotes[hidden[hidden < len(piece)]] = False
    return quotes, bool(hidden[-1] == len(piece))
