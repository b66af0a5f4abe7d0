"""A topic's messages: a page of them from a place on, a search among them, and one of them whole."""

from base64 import b64encode
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Literal, NamedTuple

from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from api.client_topics import with_topic_to_read
from api.console.command import RecordRange, commands
from api.console.page import render
from api.console.page_route import PageRoute
from api.console.pages.topic import MESSAGES, TopicHead, head_of
from api.console.record_decoding import Shown, decoding_of
from api.console.record_query import (
    AskedRecords,
    RecordFilter,
    RecordQuery,
    cursor_of,
    offset_of,
    partitions_of,
    positions_of,
    shown_ranges,
)
from api.console.record_scan import (
    BOUNDS,
    PARTITIONS_AT_ONCE,
    Found,
    Scan,
    raw_at,
    record_at,
    scanned_after,
    scanned_before,
)
from api.console.record_view import KEY_CHARS, LINE_CHARS, Field, View, dump_of, view_of
from api.gateway import Gateway
from api.requests.access import Asked
from api.requests.route_gateway import Here, gateway
from api.scalars import decimal
from coordinator.access.caller import Caller
from log_tables.cluster.topic import Topic
from log_tables.errors import InvalidArgument, NotFound
from log_tables.layout import KEY, VALUE
from log_tables.limits import KIB
from log_tables.partition.reader import PartitionReader

router = APIRouter(prefix="/console/topics/{topic}", include_in_schema=False, route_class=PageRoute)

WHOLE_BYTES = 64 * KIB
"""Bytes of a key or value that the page of one record shows; all of them can be downloaded."""

LIVE_PARTITIONS = 4
"""Partitions that a page follows: a browser has six connections to a gateway, and needs some for itself."""


SHARES_SHOWN = 8
"""Partitions of which a page says how many of its records each has."""


class Part(NamedTuple):
    """A key or a value on the page: as it is shown, a note on its schema, and its bytes as they are stored if
    the view is not of them.
    """

    view: View
    note: str = ""
    stored: View | None = None

    @property
    def size(self) -> int:
        """Bytes that are stored."""
        return (self.stored or self.view).size


class Row(NamedTuple):
    """A record on the page."""

    partition: int
    offset: int
    timestamp_ms: float
    key: Part
    value: Part
    headers: Sequence[tuple[str, View]]
    more_headers: int


class _Page(NamedTuple):
    """A scan, whether it went to older records, and where the partitions begin and end."""

    scan: Scan
    to_older: bool
    starts: Mapping[int, int]
    ends: Mapping[int, int]


@router.get("/messages")
async def messages(
    request: Request,
    here: Here,
    asked: Asked,
    topic: str,
    query: AskedRecords,
    before: Annotated[str, Query(max_length=2_000)] = "",
    after: Annotated[str, Query(max_length=2_000)] = "",
) -> Response:
    """The page of some messages, or without `start` and with an offset that of one."""
    head = await head_of(request, asked, topic)
    if query.start is None and query.offset:
        return await _one(request, asked, head, _number(query.partition), offset_of(query.offset))
    form, wanted = query.from_place("newest"), query.filter()
    numbers = partitions_of(form.partition, head.state.partition_count)
    chosen, left_out = numbers[:PARTITIONS_AT_ONCE], numbers[PARTITIONS_AT_ONCE:]

    async def look(found: Topic) -> _Page:
        return await run_in_threadpool(_look, here, found, chosen, form, wanted, (before, after))

    began = here.clock.monotonic()
    looked = await with_topic_to_read(here, topic, look)
    more = {
        "left_out": len(left_out),
        "next_partitions": shown_ranges(left_out),
        "chosen": shown_ranges(chosen),
        "at_once": PARTITIONS_AT_ONCE,
        "seconds": here.clock.monotonic() - began,
    }

    def made() -> Response:
        values = _values(here, head, form, wanted, looked) | more
        return render(request, "messages.html", values, asked)

    return await run_in_threadpool(made)  # keys, values and headers have megabytes at most


