"""Bodies of v3 whose records name no schema."""

from api.wire import v3
from api.wire.named_schemas import NamedSchemas
from log_tables.errors import InvalidRecord

_NOWHERE = NamedSchemas("t", None, "there are no schemas")


def decode_stream(body: bytes) -> list[v3.Row]:
    return v3.decode_stream(body, _NOWHERE)


def decode_batch(body: bytes) -> list[tuple[str, v3.Row | InvalidRecord]]:
    return v3.decode_batch(body, _NOWHERE)
