"""A registry that is asked over HTTP. What it has answered stays under the root, for every other process."""

import logging
from collections.abc import Iterable, Sequence

from log_tables.clock import Backoff, Clock
from log_tables.cluster.root_registry import RootRegistry
from log_tables.cluster.schema_files import KeptSchemas
from log_tables.errors import LakelogError, Unreachable
from log_tables.limits import REGISTRY_PAUSE_MAX_S, REGISTRY_PAUSE_S
from log_tables.schemas.look_ups import LookUps
from log_tables.schemas.registry import Registered, are_same
from log_tables.schemas.registry_client import Found, RegistryClient, WrongAnswer
from log_tables.schemas.schema import InvalidSchema, Schema, SchemaId

_log = logging.getLogger(__name__)
_COMPARED_MAX = 20
_AWAY = Backoff(REGISTRY_PAUSE_S, REGISTRY_PAUSE_MAX_S)


class UrlRegistry(RootRegistry):
    """A registry at a URL; without a `client` only what others have kept of it.

    Ids are looked for under the root first. While the registry does not answer, one look-up in a while tries
    it, and the others do not wait for that.
    """

    def __init__(self, url: str, kept: KeptSchemas, client: RegistryClient | None, clock: Clock) -> None:
        super().__init__(url, kept, clock)
        self._kept, self._client, self._clock = kept, client, clock
        self._requests = LookUps(clock)
        self._pause_s, self._next_try = 0.0, clock.monotonic()

    def look_up(self, ids: Iterable[SchemaId]) -> None:
        wanted = [each for each in ids if each not in self._known]
        if not wanted or not self._lock.acquire(blocking=self._pause_s == 0):
            return
        try:
            missing = self._read(wanted)
            if self._client is None:
                for schema_id in missing:
                    self._note_unknown(schema_id, self._missing(schema_id))
            elif self._clock.monotonic() >= self._next_try:
                left = [each for each in wanted if each not in self._known]
                self._ask(self._client, self._requests.due(left))
        finally:
            self._lock.release()

    def _missing(self, schema_id: SchemaId) -> str:
        if self._client is None:
            return (
                f"{self._source} is none of schema_registries of this process, and nobody has kept its schema"
            )
        return f"{self._source} has no schema {schema_id}"

    def _ask(self, client: RegistryClient, ids: Sequence[SchemaId]) -> None:
        if not ids:
            return
        checked = self._checked_again()
        try:
            answers = client.schemas([*ids, *checked])
        except LakelogError as error:
            self.counts.failed += 1
            self._pause_s = _AWAY.after(self._pause_s) if self._pause_s else _AWAY.first_s
            self._next_try = self._clock.monotonic() + self._pause_s
            self._note_failure(str(error))
            return
        self._pause_s, self._reasons.source = 0.0, None
        for schema_id, known in checked.items():
            self._compare(schema_id, known, answers.pop(schema_id, None))
        for schema_id, found in answers.items():
            self._take(schema_id, found)

    def _checked_again(self) -> dict[SchemaId, Schema]:
        """One schema that is known, another one each time: a registry that was made anew has other ids."""
        ids = [*self._known]
        chosen = ids[self.counts.asked % len(ids)] if ids else None
        return {} if chosen is None else {chosen: self._known[chosen]}

    def _compare(self, schema_id: SchemaId, known: Schema, found: Found) -> None:
        if isinstance(found, Schema) and not are_same(known, found):
            self.counts.changed += 1
            _log.warning(
                "%s now gives the id %s to another schema, and the first one counts: it may be another "
                "registry, which needs topics of its own",
                *(self._source, schema_id),
            )

    def _take(self, schema_id: SchemaId, found: Found) -> None:
        match found:
            case Schema():
                kept = self._keep(schema_id, found)
                self._compare(schema_id, kept, found)
                self._note(schema_id, kept)
            case None:
                self._note_unknown(schema_id, self._missing(schema_id))
            case InvalidSchema():
                self.counts.unreadable += 1
                self._reasons.note(schema_id, str(found))
            case WrongAnswer():
                self.counts.failed += 1
                self._reasons.note(schema_id, str(found))
                self._note_failure(str(found))

    def _keep(self, schema_id: SchemaId, found: Schema) -> Schema:
        """The schema as it is under the root from now on; `found` where nothing can be put there."""
        try:
            return self._kept.keep(schema_id, found)
        except (LakelogError, InvalidSchema) as error:
            self._note_failure(f"schema {schema_id} is not kept under the root ({error})")
            return found

    def _asked(self) -> RegistryClient:
        if self._client is None:
            raise Unreachable(f"{self._source} is none of schema_registries of this process; add it there")
        return self._client

    def subjects(self) -> Sequence[str]:
        return sorted(self._asked().subjects())

    def versions(self, subject: str) -> Sequence[int]:
        return sorted(self._asked().versions(subject))

    def registered(self, subject: str, version: int | None = None) -> Registered | None:
        return self._asked().registered(subject, version)

    def find(self, subject: str, schema: Schema) -> Registered | None:
        client = self._asked()
        if not schema.references:
            return client.find(subject, schema)
        # A registry compares what is referred to by subjects and versions, which `schema` does not have.
        for version in sorted(client.versions(subject), reverse=True)[:_COMPARED_MAX]:
            found = client.registered(subject, version)
            if found is not None and found.has(schema):
                return found
        return None

    def schema_of(self, registered: Registered) -> Schema:
        return self._asked().schema_of(registered)