@router.get("/value")
async def value(
    here: Here,
    topic: str,
    partition: Annotated[int, Query(ge=0)],
    offset: Annotated[int, Query(ge=0)],
    part: Annotated[Literal["key", "value"], Query()] = "value",
) -> Response:
    """The bytes of one key or value, as a file: no browser takes them for a page. Raises NotFound."""

    async def read(found: Topic) -> bytes | None:
        return await run_in_threadpool(_raw, found, partition, offset, KEY if part == "key" else VALUE)

    content = await with_topic_to_read(here, topic, read)
    if content is None:
        raise NotFound(
            f"the record at offset {offset} of topic {topic}, partition {partition}, has no {part}; look at "
            "its page"
        )
    name = f"{topic}-{partition}-{offset}.{part}"
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    return Response(content, media_type="application/octet-stream", headers=headers)


async def _one(request: Request, asked: Caller, head: TopicHead, partition: int, offset: int) -> Response:
    """The page of one record, as much of it as `WHOLE_BYTES` shows."""

    async def read(topic: Topic) -> tuple[Found | None, int, int]:
        return await run_in_threadpool(_record, here, topic, partition, offset)

    here = gateway(request)
    found, low, high = await with_topic_to_read(here, head.name, read)

    def made() -> Response:
        rows = [] if found is None else [found]
        values = {
            "topic": head,
            "partition": partition,
            "offset": offset,
            "low": low,
            "high": high,
            "row": None if found is None else _row(found),
            "commands": _commands(here, head, rows, (partition, offset), RecordQuery()),
        }
        return render(request, "message.html", values, asked, 200 if found else 404)

    return await run_in_threadpool(made)


def _record(here: Gateway, topic: Topic, partition: int, offset: int) -> tuple[Found | None, int, int]:
    """The record, and where its partition begins and ends; blocking."""
    reader = _refreshed(topic, partition)
    bounds = BOUNDS._replace(cut_bytes=WHOLE_BYTES, decoding=decoding_of(topic, here.clock))
    return record_at(reader, partition, offset, bounds), reader.log_start, reader.high_watermark


def _raw(topic: Topic, partition: int, offset: int, column: str) -> bytes | None:
    batch = raw_at(_refreshed(topic, partition), offset)
    if batch is None:
        return None
    content: bytes | None = batch.column(column)[0].as_py()
    return content


def _look(
    here: Gateway,
    topic: Topic,
    numbers: Sequence[int],
    form: RecordQuery,
    wanted: RecordFilter,
    cursors: tuple[str, str],
) -> _Page:
    """The records that the form asks for; blocking."""
    readers = {number: _refreshed(topic, number) for number in numbers}
    before, after = map(positions_of, cursors)
    starts = {number: reader.log_start for number, reader in readers.items()}
    ends = {number: reader.high_watermark for number, reader in readers.items()}
    bounds = BOUNDS._replace(decoding=decoding_of(topic, here.clock))
    to_older = bool(before) or (form.start == "newest" and not after)
    if to_older:
        found = scanned_before(readers, {**ends, **before}, wanted, here.clock, bounds)
    else:
        begin = {number: form.first_of(reader) for number, reader in readers.items() if number not in after}
        by_time = form.start == "time"
        found = scanned_after(readers, {**begin, **after}, wanted, here.clock, bounds, by_time)
    return _Page(found, to_older, starts, ends)


def _refreshed(topic: Topic, number: int) -> PartitionReader:
    reader = topic.partition(number)
    reader.refresh()
    return reader


def _choice(scan: Scan, form: RecordQuery, to_older: bool) -> str:
    """How the rows of a page were chosen, and their order."""
    counts = Counter(row.partition for row in scan.rows)
    order = "newest" if form.start == "newest" else "oldest"
    if len(scan.low) == 1 or not counts:
        return f"In the order of offsets, the {order} first." if counts else ""
    if form.start == "time" and not to_older:
        which = "of the earliest record times"
    else:
        which = f"appended {'last' if to_older else 'first'}"
    shares = [f"{count} of partition {number}" for number, count in sorted(counts.items())]
    if len(shares) > SHARES_SHOWN:
        shares = [f"from {len(shares)} of them"]
    which = f"Of {len(scan.low)} partitions together, the records {which}: {', '.join(shares)}."
    return f"{which} By record time, the {order} first."


