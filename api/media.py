"""The embedded formats of v2 and their media types, and how a request names the one that it means."""

from enum import Enum

from starlette.requests import Request

from api.errors import FormatMismatch, UnsupportedMediaType


class Format(Enum):
    """How keys and values stand in a body: JSON texts, base64 strings, UTF-8 strings, Arrow columns."""

    JSON = "application/vnd.kafka.json.v2+json"
    BINARY = "application/vnd.kafka.binary.v2+json"
    TEXT = "application/vnd.kafka.text.v2+json"
    ARROW = "application/vnd.apache.arrow.stream"


_NAMED = {form.value: form for form in Format} | {
    # The REST Proxy's own default, where only its envelope is named.
    "application/vnd.kafka.v2+json": Format.BINARY,
    "application/vnd.kafka+json": Format.BINARY,
    "application/json": Format.JSON,
    "application/octet-stream": Format.JSON,
    "application/*": Format.JSON,
    "*/*": Format.JSON,
    "": Format.JSON,
}
_OPEN = (
    "application/vnd.kafka.v2+json",
    "application/vnd.kafka+json",
    "application/json",
    "application/*",
    "*/*",
    "",
)
"""Media types that name no embedded format."""

SUPPORTED = ", ".join([*(form.value for form in Format), "application/json"])


def content_format(request: Request) -> Format:
    """The format of the body, by Content-Type. Raises UnsupportedMediaType."""
    named = request.headers.get("content-type", "")
    found = _NAMED.get(named) or _NAMED.get(_essence(named))
    if found is None:
        raise UnsupportedMediaType(f"the media type {_essence(named)!r} is not supported; send {SUPPORTED}")
    return found


def accepted_format(request: Request) -> Format:
    """The first format that Accept names and that is known here. Raises FormatMismatch."""
    named = request.headers.get("accept", "")
    found = _NAMED.get(named)
    if found is not None:
        return found
    for part in named.split(","):
        if (known := _NAMED.get(_essence(part))) is not None:
            return known
    raise FormatMismatch(f"nothing in Accept {named[:200]!r} can be given; ask for {SUPPORTED}")


def accepts(request: Request, form: Format) -> bool:
    """Whether Accept allows an answer in `form`: by its name, or by one that leaves the format open."""
    parts = request.headers.get("accept", "").split(",")
    return any(_essence(part) in (form.value, *_OPEN) for part in parts)


def _essence(media_type: str) -> str:
    return media_type.split(";", 1)[0].strip().lower()
