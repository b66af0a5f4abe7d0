"""A receiver of OpenTelemetry's traces, as a collector is one: OTLP over HTTP, in protobuf."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class ReceivedSpan(NamedTuple):
    """Ids are hexadecimal; `resource` says which process has sent it; `links` are the ids of other spans."""

    name: str
    trace_id: str
    span_id: str
    parent: str
    kind: int
    failed: str
    attributes: dict[str, Any]
    resource: dict[str, Any]
    links: tuple[str, ...]


@dataclass
class Received:
    """The spans so far, and where they are sent."""

    endpoint: str
    spans: list[ReceivedSpan] = field(default_factory=list)

    def named(self, name: str, **attributes: Any) -> list[ReceivedSpan]:
        """The spans with this name and these attributes; `_` in a keyword stands for `.`."""
        wanted = {key.replace("_", "."): value for key, value in attributes.items()}
        return [
            each for each in self.spans if each.name == name and wanted.items() <= each.attributes.items()
        ]

    def child(self, of: ReceivedSpan, name: str) -> ReceivedSpan:
        """The one span of this name that is right below another."""
        (found,) = [each for each in self.named(name) if each.parent == of.span_id]
        assert found.trace_id == of.trace_id
        return found


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return (
        [_value(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)
    )


def _values(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _spans(body: bytes) -> Iterator[ReceivedSpan]:
    for each in ExportTraceServiceRequest.FromString(body).resource_spans:
        for scope in each.scope_spans:
            for span in scope.spans:
                yield ReceivedSpan(
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.kind,
                    span.status.message,
                    _values(span.attributes),
                    _values(each.resource.attributes),
                    tuple(link.span_id.hex() for link in span.links),
                )


@contextmanager
def otlp_receiver() -> Iterator[Received]:
    """A running receiver, which takes all spans that are sent to it."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            received.spans += _spans(self.rfile.read(int(self.headers["Content-Length"])))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received = Received(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
