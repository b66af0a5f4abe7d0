"""The routes of produce in common: their `acks`, the headers that they refuse, and their answers."""

from typing import Annotated, Any

import msgspec
from fastapi import Query
from starlette.types import Scope

from api.requests.appending import record_result
from api.requests.envelope import V2_MEDIA_TYPE
from api.wire.v2 import NO_IDS, SchemaIds, encode_offsets, record_texts
from ingest.writer import Acks, AppendOutcome
from log_tables.cluster.route import PartitionBatch
from log_tables.errors import InvalidArgument
from log_tables.rows import count_of

_OF_ONE_PARTITION = {
    name.lower().encode(): name
    for name in ("Producer-Id", "Producer-Epoch", "Producer-Seq", "Expected-Offset")
}
"""Meaningful for one partition only; the topic endpoint refuses them rather than ignore them."""

ANSWER_HEADERS = {
    acks: ((b"acks", acks.value.encode()), (b"content-type", V2_MEDIA_TYPE.encode())) for acks in Acks
}
"""Of the answers."""

AcksParameter = Annotated[
    str,
    Query(description="Answer when the records are accepted (0), have offsets (1), or are durable (all)."),
]


def refuse_of_one_partition(scope: Scope, topic: str) -> None:
    """Raise InvalidArgument for a header that is meaningful for one partition only."""
    for name, _ in scope["headers"]:
        if name in _OF_ONE_PARTITION:
            raise InvalidArgument(
                f"{_OF_ONE_PARTITION[name]} needs one partition; send it to "
                f"/topics/{topic}/partitions/{{partition}}"
            )


def acks_of(name: str) -> Acks:
    """The acks that a request names. Raises InvalidArgument."""
    try:
        return Acks("all" if name == "-1" else name)
    except ValueError:
        raise InvalidArgument(f"acks={name[:40]!r} is not known; use 0, 1 or all") from None


def offsets_by_record(
    batches: list[PartitionBatch],
    outcomes: list[AppendOutcome],
    ids: SchemaIds = NO_IDS,
) -> bytes:
    """The answer with a placement for each record, and the ids of the schemas of keys and values."""
    parts = [
        record_texts(record_result(batch.partition, outcome, 0), count_of(batch.records))
        for batch, outcome in zip(batches, outcomes, strict=True)
    ]
    if len(parts) == 1:
        return encode_offsets(parts[0], ids)
    texts = [""] * sum(map(len, parts))
    for batch, own in zip(batches, parts, strict=True):
        for index, text in zip(batch.positions(), own, strict=True):
            texts[index] = text
    return encode_offsets(texts, ids)


def offsets_by_partition(batches: list[PartitionBatch], outcomes: list[AppendOutcome]) -> bytes:
    """The answer with one placement for all records of a partition."""
    rows: list[dict[str, Any]] = []
    for batch, outcome in zip(batches, outcomes, strict=True):
        partition, offset, code, error = record_result(batch.partition, outcome, 0)
        row = {"partition": partition, "base_offset": offset, "count": count_of(batch.records)}
        rows.append(row if code is None else {**row, "error_code": code, "error": error})
    return msgspec.json.encode({"offsets": rows})
