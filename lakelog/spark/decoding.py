"""Values of any format as JSON in Spark's Python processes: beside the rows of the source, and as functions
of columns.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf

from lakelog.spark.rows import ERROR, KEY_JSON, VALUE_JSON
from lakelog.spark.worker import short_errors
from log_tables.cluster.cluster import Cluster
from log_tables.layout import HEADERS, KEY, VALUE
from log_tables.record import text_array
from log_tables.schemas.decoded import JSON, Encoding
from log_tables.schemas.decoding import Decoding, key_decoding
from log_tables.schemas.schema import NOWHERE, SchemaLocation

_Decode = Callable[[Iterator[tuple[pa.Array, pa.Array]]], Iterator[pa.Array]]
_DECODED = "json binary, error string"


@short_errors
@dataclass(frozen=True)
class ValueDecoder:
    """Decodes keys and values of a topic in a task. It can be pickled."""

    encoding: Encoding = JSON
    schemas: SchemaLocation = NOWHERE

    def value_column(self, value: Column, headers: Column) -> Column:
        """The JSON of values, in bytes, and why some have none: a struct of `json` and `error`."""
        return _function(self.decode_values, _DECODED)(value, headers)

    def key_column(self, key: Column, headers: Column) -> Column:
        """The JSON of keys that name a schema, and other keys as they are."""
        return _function(self.decode_keys, "binary")(key, headers)

    def decode_values(self, batches: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        """Structs as of `value_column`, of (values, headers). Raises StoreUnavailable."""
        decoding = Decoding(self.encoding, self.schemas.open())
        for values, headers in batches:
            for json, errors in decoding.arrays(values, headers):
                yield pa.StructArray.from_arrays([json, errors], ["json", "error"])

    def decode_keys(self, batches: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        """Keys as of `key_column`, of (keys, headers). Raises StoreUnavailable."""
        decoding = key_decoding(self.schemas.open())
        for keys, headers in batches:
            yield from decoding.shown(keys, headers)

    def beside(self, batches: Iterator[pa.RecordBatch], columns: frozenset[str]) -> Iterator[pa.RecordBatch]:
        """Rows with those of DECODED that are among `columns`, and maybe others of them; in slices, where
        they have much JSON. Raises StoreUnavailable.
        """
        if KEY_JSON in columns:
            batches = self._with_keys(batches)
        return self._with_values(batches) if columns & {VALUE_JSON, ERROR} else batches

    def _with_keys(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoding = None if self.encoding.is_json else key_decoding(self.schemas.open())
        for batch in batches:
            if decoding is None:
                yield batch.append_column(KEY_JSON, text_array(batch.column(KEY)))
                continue
            start = 0
            for keys in decoding.shown(batch.column(KEY), batch.column(HEADERS)):
                yield batch.slice(start, len(keys)).append_column(KEY_JSON, text_array(keys))
                start += len(keys)

    def _with_values(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoding = None if self.encoding.is_json else Decoding(self.encoding, self.schemas.open())
        for batch in batches:
            parts = [(batch, batch.column(VALUE), pa.nulls(len(batch), pa.string()))]
            for part, json, errors in parts if decoding is None else decoding.slices(batch, VALUE):
                yield part.append_column(VALUE_JSON, text_array(json)).append_column(ERROR, errors)


def _function(decode: _Decode, kind: str) -> Callable[[Column, Column], Column]:
    # Spark finds in the annotations how it is called; its stubs want that said once more, and it warns then.
    made: Callable[[Column, Column], Column] = arrow_udf(decode, kind)  # type: ignore[call-overload]
    return made


AS_TEXT = ValueDecoder()
"""Of values that are JSON: they are their own JSON."""


def decoder_of(cluster: Cluster, name: str) -> ValueDecoder:
    """The decoder of the values of a topic, as it is declared now. Raises UnknownTopic, InvalidConfig for a
    source of schemas that is none.
    """
    topic = cluster.cached_topic(name)
    if topic is None or topic.config.encoding.is_json:
        return AS_TEXT
    return ValueDecoder(topic.config.encoding, cluster.schema_location(topic.config.schema_source))
