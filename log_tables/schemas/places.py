"""Numbers and bytes of many values in one array of bytes, read at the places that these have come to.

Each step is a few operations on all values: that releases the interpreter seldom, and waits for it seldom.
"""

from dataclasses import dataclass

import numpy as np

SLACK = 16
"""Bytes after those of the values, as a number is read in words."""

_MORE = 0x80
_TOO_FAR = 1 << 40
"""The size of a number that is none: it leads behind the end of its value, whatever follows."""

_PLAIN = np.array([(byte >> 1) ^ -(byte & 1) for byte in range(256)], np.int64)
"""Numbers of one byte, as zigzag has them."""

_WORD_BYTES = 8
_ALL_MORE = np.uint64(0x8080808080808080)
_ONE = np.uint64(1)


def numbers_in(data: np.ndarray, kind: str) -> np.ndarray:
    """The numbers of the dtype `kind` that begin at each byte of `data`, which has one at least."""
    return np.ndarray((len(data) - np.dtype(kind).itemsize + 1,), kind, data, strides=(1,))


@dataclass(slots=True)
class Places:
    """Where each of many values is read at in `data`, where it ends, and which are none of the schema.

    `data` ends with SLACK. A place that is behind its end stays behind it, so look at the end whether `at` is
    `ends`; what was read there is anything.
    """

    data: np.ndarray
    at: np.ndarray
    ends: np.ndarray
    bad: np.ndarray

    def bytes(self) -> np.ndarray:
        """The next byte of each."""
        found: np.ndarray = self.data.take(self.skip(1), mode="clip")
        return found

    def varints(self) -> np.ndarray:
        """The next number of each, in zigzag form."""
        byte = self.data.take(self.at, mode="clip")
        longer = np.flatnonzero(byte >= _MORE)
        if not len(longer):
            self.at = self.at + 1
            plain: np.ndarray = _PLAIN.take(byte)
            return plain
        if len(longer) == len(byte):
            found, sizes = _long(self.data, self.at)
        else:
            found, sizes = _PLAIN.take(byte), np.ones(len(byte), np.int64)
            found[longer], sizes[longer] = _long(self.data, self.at[longer])
        self.at = self.at + sizes
        return found

    def fractions(self, kind: str) -> np.ndarray:
        """The next fraction of each, of the dtype `kind`."""
        numbers = numbers_in(self.data, kind)
        begins = self.skip(np.dtype(kind).itemsize)
        found: np.ndarray = numbers[np.minimum(begins, len(numbers) - 1)]
        return found

    def skip(self, sizes: np.ndarray | int) -> np.ndarray:
        """Go on by so many bytes; gives where they begin."""
        begins = self.at
        wrong = self.ends - begins < sizes
        if isinstance(sizes, np.ndarray):
            wrong |= sizes < 0
        if wrong.any():
            self.bad |= wrong
            sizes = np.where(wrong, 0, sizes)
        self.at = begins + sizes
        return begins


def _long(data: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(The numbers that begin at `at`, of several bytes, how many they have)."""
    words = numbers_in(data, "<u8")
    word = words[np.minimum(at, len(words) - 1)]
    last = ~word & _ALL_MORE
    own = last ^ (last - _ONE)
    word &= own
    sizes = (np.bitwise_count(own) >> 3).astype(np.int64)
    # Seven bits of each byte move together: of two bytes, of four, of all.
    for low, high, shift in _JOINS:
        word = (word & low) | ((word & high) >> shift)
    longest = np.flatnonzero(last == 0)
    if len(longest):
        bits, sizes[longest] = _ninth_and_tenth(data, at[longest] + _WORD_BYTES)
        word[longest] |= bits
    return (word >> _ONE).astype(np.int64) ^ -(word & _ONE).astype(np.int64), sizes


def _ninth_and_tenth(data: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(What numbers have in their bytes from `at` on, behind a word, how many they have in all)."""
    ninth, tenth = data.take(at, mode="clip"), data.take(at + 1, mode="clip")
    more = ninth >= _MORE
    bits = (ninth & (_MORE - 1)).astype(np.uint64) << np.uint64(56)
    bits |= np.where(more, tenth, 0).astype(np.uint64) << np.uint64(63)
    sizes = np.where(more, np.where(tenth > 1, _TOO_FAR, _WORD_BYTES + 2), _WORD_BYTES + 1)
    return bits, sizes


_JOINS = [
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
]
