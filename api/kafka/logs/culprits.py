"""The records for which a batch is refused (KIP-467): a client fails these, and its program may send the
others again.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

import pyarrow.compute as pc

from api.kafka.clients.errors import ErrorCode, Refusal
from api.kafka.records.errors import Culprits
from log_tables.cluster.route import too_large, value_refusal, wrong_times, wrong_values
from log_tables.cluster.topic import Topic
from log_tables.errors import InvalidRecord
from log_tables.layout import KEY
from log_tables.limits import CULPRITS_MAX
from log_tables.rows import Records, Rows


class RefusedRecords(Refusal):
    """A batch is refused for the records that are named, CULPRITS_MAX at most."""

    def __init__(self, code: ErrorCode, culprits: Culprits) -> None:
        super().__init__(code, culprits[0][1])
        self.culprits = culprits


def refused_records(topic: Topic, records: Records, now_us: int) -> RefusedRecords | None:
    """The refusal of a batch by `topic`, at `now_us`; None if it takes all of `records`. Up to a millisecond
    for 20 values of declared columns.

    A batch with records that are too large is MESSAGE_TOO_LARGE, as in Kafka: Java's producer splits it, and
    sends each part again.
    """
    large = [*islice(too_large(records, topic), CULPRITS_MAX)]
    if large:
        return RefusedRecords(ErrorCode.MESSAGE_TOO_LARGE, large)
    untimely = [*islice(wrong_times(records, topic, now_us), CULPRITS_MAX)]
    if untimely:
        return RefusedRecords(ErrorCode.INVALID_TIMESTAMP, untimely)
    wrong = {
        each.place: value_refusal(topic, each) for each in islice(wrong_values(records, topic), CULPRITS_MAX)
    }
    wrong |= islice(_without_keys(topic, records), CULPRITS_MAX)
    return RefusedRecords(ErrorCode.INVALID_RECORD, sorted(wrong.items())[:CULPRITS_MAX]) if wrong else None


def check_keys(topic: Topic, records: Records) -> None:
    """Raise InvalidRecord where only the newest of each key is kept, and a record has none, as in Kafka."""
    for index, why in _without_keys(topic, records):
        raise InvalidRecord(f"record {index}: {why}")


def _without_keys(topic: Topic, records: Records) -> Iterator[tuple[int, str]]:
    if not topic.config.compacted:
        return
    why = f"topic {topic.name!r} keeps the newest record of each key, and this one has none; send a key"
    if isinstance(records, Rows):
        keys = records.keys or [None] * len(records)
        lacks: Iterable[int] = (index for index, key in enumerate(keys) if key is None)
    else:
        lacks = pc.indices_nonzero(records.column(KEY).is_null())[:CULPRITS_MAX].to_pylist()
    for index in lacks:
        yield index, why
