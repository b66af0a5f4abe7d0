"""The ACLs of one principal and host about the resources of one type, by their patterns of names."""

from bisect import bisect_right, insort

from log_tables.cluster.acl import ANY, Acl, Operation, PatternType, Permission

BITS = {operation: 1 << number for number, operation in enumerate(Operation)}
"""A set of operations is a number with these bits."""

Operations = tuple[int, int]
"""The operations that are allowed, and those that are denied."""


class ResourcePatterns:
    """The operations that are allowed and denied, by the name of a pattern.

    A look-up takes as many steps as prefixes have different lengths, however many patterns there are.
    """

    __slots__ = ("_lengths", "literals", "prefixes")

    def __init__(self) -> None:
        self.literals: dict[str, Operations] = {}
        self.prefixes: dict[str, Operations] = {}
        self._lengths: list[int] = []

    def add(self, acl: Acl) -> None:
        """Used until the first look-up, by one thread."""
        name, by_name = acl.resource_name, self.literals
        if acl.pattern_type is PatternType.PREFIXED:
            by_name = self.prefixes
            if len(name) not in self._lengths:
                insort(self._lengths, len(name))
        allowed, denied = by_name.get(name, (0, 0))
        bit = BITS[acl.operation]
        by_name[name] = (
            (allowed | bit, denied) if acl.permission is Permission.ALLOW else (allowed, denied | bit)
        )

    def operations(self, name: str) -> Operations:
        """The operations on the resource `name` that are allowed, and those that are denied."""
        prefixes, lengths = self.prefixes, self._lengths[: bisect_right(self._lengths, len(name))]
        found = [each for pattern in (name, ANY) if (each := self.literals.get(pattern))]
        found += [each for length in lengths if (each := prefixes.get(name[:length]))]
        allowed = denied = 0
        for more, less in found:
            allowed |= more
            denied |= less
        return allowed, denied
