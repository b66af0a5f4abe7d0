"""The embedded formats of v2, those of bare values, their media types, and how a request names one."""

import re
from collections.abc import Collection, Iterable, Sequence
from enum import Enum

from starlette.requests import Request

from api.errors import FormatMismatch, UnsupportedMediaType
from log_tables.limits import ACCEPT_RANGES_MAX
from log_tables.schemas.schema import SchemaKind


class Format(Enum):
    """How keys and values stand in a body: JSON texts, base64 strings, UTF-8 strings, Arrow columns, or the
    JSON that stands for values of schemas.
    """

    JSON = "application/vnd.kafka.json.v2+json"
    BINARY = "application/vnd.kafka.binary.v2+json"
    TEXT = "application/vnd.kafka.text.v2+json"
    ARROW = "application/vnd.apache.arrow.stream"
    AVRO = "application/vnd.kafka.avro.v2+json"
    PROTOBUF = "application/vnd.kafka.protobuf.v2+json"
    JSONSCHEMA = "application/vnd.kafka.jsonschema.v2+json"

    @property
    def kind(self) -> SchemaKind | None:
        """The language of its schemas; None: it has none."""
        return _KINDS.get(self)


_KINDS = {
    Format.AVRO: SchemaKind.AVRO,
    Format.PROTOBUF: SchemaKind.PROTOBUF,
    Format.JSONSCHEMA: SchemaKind.JSON,
}


EVENT_STREAM = "text/event-stream"
"""Server-sent events: a media type of answers that go on, with keys and values in one of the formats."""

_VERSIONS = (".v2", ".v1", "")
"""Of the REST Proxy's media types: the older ones are taken for the newest."""

_NAMED = {
    f"application/vnd.kafka.{form.name.lower()}{version}+json": form
    for form in Format
    if form is not Format.ARROW
    for version in _VERSIONS
} | {
    # The REST Proxy's own default, where only its envelope is named.
    **{f"application/vnd.kafka{version}+json": Format.BINARY for version in _VERSIONS},
    Format.ARROW.value: Format.ARROW,
    "application/json": Format.JSON,
    "application/octet-stream": Format.JSON,
    "application/*": Format.JSON,
    "*/*": Format.JSON,
    "": Format.JSON,
}
_WILDCARDS = (("application/*",), ("*/*",))
_OPEN = (*(f"application/vnd.kafka{version}+json" for version in _VERSIONS), "application/json")
"""Media types that name no embedded format."""

_NAMES = {
    form: {name for name, named in _NAMED.items() if named is form} - {"application/*", "*/*", ""}
    for form in Format
}
_PAGES = ("text/html", "application/xhtml+xml")
_WEIGHT = re.compile(r";\s*q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)\s*(?:;|$)", re.IGNORECASE)

_BODIES = ("application/json", "application/octet-stream", Format.ARROW.value)


class ValueFormat(Enum):
    """How values stand in a body that has nothing besides them."""

    NDJSON = "application/x-ndjson"
    JSON = "application/json"
    CSV = "text/csv"
    BYTES = "application/octet-stream"


_VALUES_NAMED = {form.value: form for form in ValueFormat} | dict.fromkeys(
    ("application/ndjson", "application/jsonl", "application/json-lines", "application/x-json-lines"),
    ValueFormat.NDJSON,
)
_ENVELOPES = re.compile(r"application/vnd\.(?:kafka(?:\..+)?\+json|apache\.arrow\..+)")
"""Media types of bodies whose records have fields, or columns."""

_OF_FORMS = frozenset(("application/x-www-form-urlencoded", "multipart/form-data", "text/plain"))
"""The media types that a page may send to any address without asking first."""

