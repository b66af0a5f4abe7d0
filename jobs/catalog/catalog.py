"""One schema of a catalog, as a sync asks for it."""

from collections.abc import Sequence
from typing import Protocol

from jobs.catalog.entry import Entry
from jobs.catalog.plan import Found


class Catalog(Protocol):
    """One schema of a catalog. Every method raises Unreachable, AccessDenied, InvalidArgument."""

    def tables(self) -> Sequence[Found]:
        """All tables of the schema, whoever made them; none where there is no schema."""
        ...

    def table(self, name: str) -> Found | None:
        """The table `name` as it is now; None if there is none."""
        ...

    def begin(self) -> None:
        """Make the schema if there is none."""
        ...

    def create(self, entry: Entry) -> None:
        """Make the table of `entry`. Raises AlreadyExists when somebody has just made one of its name."""
        ...

    def drop(self, name: str) -> None:
        """Remove the table `name` from the catalog, and no file; harmless if it is gone."""
        ...
