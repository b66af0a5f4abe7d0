"""Brings one schema of a catalog to what the topics are: all steps of a plan, one after the other.

It keeps no state, and may be killed at any point: the next run looks again at both sides.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from jobs.catalog.catalog import Catalog
from jobs.catalog.entry import Entry, entry_of
from jobs.catalog.names import table_name
from jobs.catalog.plan import Act, Step, plan
from log_tables.cluster.cluster import Cluster
from log_tables.errors import AlreadyExists, LakelogError, UnknownTopic
from log_tables.layout import PROPERTY_CLUSTER

_OVERTAKEN = "somebody has just made a table of this name; the next run looks whose it is"


@dataclass(frozen=True, slots=True)
class SyncOutcome:
    """The outcome of a step. With an `error` it was not done, and the next run tries again."""

    act: Act
    table: str
    topic: str
    error: str = ""


class CatalogSync:
    """The topics of `cluster` in `catalog`. Readers find its root at the URL `root`."""

    def __init__(self, cluster: Cluster, catalog: Catalog, root: str) -> None:
        self._cluster, self._catalog, self._root = cluster, catalog, root

    def steps(self) -> tuple[list[Step], list[SyncOutcome]]:
        """The steps that a run would take now, and the topics whose table cannot be read.

        Raises Unreachable, AccessDenied, InvalidArgument, StoreUnavailable.
        """
        self._cluster.refresh(wait=True)
        wanted, unread = list[Entry](), list[SyncOutcome]()
        for topic in self._cluster.topics():
            try:
                wanted.append(entry_of(self._cluster, topic, self._root))
            except UnknownTopic:
                continue  # just deleted
            except LakelogError as error:
                unread.append(SyncOutcome(Act.SKIP, table_name(topic.name), topic.name, str(error)))
        kept = {each.table for each in unread}
        return plan(wanted, self._catalog.tables(), self._cluster.cluster_id, kept), unread

    def run(self) -> Iterator[SyncOutcome]:
        """Take the steps. Raises as `steps`."""
        steps, unread = self.steps()
        yield from unread
        if any(step.entry is not None for step in steps):
            self._catalog.begin()
        for step in steps:
            try:
                self._take(step)
            except AlreadyExists:
                yield SyncOutcome(Act.SKIP, step.name, step.topic, _OVERTAKEN)
            except LakelogError as error:
                yield SyncOutcome(step.act, step.name, step.topic, str(error))
            else:
                yield SyncOutcome(step.act, step.name, step.topic, step.why)

    def _take(self, step: Step) -> None:
        if step.act in (Act.REPLACE, Act.DROP):
            there = self._catalog.table(step.name)
            if there is not None and there.properties.get(PROPERTY_CLUSTER) != self._cluster.cluster_id:
                raise AlreadyExists(_OVERTAKEN)
            self._catalog.drop(step.name)
        if step.entry is not None:
            self._catalog.create(step.entry)
