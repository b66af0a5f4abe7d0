"""Records in JSON answers."""

from bisect import bisect_right
from itertools import accumulate
from typing import Any

from pydantic import BaseModel, Field

from api.errors import NotJson
from api.media import Format
from api.wire.records import encode_rows
from log_tables.partition.read_plan import ReadPlan
from log_tables.partition.reader import PartitionReader

JSON_RECORDS_AT_ONCE = 8_192
"""Rows turned to JSON at a time, between two looks at the size."""


class FetchedHeader(BaseModel):
    key: str
    value: str | None = Field(description="Base64.")


class FetchedRecord(BaseModel):
    """A record, with key and value in the requested format."""

    topic: str
    key: Any
    value: Any
    partition: int
    offset: int
    timestamp: int = Field(description="Milliseconds since 1970 UTC.")
    headers: list[FetchedHeader]


def json_records(
    place: tuple[str, int],
    partition: PartitionReader,
    plan: ReadPlan,
    form: Format,
    limit: int,
    is_first: bool = True,
) -> tuple[list[str], int]:
    """The rows of the answer, about `limit` characters of them, and the offset after the last. If they are
    not the first of the answer, there are no more characters, and there may be no row.

    A JSON answer is made before it is sent: this limit is what a slow reader can hold.
    """
    rows: list[str] = []
    size = 0
    plan = partition.bound(plan)
    for batch in partition.read(plan):
        for start in range(0, batch.num_rows, JSON_RECORDS_AT_ONCE):
            part = batch.slice(start, JSON_RECORDS_AT_ONCE)
            try:
                made = encode_rows(part, *place, form)
            except NotJson:
                if not rows:
                    raise
                made = []
            ends = [*accumulate(map(len, made), initial=size)]
            if not is_first:
                made = made[: bisect_right(ends, limit) - 1]
            rows += made
            size = ends[len(made)]
            if len(made) < part.num_rows or size >= limit:
                cut = start + len(made)
                after = batch.column("offset")[cut - 1].as_py() + 1 if cut else None
                return rows, after if after is not None else batch.column("offset")[0].as_py()
    return rows, plan.end
