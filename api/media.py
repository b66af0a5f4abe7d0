"""The embedded formats of v2, their media types, and how a request names one."""

from enum import Enum

from starlette.requests import Request

from api.errors import FormatMismatch, UnsupportedMediaType


class Format(Enum):
    """How keys and values stand in a body: JSON texts, base64 strings, UTF-8 strings, Arrow columns."""

    JSON = "application/vnd.kafka.json.v2+json"
    BINARY = "application/vnd.kafka.binary.v2+json"
    TEXT = "application/vnd.kafka.text.v2+json"
    ARROW = "application/vnd.apache.arrow.stream"


EVENT_STREAM = "text/event-stream"
"""Server-sent events: a media type of answers that go on, with keys and values in one of the formats."""

_VERSIONS = (".v2", ".v1", "")
"""Of the REST Proxy's media types: the older ones are taken for the newest."""

_NAMED = {
    f"application/vnd.kafka.{form.name.lower()}{version}+json": form
    for form in (Format.JSON, Format.BINARY, Format.TEXT)
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
_OPEN = (
    *(f"application/vnd.kafka{version}+json" for version in _VERSIONS),
    "application/json",
    "application/*",
    "*/*",
    "",
)
"""Media types that name no embedded format."""

_BODIES = ("application/json", "application/octet-stream", Format.ARROW.value)

SUPPORTED = ", ".join([*(form.value for form in Format), "application/json"])


def content_format(named: str) -> Format:
    """The format of a body whose Content-Type is `named`. Raises UnsupportedMediaType."""
    found = _NAMED.get(named) or _NAMED.get(essence(named))
    if found is None:
        raise UnsupportedMediaType(f"the media type {essence(named)!r} is not supported; send {SUPPORTED}")
    return found


def accepted_format(request: Request) -> Format:
    """The first format that Accept names and that is known here. Raises FormatMismatch."""
    named = request.headers.get("accept", "")
    found = _NAMED.get(named)
    if found is not None:
        return found
    for part in named.split(","):
        if (known := _NAMED.get(essence(part))) is not None:
            return known
    raise FormatMismatch(f"no format in Accept {named[:200]!r} is available; accept one of {SUPPORTED}")


def wants_events(request: Request) -> bool:
    """Whether Accept names server-sent events, as a browser's EventSource does."""
    named = request.headers.get("accept", "")
    return named == EVENT_STREAM or EVENT_STREAM in map(essence, named.split(","))


def accepts(request: Request, form: Format) -> bool:
    """Whether Accept allows an answer in `form`: by its name, or by one that leaves the format open."""
    parts = request.headers.get("accept", "").split(",")
    return any(part in _OPEN or _NAMED.get(part) is form for part in map(essence, parts))


def is_supported_body(media_type: str) -> bool:
    """Whether a body may be called so: JSON of some kind, or Arrow. None of these can a form send."""
    name = essence(media_type)
    return name in _BODIES or (name.startswith("application/") and name.endswith("+json"))


def essence(media_type: str) -> str:
    """A media type without its parameters."""
    return media_type.split(";", 1)[0].strip().lower()
