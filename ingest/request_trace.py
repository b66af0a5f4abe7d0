"""The request for which something is done: its id, and its place in a trace (W3C Trace Context).

`CURRENT` has it, in the task of the request and in those that this one starts. A task that outlives its
request and works for others is started in a context of its own. Where traces are kept, a `Tracer` notes what
a request needs; without one nothing is noted, and the headers of the client are passed on as they are.
"""

import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, Protocol

REQUEST_ID, TRACEPARENT, TRACESTATE = "x-request-id", "traceparent", "tracestate"
"""The headers that carry it."""

REQUEST_ID_MAX_CHARS = 128
TRACESTATE_MAX_CHARS = 512
"""A state of so many has to be passed on (W3C Trace Context, 3.3.1.5)."""

_REQUEST_ID = re.compile(rb"[A-Za-z0-9_.:;,=@/+~-]{1,%d}" % REQUEST_ID_MAX_CHARS)
_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_TRACESTATE = re.compile(rb"[ -~]{1,%d}" % TRACESTATE_MAX_CHARS)
_VERSION_0 = b"00"
_TRACEPARENT_CHARS = 55

Kind = Literal["server", "client", "internal"]


@dataclass(slots=True)
class RequestTrace:
    """`traceparent` and `tracestate` are empty for a request that belongs to no trace."""

    id: str
    traceparent: str = ""
    tracestate: str = ""

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits, or nothing."""
        return self.traceparent[3:35]

    @property
    def span_id(self) -> str:
        """16 hexadecimal digits, or nothing."""
        return self.traceparent[36:52]

    def headers(self) -> dict[str, str]:
        """Its headers in a request to another gateway."""
        sent = {REQUEST_ID: self.id, TRACEPARENT: self.traceparent, TRACESTATE: self.tracestate}
        return {name: value for name, value in sent.items() if value}


CURRENT: "ContextVar[RequestTrace | None]" = ContextVar("lakelog.request", default=None)
"""That of the request for which this task works; None if there is none."""


class RequestIds:
    """The ids of the requests to one process: its own prefix, and a number."""

    def __init__(self, prefix: str) -> None:
        self._prefix, self._made = prefix, 0

    def next(self) -> str:
        """One that no other request has."""
        self._made += 1
        return f"{self._prefix}-{self._made:x}"


def trace_of(headers: Mapping[bytes, Sequence[bytes]], ids: RequestIds) -> RequestTrace:
    """The trace of a request with these headers, each name in lower case with all its values.

    An id is taken if it is given once, and has up to REQUEST_ID_MAX_CHARS letters, digits and `_.:;,=@/+~-`;
    else the request gets one of `ids`. A traceparent is taken if it is given once and is one; without it, the
    tracestate means nothing.
    """
    given = headers.get(b"x-request-id")
    parent = headers.get(b"traceparent")
    named = given is not None and len(given) == 1 and _REQUEST_ID.fullmatch(given[0])
    trace = RequestTrace(given[0].decode() if named and given is not None else ids.next())
    if parent is not None and len(parent) == 1 and _is_traceparent(parent[0]):
        trace.traceparent = parent[0][:_TRACEPARENT_CHARS].decode()
        state = b",".join(headers.get(b"tracestate", ()))
        if _TRACESTATE.fullmatch(state):
            trace.tracestate = state.decode()
    return trace


def _is_traceparent(text: bytes) -> bool:
    """A later version may have more fields behind those of today."""
    begins = _TRACEPARENT.match(text) is not None
    rest = text[_TRACEPARENT_CHARS:]
    return begins and (not rest or (not text.startswith(_VERSION_0) and rest.startswith(b"-")))


Attributes = Mapping[str, str | int | float | Sequence[str]]


class Span(Protocol):
    """A part of a trace that has begun. `trace` is the place of what is done within it."""

    @property
    def trace(self) -> RequestTrace: ...

    def end(self, attributes: Attributes | None = None, failed: str = "", name: str = "") -> None:
        """It is over; `failed` says why it did not go well, `name` is one that was not known before."""
        ...


class Tracer(Protocol):
    """Notes traces, and sends them to where they are kept. No method blocks, or raises."""

    def begin(
        self,
        name: str,
        kind: Kind,
        within: RequestTrace,
        attributes: Attributes,
        also: Sequence[RequestTrace] = (),
    ) -> Span:
        """A span of what is done `within` a request, and for others `also`."""
        ...
