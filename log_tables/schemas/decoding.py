"""Many values as JSON, a few at a time. Schemas that are not known are asked for."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from log_tables.layout import HEADERS
from log_tables.limits import TYPED_AT_ONCE, TYPED_AT_ONCE_BYTES
from log_tables.record import binary_array, header_pairs
from log_tables.schemas.decoded import Decoded, Encoding, Format, decoded
from log_tables.schemas.framing import KEY_HEADER, VALUE_HEADER, Headers
from log_tables.schemas.schema import Schema, SchemaId, Schemas

KEYS = Encoding(Format.AUTO)
"""How keys are encoded where values are not JSON: by the schema that they name, if they name one."""


class Decoding:
    """Decodes values of one encoding by `schemas`, and asks once for each that is not known. Blocking.

    `header` is the name of that which may name the schema of a value. `missing` are the schemas that were
    not found.
    """

    def __init__(self, encoding: Encoding, schemas: Schemas, header: str = VALUE_HEADER) -> None:
        self.encoding, self._schemas, self._header = encoding, schemas, header
        self.missing: set[SchemaId] = set()
        self._asked: set[SchemaId] = set()

    def of(self, value: bytes, headers: Headers = ()) -> Decoded:
        """`value`, which has `headers`, as JSON."""
        found = decoded(value, headers, self.encoding, self._schemas, self._header)
        if found.missing is not None and self.schema(found.missing) is not None:
            found = decoded(value, headers, self.encoding, self._schemas, self._header)
        return found

    def schema(self, schema_id: SchemaId) -> Schema | None:
        """The schema, which is asked for if it is not known; None, and noted as missing, if it stays so."""
        found = self._schemas.known(schema_id)
        if found is None and schema_id not in self._asked:
            self._asked.add(schema_id)
            self._schemas.look_up([schema_id])
            found = self._schemas.known(schema_id)
        if found is None:
            self.missing.add(schema_id)
        return found

    def error_of(self, found: Decoded) -> str | None:
        """Why a value has no JSON, for people: also why its schema is not known."""
        reason = None if found.missing is None else self._schemas.reason(found.missing)
        return found.error if reason is None else f"{found.error}: {reason}"

    def parts(self, values: pa.Array, headers: pa.Array) -> Iterator[list[Decoded | None]]:
        """The values of records in order, in lists of as many as have TYPED_AT_ONCE_BYTES of JSON; None for
        a null.
        """
        waiting, size = list[Decoded | None](), 0
        for value, pairs in _pairs(values, headers):
            found = None if value is None else self.of(value, pairs)
            waiting.append(found)
            size += 0 if found is None else len(found.json or b"")
            if size >= TYPED_AT_ONCE_BYTES:
                yield waiting
                waiting, size = [], 0
        if waiting:
            yield waiting

    def arrays(self, values: pa.Array, headers: pa.Array) -> Iterator[tuple[pa.Array, pa.Array]]:
        """(The JSON of some values, as binary, and why others have none, as string), until all are done."""
        for found in self.parts(values, headers):
            errors = [None if each is None else self.error_of(each) for each in found]
            yield json_array(found), pa.array(errors, pa.string())

    def slices(
        self, batch: pa.RecordBatch, column: str
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array, pa.Array]]:
        """Rows that have headers, in slices, each with what `arrays` makes of `column`."""
        start = 0
        for json, errors in self.arrays(batch.column(column), batch.column(HEADERS)):
            yield batch.slice(start, len(json)), json, errors
            start += len(json)

    def shown(self, values: pa.Array, headers: pa.Array) -> Iterator[pa.Array]:
        """The JSON of some values, and those that have none as they are, as binary, until all are done."""
        start = 0
        for json, _ in self.arrays(values, headers):
            yield pc.coalesce(json, values[start : start + len(json)])
            start += len(json)


def json_array(values: Sequence[Decoded | None]) -> pa.Array:
    """The JSON of each value, as binary; null where there is none."""
    return binary_array([None if value is None else value.json for value in values])


def key_decoding(schemas: Schemas) -> Decoding:
    """Decodes keys that name one of `schemas`, beside values of any format but JSON."""
    return Decoding(KEYS, schemas, KEY_HEADER)


def _pairs(values: pa.Array, headers: pa.Array) -> Iterable[tuple[bytes | None, Headers]]:
    for start in range(0, len(values), TYPED_AT_ONCE):
        part = slice(start, start + TYPED_AT_ONCE)
        yield from zip(values[part].to_pylist(), header_pairs(headers[part]), strict=False)
