"""Which topics members of groups follow by regular expression, and which they may read.

Expressions have RE2's syntax: matching takes time linear in the names (KIP-848). The rules of a filter do not
change: other rules are another filter.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from coordinator.access.principal import RequestContext
from log_tables.cluster.topic import check_public, is_internal
from log_tables.errors import InvalidSubscription
from log_tables.limits import SUBSCRIPTION_MAX_CHARS
from log_tables.record import binary_array

PATTERN_MAX_CHARS = 1_000


def matching(pattern: str, names: Sequence[str]) -> list[str]:
    """The `names` that `pattern` matches from end to end. Raises InvalidSubscription."""
    if not pattern or len(pattern) > PATTERN_MAX_CHARS:
        raise InvalidSubscription(
            f"a topic_pattern has 1 to {PATTERN_MAX_CHARS} characters, not {len(pattern)}; shorten it"
        )
    # Not pa.array(list): that imports pandas where it is installed, for most of a second. Of no rows at all
    # nothing would even look at the pattern.
    column = binary_array([b"", *(name.encode() for name in names)]).view(pa.string())
    try:
        pc.match_substring_regex(column[:1], pattern)  # "a)|(b" is one only within the brackets
        found = pc.match_substring_regex(column, rf"\A(?:{pattern})\z").to_pylist()[1:]
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        said = str(error).removeprefix("Invalid regular expression: ")
        raise InvalidSubscription(
            f"the topic_pattern {pattern[:100]!r} is no regular expression ({said[:200]}); use RE2's syntax"
        ) from None
    return [name for name, matches in zip(names, found, strict=True) if matches]


@lru_cache(maxsize=64)  # when a topic comes, many groups ask for the same
def matched(pattern: str, names: tuple[str, ...]) -> frozenset[str]:
    """As `matching`, and remembered: an expression takes up to some tenths of a second to compile, and some
    milliseconds for each name.
    """
    return frozenset(matching(pattern, names))


@lru_cache(maxsize=256)
def check_pattern(pattern: str) -> None:
    """Raise InvalidSubscription for a text that is no expression. The others are remembered."""
    matching(pattern, [])


def public_names(topics: Iterable[str]) -> tuple[str, ...]:
    """The topics among these that an expression may match."""
    return tuple(name for name in topics if not is_internal(name))


def check_subscribed(topics: Collection[str]) -> None:
    """Raise InvalidSubscription for names that are too long together, InvalidTopicName for one that clients
    cannot read.
    """
    names = sum(map(len, topics))
    if names > SUBSCRIPTION_MAX_CHARS:
        raise InvalidSubscription(
            f"the names of the {len(topics)} topics have {names} characters, {SUBSCRIPTION_MAX_CHARS} "
            "are allowed; subscribe by a topic_pattern"
        )
    for name in topics:
        check_public(name)


Follower = tuple[str, RequestContext | None]
"""An expression, and who subscribes by it."""
Matches = Mapping[Follower, frozenset[str]]
"""The topics that each of them follows."""


def resolved(
    followers: Iterable[Follower],
    topics: Iterable[str],
    readable: "TopicFilter | None",
    known: Iterable[frozenset[str]] = (),
) -> dict[Follower, frozenset[str]]:
    """The topics that each of these matches and may read; it takes some ms for each. Those that are as
    `known` ones are the same objects: thousands of names are kept, and compared, once. Raises
    InvalidSubscription.
    """
    names, found = public_names(topics), dict[Follower, frozenset[str]]()
    alike = {each: each for each in known}
    for pattern, context in followers:
        chosen = matched(pattern, names)
        if readable is not None and context is not None:
            chosen = readable.of(context, chosen)
        found[pattern, context] = alike.setdefault(chosen, chosen)
    return found


KEPT_MAX = 256
"""Answers that are kept: members of a group ask for the same."""


class TopicFilter:
    """Threads may share it."""

    def __init__(self, reads: Callable[[RequestContext, str], bool]) -> None:
        """`reads` says whether a principal may read a topic, by its name."""
        self._reads = reads
        self._kept: dict[tuple[RequestContext, frozenset[str]], frozenset[str]] = {}

    def of(self, context: RequestContext, names: frozenset[str]) -> frozenset[str]:
        """The `names` that `context` may read."""
        found = self._kept.get((context, names))
        if found is None:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            found = frozenset(name for name in names if self._reads(context, name))
            self._kept[context, names] = found
        return found
