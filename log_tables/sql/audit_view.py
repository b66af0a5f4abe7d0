"""The view `audit`: the events of the audit log, decoded as they are read."""

import msgspec
import pyarrow as pa
from datafusion import DataFrame, SessionContext, udf

from log_tables.cluster.audit_log import AUDIT_SCHEMA, corrupt_event
from log_tables.cluster.audit_record import row_of
from log_tables.layout import OFFSET, TIMESTAMP, VALUE
from log_tables.sql.scan import Failures
from log_tables.sql.topic_files import TopicFiles
from log_tables.sql.topic_view import column, topic_view

_TIME = "time"
_OF_EVENT = pa.struct([field for field in AUDIT_SCHEMA if field.name != _TIME])


def audit_view(
    context: SessionContext, files: TopicFiles, failures: Failures, filtered: bool = True
) -> DataFrame:
    """The columns of AUDIT_SCHEMA, of the topic `__audit`. A filter over `time` leaves out files.

    Unless it is `filtered`, no filter reaches its scan. An event that cannot be read is in `failures`.
    """

    def decoded(offsets: pa.Array, values: pa.Array) -> pa.Array:
        return pa.array(map(_row, offsets.to_pylist(), values.to_pylist()), _OF_EVENT)

    def _row(offset: int, value: bytes | None) -> dict[str, object]:
        try:
            return row_of(value or b"")
        except (msgspec.MsgspecError, ValueError) as error:
            failures.append(corrupt_event(offset, error))
            raise

    event = udf(decoded, [pa.int64(), pa.binary()], _OF_EVENT, "immutable", "event_of")
    records = topic_view(context, files, failures, filtered)
    fields = event(column(OFFSET), column(VALUE))
    named = [fields[name].alias(name) for name in _OF_EVENT.names]
    return records.select(column(TIMESTAMP).alias(_TIME), *named)
