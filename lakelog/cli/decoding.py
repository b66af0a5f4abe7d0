"""Records whose keys or values name schemas, as JSON to print."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakelog.cli.record_format import Formats, Print, ValueFormat
from lakelog.client.schemas import TopicSchemas
from log_tables.errors import InvalidArgument
from log_tables.record import Record
from log_tables.schemas.decoded import Encoding, Format, decoded
from log_tables.schemas.framing import KEY_HEADER, VALUE_HEADER
from log_tables.schemas.schema import Schema, SchemaKind

if TYPE_CHECKING:
    from lakelog.client.client import Client


class Decoding:
    """Prints records of `topics` by `plain`, once `forms` are JSON where a schema decodes them."""

    def __init__(self, client: "Client", topics: Sequence[str], forms: Formats, plain: Print) -> None:
        self._forms, self._plain = forms, plain
        self._schemas = {topic: TopicSchemas(client, topic) for topic in topics}
        self._only = {topic: _only_schema(client, topic) for topic in topics}

    def show(self, topic: str, partition: int, record: Record) -> bytes:
        """The bytes to print for a record. Raises InvalidArgument for one that cannot be decoded."""
        where = f"at offset {record.offset} of topic {topic}, partition {partition}"
        forms, only = self._forms, self._only[topic]
        key = self._json(topic, record, record.key, forms.key, None, f"the key {where}")
        value = self._json(topic, record, record.value, forms.value, only, f"the value {where}")
        shown = Record(value, key, record.headers, record.timestamp_us, record.offset)
        return self._plain(topic, partition, shown)

    def _json(
        self,
        topic: str,
        record: Record,
        data: bytes | None,
        form: ValueFormat,
        only: Schema | None,
        what: str,
    ) -> bytes | None:
        if data is None or not form.by_schema:
            return data
        of_key = what.startswith("the key")
        header, option = (KEY_HEADER, "--key-format") if of_key else (VALUE_HEADER, "--value-format")
        encoding, schemas = Encoding(Format(form.value), only), self._schemas[topic]
        found = decoded(data, record.headers, encoding, schemas, header)
        if found.missing is not None:
            schemas.look_up([found.missing])
            found = decoded(data, record.headers, encoding, schemas, header)
        if found.json is None:
            raise InvalidArgument(f"{what} cannot be decoded: {found.error}; use {option} base64")
        return found.json


def _only_schema(client: "Client", topic: str) -> Schema | None:
    """The schema of all values of a topic, which name none; None without one."""
    configs = client.topic(topic)["configs"]
    text, kind = configs.get("value.columns.schema"), Format(configs.get("value.columns.format", "json")).kind
    return Schema(SchemaKind(kind), text) if text and kind is not None else None