def _values(
    here: Gateway, head: TopicHead, form: RecordQuery, wanted: RecordFilter, looked: _Page
) -> dict[str, object]:
    scan, page = looked.scan, f"{head.path}/messages"
    newest_first = form.start == "newest"
    found = [*reversed(scan.rows)] if newest_first else scan.rows
    older = any(scan.low[at] > low for at, low in looked.starts.items())
    newer = any(scan.high[at] < high for at, high in looked.ends.items())
    numbers = [*scan.low]
    followed = numbers[:LIVE_PARTITIONS]
    return {
        "topic": head,
        "tab": MESSAGES,
        "form": form,
        "rows": [_row(each) for each in found],
        "scan": scan,
        "is_search": not wanted.takes_all,
        "total": sum(looked.ends[at] - low for at, low in looked.starts.items()),
        "newest_first": newest_first,
        "older": form.url(page, before=cursor_of(scan.low)) if older else "",
        "newer": form.url(page, after=cursor_of(scan.high)) if newer or newest_first else "",
        "has_newer": newer,
        "to_older": looked.to_older,
        "choice": _choice(scan, form, looked.to_older),
        "export": f"{head.path}/export",
        "followed": cursor_of({at: looked.ends[at] for at in followed}),
        "not_followed": len(numbers) - len(followed),
        "keys": ",".join(b64encode(each).decode() for each in wanted.keys),
        "commands": _commands(here, head, found, (numbers[0], scan.low[numbers[0]]), form),
        "fields": asdict(form),
    }


def _commands(
    here: Gateway, head: TopicHead, found: Sequence[Found], first: tuple[int, int], form: RecordQuery
) -> list[tuple[str, str]]:
    """`first` are the partition and the offset from which on it is looked where nothing was found."""
    at = found[0].partition if found else first[0]
    begin = min((each.offset for each in found if each.partition == at), default=first[1])
    others = sorted({each.partition for each in found} - {at})
    is_json = all(view_of(each.value).kind in ("json", "null") for each in found)
    wanted = form.filter()
    of_first = [each for each in found if each.partition == at]
    not_text = _not_text(of_first) if wanted.takes_all else None
    shown = RecordRange(
        head.name,
        [at, *others],
        begin,
        len(found),
        len(of_first),
        wanted.keys,
        form.text,
        is_json,
        not_text,
    )
    return commands(here.settings.advertised_url, _root(head), shown)


def _not_text(found: Sequence[Found]) -> list[str] | None:
    """As `RecordRange.not_text`, of these records."""
    parts: dict[str, list[Field]] = {
        "key": [each.key for each in found],
        "value": [each.value for each in found],
        "header": [value for each in found for _, value in each.headers],
    }
    if any(len(part.data or b"") < part.size for fields in parts.values() for part in fields):
        return None
    if any(each.header_count > len(each.headers) for each in found):
        return None
    return [name for name, fields in parts.items() if not all(_is_text(each) for each in fields)]


def _is_text(content: Field) -> bool:
    try:
        (content.data or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _root(head: TopicHead) -> str:
    """The root that the location of a topic's table is in."""
    return (head.location or "").rpartition("/topics/")[0]


def _row(found: Found) -> Row:
    return Row(
        found.partition,
        found.offset,
        found.timestamp_us / 1000,
        _part(found.key, found.key_shown, KEY_CHARS),
        _part(found.value, found.value_shown),
        [(name, view_of(content, KEY_CHARS)) for name, content in found.headers],
        found.header_count - len(found.headers),
    )


def _part(content: Field, shown: Shown, chars: int = LINE_CHARS) -> Part:
    if shown.json is None:
        return Part(view_of(content, chars), shown.note)
    return Part(view_of(shown.json, chars), shown.note, dump_of(content))


def _number(text: str) -> int:
    found = decimal(text.strip())
    if found is None or found < 0:
        raise InvalidArgument(f"partition {text[:40]!r} is not one partition; write its number, as 0")
    return found
