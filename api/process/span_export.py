"""Traces for OpenTelemetry, where OTEL_… variables ask for them. Nothing of it is loaded otherwise."""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ingest.request_trace import TRACEPARENT, TRACESTATE, Attributes, Kind, RequestTrace, Span, Tracer
from log_tables.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span as OtelSpan

SERVICE_NAME = "lakelog"
"""Unless OTEL_SERVICE_NAME names another."""

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_UNNAMED = "unknown_service"
_TAKEN = ("", "http/protobuf")

_log = logging.getLogger(__name__)


def tracer_of(environment: Mapping[str, str]) -> Tracer | None:
    """A tracer that sends to the OTLP endpoint that these variables name; None if they ask for none, or for
    what cannot be done, which the log says.
    """
    if not _asked_for(environment):
        return None
    exporter = environment.get("OTEL_TRACES_EXPORTER") or "otlp"
    protocol = next((environment[name] for name in _PROTOCOLS if environment.get(name)), "")
    if exporter != "otlp" or protocol not in _TAKEN:
        _log.warning(
            "no traces are sent: OTEL_TRACES_EXPORTER=%r and the protocol %r are not taken; "
            "use otlp and http/protobuf",
            exporter[:40],
            protocol[:40],
        )
        return None
    try:
        return _exported()
    except ImportError:
        _log.warning("no traces are sent: OpenTelemetry is not installed; lakelog's extra otel has it")
        return None


def _asked_for(environment: Mapping[str, str]) -> bool:
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "")
    return exporter != "none" and bool(exporter or any(map(environment.get, _ENDPOINTS)))


def _exported() -> Tracer:
    """Raises ImportError."""
    # It warns of each `tracestate` that it does not take, and anybody can send one.
    logging.getLogger("opentelemetry.trace.span").setLevel(logging.ERROR)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.version": VERSION})
    if str(resource.attributes["service.name"]).startswith(_UNNAMED):
        resource = resource.merge(Resource({"service.name": SERVICE_NAME}))
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return SpanExport(provider)


class SpanExport:
    """Sends spans in the background, and what is left when the process ends."""

    def __init__(self, provider: "TracerProvider") -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = provider.get_tracer(SERVICE_NAME, VERSION)
        self._propagator = TraceContextTextMapPropagator()
        self._api = trace
        self._kinds = {
            "server": trace.SpanKind.SERVER,
            "client": trace.SpanKind.CLIENT,
            "internal": trace.SpanKind.INTERNAL,
        }

    def begin(
        self,
        name: str,
        kind: Kind,
        within: RequestTrace,
        attributes: Attributes,
        also: Sequence[RequestTrace] = (),
    ) -> Span:
        links = [self._api.Link(self._place(each)) for each in also if each.traceparent]
        told = {**attributes, "lakelog.request_id": within.id}
        span = self._tracer.start_span(name, self._context(within), self._kinds[kind], told, links)
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, self._api.set_span_in_context(span))
        trace = RequestTrace(within.id, carrier.get(TRACEPARENT, ""), carrier.get(TRACESTATE, ""))
        return SentSpan(span, trace)

    def _context(self, within: RequestTrace) -> Any:
        from opentelemetry.context import Context

        carrier = {TRACEPARENT: within.traceparent, TRACESTATE: within.tracestate}
        return self._propagator.extract({name: text for name, text in carrier.items() if text}, Context())

    def _place(self, trace: RequestTrace) -> Any:
        return self._api.get_current_span(self._context(trace)).get_span_context()


class SentSpan:
    """A span that is sent when it has ended."""

    def __init__(self, span: "OtelSpan", trace: RequestTrace) -> None:
        self._span, self._trace = span, trace

    @property
    def trace(self) -> RequestTrace:
        return self._trace

    def end(self, attributes: Attributes | None = None, failed: str = "", name: str = "") -> None:
        from opentelemetry.trace import Status, StatusCode

        if not self._span.is_recording():
            return  # not sampled, or ended before
        if name:
            self._span.update_name(name)
        self._span.set_attributes(dict(attributes or {}))
        if failed:
            self._span.set_status(Status(StatusCode.ERROR, failed))
        self._span.end()
