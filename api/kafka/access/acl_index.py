"""ACLs by the values of their fields, for requests of a thousand filters: none is compared with every ACL.

A set of ACLs is a number with a bit for the place of each, so that of ten thousand has some 1,250 bytes. The
ACLs that have a value are such a set, and a filter finds what is in the sets of all its values.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from coordinator.access.acl_argument import AclFilter, PatternTypeFilter
from coordinator.access.host import normal_host
from log_tables.cluster.acl import ANY, Acl, PatternType
from log_tables.limits import ACL_NAME_MAX_CHARS

FREQUENT = 64
"""The set of a value that more ACLs have is kept. There are few such values, and sets of all would need more
memory than the ACLs.
"""

_Key = tuple[str, str]
"""A field, and its value. That of a name is its type of pattern."""


class AclIndex:
    """Finds what `AclFilter.matches` finds."""

    def __init__(self, acls: Iterable[Acl]) -> None:
        self._acls = [*acls]
        self._all = (1 << len(self._acls)) - 1
        self._places, self._kept = defaultdict[_Key, list[int]](list), dict[_Key, int]()
        hosts = dict[str, str]()
        for place, acl in enumerate(self._acls):
            host = hosts.get(acl.host) or hosts.setdefault(acl.host, normal_host(acl.host))
            for key in (
                ("resource type", acl.resource_type),
                ("pattern type", acl.pattern_type),
                (acl.pattern_type, acl.resource_name),
                ("principal", acl.principal),
                ("host", host),
                ("operation", acl.operation),
                ("permission", acl.permission),
            ):
                self._places[key].append(place)

    def find(self, wanted: AclFilter) -> int:
        """The set of the ACLs that a filter finds; `int.bit_count` is their number."""
        found = self._all
        for keys in _conditions(wanted):
            found &= self._set_of(keys)
        return found

    def acls(self, found: int) -> list[Acl]:
        """The ACLs of a set, in order."""
        some = list[Acl]()
        while found:
            lowest = found & -found
            some.append(self._acls[lowest.bit_length() - 1])
            found ^= lowest
        return sorted(some)

    def _set_of(self, keys: Collection[_Key]) -> int:
        """The ACLs that have one of these values."""
        found = 0
        for key in keys:
            places = self._places.get(key, ())
            if len(places) > FREQUENT:
                if key not in self._kept:
                    self._kept[key] = _bits(places)
                found |= self._kept[key]
            elif places:
                found |= _bits(places)
        return found


def _bits(places: Collection[int]) -> int:
    bits = bytearray(max(places) // 8 + 1)
    for place in places:
        bits[place // 8] |= 1 << place % 8
    return int.from_bytes(bits, "little")


def _conditions(wanted: AclFilter) -> Iterator[Collection[_Key]]:
    """The values of each condition, of which an ACL must have one."""
    for field, value in (
        ("resource type", wanted.resource_type),
        ("principal", wanted.principal),
        ("host", None if wanted.host is None else normal_host(wanted.host)),
        ("operation", wanted.operation),
        ("permission", wanted.permission),
    ):
        if value is not None:
            yield ((field, value),)
    name = wanted.resource_name
    match wanted.pattern_type:
        case PatternTypeFilter.LITERAL | PatternTypeFilter.PREFIXED as kind:
            yield (("pattern type", kind) if name is None else (kind, name),)
        case PatternTypeFilter.ANY if name is not None:
            yield [(kind, name) for kind in PatternType]
        case PatternTypeFilter.MATCH if name is not None:
            ends = range(min(len(name), ACL_NAME_MAX_CHARS) + 1)
            prefixes = [(PatternType.PREFIXED, name[:end]) for end in ends]
            yield [(PatternType.LITERAL, name), (PatternType.LITERAL, ANY), *prefixes]
