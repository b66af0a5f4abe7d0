"""The account of a soak: numbers that each sender sent, that were acknowledged, and that were found again;
and requests that were answered.
"""

from array import array
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec
import numpy as np

ANSWER_WITHIN_S = 10.0
NO_ANSWER = 0
"""The status of a request whose connection broke, or that took longer."""


class Value(msgspec.Struct):
    """A record's value: `number` is different in all values of one sender, and grows from 0."""

    sender: str = msgspec.field(name="from")
    number: int
    user: str
    text: str


_decode = msgspec.json.Decoder(Value).decode


class Numbers:
    """Numbers of senders, each as often as it was noted. One thread notes, others may copy meanwhile."""

    def __init__(self) -> None:
        self._noted: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))

    def note(self, sender: str, number: int) -> None:
        self._noted[sender].append(number)

    def note_value(self, value: bytes) -> None:
        """The value of a record. Raises msgspec.DecodeError when no sender of the soak has made it."""
        made = _decode(value)
        self.note(made.sender, made.number)

    def senders(self) -> list[str]:
        return [*self._noted]

    def total(self) -> int:
        """How many were noted, repeats included."""
        return sum(map(len, list(self._noted.values())))

    def times(self, sender: str) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        """How often each number from 0 on was noted."""
        # An array that NumPy looks into cannot grow; a copy of it may be looked into.
        copied = array("q", self._noted[sender]) if sender in self._noted else array("q")
        return np.bincount(np.frombuffer(copied, np.int64))


class Difference(NamedTuple):
    """Counts of the acknowledged records that are lost, and of the records that are there too often."""

    lost: int
    doubled: int
    examples: tuple[str, ...]


def difference(acknowledged: Iterable[Numbers], found: Iterable[Numbers]) -> Difference:
    """Compare the `acknowledged` numbers with those `found`: which are lost, and which are there more than
    once.
    """
    left, right = [*acknowledged], [*found]
    lost = doubled = 0
    examples: list[str] = []
    for sender in sorted({name for each in (*left, *right) for name in each.senders()}):
        wanted, there = _sum(left, sender), _sum(right, sender)
        size = max(len(wanted), len(there))
        wanted, there = _padded(wanted, size), _padded(there, size)
        missing, often = np.flatnonzero((wanted > 0) & (there == 0)), np.flatnonzero(there > 1)
        lost, doubled = lost + len(missing), doubled + int((there[often] - 1).sum())
        examples += [f"{sender} {number} is lost" for number in missing[:3]]
        examples += [f"{sender} {number} is there {there[number]} times" for number in often[:3]]
    return Difference(lost, doubled, tuple(examples))


def _sum(noted: Sequence[Numbers], sender: str) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    counts = [each.times(sender) for each in noted]
    size = max(map(len, counts), default=0)
    return sum((_padded(count, size) for count in counts), np.zeros(size, np.int64))


def _padded(
    counts: "np.ndarray[tuple[int], np.dtype[np.int64]]", size: int
) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.pad(counts, (0, size - len(counts)))


class Span(NamedTuple):
    """The time from `begin` to `end`, in seconds of one clock."""

    begin: float
    end: float


class Attempt(NamedTuple):
    """One HTTP request, from when it was sent to its answer."""

    span: Span
    status: int

    @property
    def took_s(self) -> float:
        return self.span.end - self.span.begin

    @property
    def answered(self) -> bool:
        """Whether the attempt got a 2xx in time."""
        return 200 <= self.status < 300 and self.took_s <= ANSWER_WITHIN_S


class Availability(NamedTuple):
    """Requests outside of the windows, those of them that were answered, and what the others heard.

    The seconds that answered ones took: the median, the 99th of 100, the longest; 0 where there are none.
    """

    requests: int
    answered: int
    others: Counter[int]
    took_s: tuple[float, float, float]

    @property
    def share(self) -> float:
        """The share of all requests that were answered, 0 to 1; 1 without requests."""
        return self.answered / self.requests if self.requests else 1.0


def availability(attempts: Iterable[Attempt], windows: Sequence[Span]) -> Availability:
    """The availability outside `windows`: attempts that overlap a window do not count, answered or not."""
    counted = [*_outside(attempts, windows)]
    took_s = [each.took_s for each in counted if each.answered] or [0.0]
    median, most, longest = np.quantile(took_s, [0.5, 0.99, 1])
    return Availability(
        requests=len(counted),
        answered=sum(each.answered for each in counted),
        others=Counter(each.status for each in counted if not each.answered),
        took_s=(float(median), float(most), float(longest)),
    )


def _outside(attempts: Iterable[Attempt], windows: Sequence[Span]) -> Iterator[Attempt]:
    ordered = sorted(windows)
    begins, ends = [window.begin for window in ordered], [*accumulate((each.end for each in ordered), max)]
    for each in attempts:
        before = bisect_right(begins, each.span.end)  # so many windows have begun when it ends
        if not before or ends[before - 1] < each.span.begin:
            yield each


class Level(NamedTuple):
    """The median of a figure in the second quarter of a run, and in its last one."""

    second: float
    last: float

    @property
    def growth(self) -> float:
        return self.last / self.second - 1


def level(samples: Sequence[float]) -> Level | None:
    """How a figure stood after the first quarter and in the end; None with fewer than four samples."""
    quarter = len(samples) // 4
    if not quarter:
        return None
    return Level(
        float(np.median(samples[quarter : 2 * quarter])), float(np.median(samples[len(samples) - quarter :]))
    )