_MEDIA_TYPE = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+/[a-z0-9!#$%&'*+.^_`|~-]+")
_UTF8 = ("utf-8", "utf8", "us-ascii")

OF_VALUES = ", ".join(form.value for form in ValueFormat)
SUPPORTED = ", ".join([*(form.value for form in Format), "application/json"])


def content_format(named: str) -> Format:
    """The format of a body whose Content-Type is `named`. Raises UnsupportedMediaType."""
    found = _NAMED.get(named) or _NAMED.get(essence(named))
    if found is None:
        raise UnsupportedMediaType(f"the media type {essence(named)!r} is not supported; send {SUPPORTED}")
    return found


def accepted_format(request: Request) -> Format:
    """The format that Accept weighs most, of these the first that it names (RFC 9110, 12.5.1).

    Raises FormatMismatch.
    """
    named = request.headers.get("accept", "")
    found = _NAMED.get(named)
    if found is not None:
        return found
    ranges = _ranges(named)
    weight, _, chosen = max(
        ((*_weight(ranges, (_NAMES[form], *_WILDCARDS)), form) for form in Format), key=lambda each: each[:2]
    )
    if weight == 0:
        raise FormatMismatch(f"no format in Accept {named[:200]!r} is available; accept one of {SUPPORTED}")
    return chosen


def wants_events(request: Request) -> bool:
    """Whether Accept names server-sent events, as a browser's EventSource does, and weighs nothing more.

    Raises FormatMismatch.
    """
    named = request.headers.get("accept", "")
    if named == EVENT_STREAM or EVENT_STREAM not in named.lower():
        return named == EVENT_STREAM
    ranges = _ranges(named)
    weight = max((weight for name, weight in ranges if name == EVENT_STREAM), default=0)
    return weight > 0 and weight == max(weight for _, weight in ranges)


def accepts(request: Request, form: Format) -> bool:
    """Whether Accept allows an answer in `form`: by its name, or by one that leaves the format open.

    Raises FormatMismatch for too many ranges.
    """
    ranges = _ranges(request.headers.get("accept", ""))
    return _weight(ranges, (_NAMES[form], _OPEN, *_WILDCARDS))[0] > 0


def prefers_page(named: str) -> bool:
    """Whether the Accept `named` weighs HTML most, and names it first, as a browser's does. One with too
    many ranges is no browser's.
    """
    if named.count(",") >= ACCEPT_RANGES_MAX:
        return False
    ranges = _ranges(named)
    most = max((weight for _, weight in ranges), default=0)
    return most > 0 and next(name for name, weight in ranges if weight == most) in _PAGES


def _ranges(named: str) -> list[tuple[str, int]]:
    """The media ranges of an Accept, in its order, and the weight of each in thousandths.

    A weight that is none is 1, as if it were not there. Raises FormatMismatch for more than may be.
    """
    if named.count(",") >= ACCEPT_RANGES_MAX:
        raise FormatMismatch(
            f"Accept {named[:200]!r} has more than {ACCEPT_RANGES_MAX} media ranges; name less"
        )
    ranges = []
    for part in (named or "*/*").split(","):
        if part and not part.isspace():
            weight = _WEIGHT.search(part)
            ranges.append((essence(part), round(float(weight[1]) * 1000) if weight else 1000))
    return ranges


def _weight(ranges: Sequence[tuple[str, int]], names: Iterable[Collection[str]]) -> tuple[int, int]:
    """The weight of what goes by `names`, the narrowest first, and its place, negative: the first is most.

    Wider ranges do not count where a narrower one names it.
    """
    for same in names:
        found = [(weight, -place) for place, (name, weight) in enumerate(ranges) if name in same]
        if found:
            return max(found)
    return 0, 0


def is_supported_body(media_type: str) -> bool:
    """Whether a body may be called so: JSON of some kind, or Arrow. None of these can a form send."""
    name = essence(media_type)
    return name in _BODIES or (name.startswith("application/") and name.endswith("+json"))


def value_format(named: str) -> ValueFormat:
    """The format of a body of bare values whose Content-Type is `named`: BYTES where it is no other.

    Raises UnsupportedMediaType for one whose records have fields, a text that is not UTF-8, and CSV without
    a header line.
    """
    kind, _, parameters = named.partition(";")
    name = essence(kind)
    if _ENVELOPES.fullmatch(name):
        raise UnsupportedMediaType(
            f"a body of the media type {name!r} is no bare values; send it to /topics/{{topic}}, or name one "
            f"of {OF_VALUES}"
        )
    form = _VALUES_NAMED.get(name, ValueFormat.JSON if name.endswith("+json") else ValueFormat.BYTES)
    if form is not ValueFormat.BYTES:
        _check_parameters(name, parameters)
    return form


def _check_parameters(name: str, parameters: str) -> None:
    for each in parameters.lower().split(";"):
        key, _, value = (part.strip().strip('"') for part in each.partition("="))
        if key == "charset" and value not in _UTF8:
            raise UnsupportedMediaType(f"the charset {value[:40]!r} of {name} is not taken; send UTF-8")
        if key == "header" and value == "absent":
            raise UnsupportedMediaType(f"{name} without a header line is not taken; send the names first")


def is_value_body(media_type: str) -> bool:
    """Whether a body of bare values may be called so: by anything that no form can send."""
    name = essence(media_type)
    return name not in _OF_FORMS and _MEDIA_TYPE.fullmatch(name) is not None


def essence(media_type: str) -> str:
    """A media type without its parameters."""
    return media_type.split(";", 1)[0].strip().lower()
