"""Schemas by the source that a topic names: a topic of this log, a registry, or files under the root."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from log_tables.clock import Clock, SystemClock
from log_tables.cluster.registry_topic import Follow, TopicRegistry
from log_tables.cluster.root_registry import FilesRegistry
from log_tables.cluster.schema_files import KeptSchemas, SchemaFiles
from log_tables.cluster.url_registry import UrlRegistry
from log_tables.partition.reader import PartitionReader
from log_tables.schemas.registry import Registry, SourceCounts
from log_tables.schemas.registry_client import RegistryAccess, RegistryClient
from log_tables.schemas.schema import NO_SCHEMAS, NotedSchemas, SchemaLocation, Schemas
from log_tables.schemas.source import is_url, one_url, topic_of
from log_tables.store.store import Store, open_store


class SchemaSources:
    """The sources that topics have named in this process, each made at its first use. Thread-safe."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        follow: Callable[[str], Follow],
        registries: Iterable[RegistryAccess] = (),
    ) -> None:
        """`follow` gives how a topic is followed, by its name. No URL is asked but those of `registries`."""
        self._store, self._clock, self._follow = store, clock, follow
        self._access = {one_url(each.url): each for each in registries}
        self._lock = threading.Lock()
        self._made: dict[str, Registry] = {}
        self._noted: dict[str, NotedSchemas] = {}

    def of(self, source: str) -> NotedSchemas:
        """The schemas of `source`, in the form of the setting; none of an empty one. No I/O."""
        found = self._noted.get(source)
        if found is None:
            found = self._noted.setdefault(source, NotedSchemas(self.registry(source) or NO_SCHEMAS))
        return found

    def registry(self, source: str) -> Registry | None:
        """Its schemas with their subjects; None of an empty source."""
        found = self._made.get(source)
        if found is not None or not source:
            return found
        with self._lock:
            if source not in self._made:
                self._made[source] = self._registry(source)
            return self._made[source]

    def counts(self) -> dict[str, SourceCounts]:
        """The counts of look-ups, by source."""
        with self._lock:
            return {source: registry.counts for source, registry in self._made.items()}

    def _registry(self, source: str) -> Registry:
        topic = topic_of(source)
        if topic is not None:
            return TopicRegistry(topic, self._follow(topic), self._clock)
        if not is_url(source):
            return FilesRegistry(source, SchemaFiles(self._store), self._clock)
        access = self._access.get(one_url(source))
        client = None if access is None else RegistryClient(access)
        return UrlRegistry(source, KeptSchemas(self._store, source), client, self._clock)


@dataclass(frozen=True, slots=True)
class RootSchemas(SchemaLocation):
    """A source as a task in another process reads it: from the root alone. `directory` is that of the
    partition of a topic.
    """

    url: str
    options: tuple[tuple[str, str], ...]
    source: str
    directory: str = ""

    def open(self) -> Schemas:
        return _opened(self)


@lru_cache(maxsize=64)
def _opened(location: RootSchemas) -> Schemas:
    """Once in a process: its tasks are many, and short."""
    store = open_store(location.url, dict(location.options), create=False)
    clock = SystemClock()

    def follow(name: str) -> Follow:
        del name
        partition = PartitionReader(store, location.directory, clock)
        return lambda act: act(partition)

    return SchemaSources(store, clock, follow).of(location.source)
