"""The tables that a query may see, and of the tables of groups the rows."""

from collections.abc import Set as AbstractSet

import msgspec


class TableAccess(msgspec.Struct, frozen=True):
    """The tables and rows that exist for one query. It learns of no others, not by messages either.

    `topics` may be read. `tables` are of the system tables. Their rows about groups are those of `groups`, in
    the topics `described`.
    """

    topics: AbstractSet[str]
    tables: AbstractSet[str]
    groups: AbstractSet[str]
    described: AbstractSet[str]

    def shows(self, group: str, topic: str) -> bool:
        """Whether the offset of `group` in `topic` may be seen."""
        return group in self.groups and topic in self.described
