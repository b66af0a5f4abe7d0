"""The schemas that values of a topic name, as its gateway has them."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from log_tables.errors import NotFound
from log_tables.schemas.schema import Schema, SchemaId, Schemas

if TYPE_CHECKING:
    from lakelog.client.client import Client


class TopicSchemas(Schemas):
    """The schemas of one topic, each asked of the gateway once; one that it does not know stays unknown."""

    def __init__(self, client: "Client", topic: str) -> None:
        self._client, self._topic = client, topic
        self._known: dict[SchemaId, Schema | None] = {}

    def known(self, schema_id: SchemaId) -> Schema | None:
        return self._known.get(schema_id)

    def look_up(self, ids: Iterable[SchemaId]) -> None:
        """Raises InvalidArgument for a topic without `value.columns.schemas`, and what `Client` raises."""
        for schema_id in ids:
            if schema_id not in self._known:
                try:
                    self._known[schema_id] = self._client.schema(self._topic, schema_id)
                except NotFound:
                    self._known[schema_id] = None
