"""The form of a record, and the dry run of producing it."""

import asyncio
from base64 import b64encode
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import msgspec
from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from api.client_topics import look_up_wanted, topic_to_write
from api.console.page import fragment, moment, number, render
from api.console.page_route import PageRoute
from api.console.pages.change import Change, ChangedValue, planned
from api.console.pages.topic import TopicHead, head_of
from api.console.record_view import Field, view_of
from api.media import Format
from api.requests.access import Asked
from api.requests.route_gateway import Here
from api.scalars import decimal, microseconds
from api.wire.v2 import decode_records
from log_tables.cluster.route import PartitionBatch, Route, SentRecords
from log_tables.errors import InvalidRecord, InvalidValue, LakelogError
from log_tables.rows import as_batch

router = APIRouter(prefix="/console/topics/{topic}", include_in_schema=False, route_class=PageRoute)

_FORMATS = {"json": Format.JSON, "text": Format.TEXT, "binary": Format.BINARY}
VALUE_CHARS = 16_000
"""Characters of a value in the form: it stands in an address, whose length is bounded."""

SHOWN_BYTES = 4_096
"""Bytes of a key or value that the dry run shows."""


@dataclass(frozen=True, slots=True)
class _RecordFields:
    """The fields of the form, as they stand in the address."""

    key: Annotated[str, Query()] = ""
    value: Annotated[str | None, Query()] = None
    format: Annotated[Literal["json", "text", "binary"], Query()] = "json"
    headers: Annotated[str, Query()] = ""
    partition: Annotated[str, Query()] = ""
    timestamp: Annotated[str, Query()] = ""
    tombstone: Annotated[bool, Query()] = False

    def url(self, page: str, **more: str) -> str:
        """The address of the form with these fields in it."""
        fields = {name: "true" if value is True else value for name, value in asdict(self).items() if value}
        return f"{page}?{urlencode({**fields, **more})}"


@router.get("/produce")
async def produce(
    request: Request,
    here: Here,
    asked: Asked,
    topic: str,
    form: Annotated[_RecordFields, Depends(_RecordFields)],
    edit: Annotated[bool, Query()] = False,
    sent: Annotated[bool, Query()] = False,
) -> Response:
    """The form of a record; with a value, the dry run of producing it. To `edit` it, or to make another one
    after it was `sent`, the form has the fields of before.
    """
    head = await head_of(request, asked, topic)
    if form.value is None or edit:
        values = {"topic": head, "form": form, "sent": sent, "value_chars": VALUE_CHARS}
        return render(request, "produce.html", values, asked)
    record: dict[str, Any] = {}
    facts, refused = [], ""
    try:
        record = _record(form)
        body = msgspec.json.encode({"records": [record]})
        decoded = decode_records(body, _FORMATS[form.format], here.clock.now_us())
        route = Route(await topic_to_write(here, topic), None, -1, here.clock.now_us())
        [batch] = await _split(route, decoded)
        facts = _facts(head, form, as_batch(batch.records), batch.partition)
    except LakelogError as error:
        refused = error.message
    change = Change(
        title=f"Produce a record to {topic}",
        method="POST",
        url=f"/topics/{topic}",
        body={"records": [record]},
        facts=facts,
        following=f"{head.path}/messages",
        back=form.url(f"{head.path}/produce", edit="true"),
        button="Produce the record",
        refused=refused,
        content_type=_FORMATS[form.format].value,
        again=form.url(f"{head.path}/produce", edit="true", sent="true"),
    )
    return planned(request, asked, change)


async def _split(route: Route, sent: SentRecords) -> list[PartitionBatch]:
    """Raises as `Route.split` does, for schemas that are known now."""
    known = route.topic.schemas.version
    try:
        return await asyncio.to_thread(route.split, sent)
    except InvalidValue:
        if await look_up_wanted(route.topic) == known:
            raise
        return await asyncio.to_thread(route.split, sent)


def _record(form: _RecordFields) -> dict[str, Any]:
    """The record of a form, as a body of version 2 has it. Raises InvalidRecord, InvalidArgument."""
    record: dict[str, Any] = {}
    if form.key:
        record["key"] = _content("key", form.key, form.format)
    record["value"] = None if form.tombstone else _content("value", form.value or "", form.format)
    if form.partition.strip():
        record["partition"] = _whole("partition", form.partition)
    if form.timestamp.strip():
        record["timestamp"] = microseconds(form.timestamp.strip()) // 1000
    if form.headers.strip():
        record["headers"] = [_header(line) for line in form.headers.splitlines() if line.strip()]
    return record


def _content(name: str, text: str, form: str) -> Any:
    """A key or a value. Raises InvalidRecord for one that is not JSON."""
    if form != "json":
        return text
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRecord(
            f"the {name} is not JSON: {error}; write a text in quotes, or choose the format text"
        ) from None
    return msgspec.Raw(text.encode())


def _header(line: str) -> dict[str, str]:
    """A line `name=value`. Raises InvalidRecord."""
    name, equals, value = line.partition("=")
    if not equals:
        raise InvalidRecord(f"the header {line[:60]!r} has no value; write name=value")
    return {"key": name.strip(), "value": b64encode(value.encode()).decode()}


def _whole(name: str, text: str) -> int:
    found = decimal(text.strip())
    if found is None:
        raise InvalidRecord(f"{name} {text[:40]!r} is not a whole number; write its digits, as 0")
    return found


def _facts(head: TopicHead, form: _RecordFields, batch: Any, partition: int) -> list[ChangedValue]:
    key, value = batch.column("key")[0].as_py(), batch.column("value")[0].as_py()
    if form.partition.strip():
        where = f"{partition}, which it names"
    else:
        where = "any: the record has no key" if key is None else f"{partition}, by its key"
    records = head.state.partitions[partition].end if partition in head.state.partitions else None
    facts = [ChangedValue("Partition", "–", where)]
    if records is not None and partition >= 0:
        facts.append(ChangedValue("Offset", "–", f"{number(records)}, unless others come first"))
    facts += [
        ChangedValue("Key", "–", "none" if key is None else _content_of(key)),
        ChangedValue("Value", "–", "null: a tombstone" if value is None else _content_of(value)),
        *(
            ChangedValue(f"Header {each['key'][:100]}", "–", _content_of(each["value"]))
            for each in batch.column("headers")[0].as_py() or ()
        ),
        ChangedValue("Time", "–", _time(form)),
    ]
    return facts


def _content_of(data: bytes | None) -> str:
    """A key or a value with its size, as the page of messages shows it."""
    view = view_of(Field(None if data is None else data[:SHOWN_BYTES], len(data or b"")))
    return fragment("content.html", {"view": view})


def _time(form: _RecordFields) -> str:
    return moment(microseconds(form.timestamp.strip()) // 1000) if form.timestamp.strip() else "now"
