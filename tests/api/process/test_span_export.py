"""Which OTEL_… variables ask for traces; and that without them nothing of OpenTelemetry's SDK is loaded."""

import logging
import subprocess
import sys

import pytest

from api.process.span_export import tracer_of
from ingest.request_trace import RequestTrace

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_SERVICE_NAME": "log"},
        {**ENDPOINT, "OTEL_SDK_DISABLED": "true"},
        {**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_nothing_is_sent_unless_it_is_asked_for(
    environment: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    assert tracer_of(environment) is None
    assert caplog.text == ""


@pytest.mark.parametrize(
    "environment",
    [
        {"OTEL_TRACES_EXPORTER": "zipkin"},
        {**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        {**ENDPOINT, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"},
    ],
)
def test_what_cannot_be_sent_is_said(environment: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert tracer_of(environment) is None
    assert "use otlp and http/protobuf" in caplog.text


def test_without_the_package_the_log_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with caplog.at_level(logging.WARNING):
        assert tracer_of(ENDPOINT) is None
    assert "lakelog's extra otel has it" in caplog.text


def test_a_gateway_without_traces_loads_nothing_of_the_sdk(process: None) -> None:
    code = (
        "import sys; from api.process.server import tracer_of; assert tracer_of({}) is None;"
        "unused = 'opentelemetry.sdk', 'opentelemetry.exporter';"
        "print([name for name in sys.modules if name.startswith(unused)])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_a_trace_that_is_not_sampled_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENDPOINT.items():
        monkeypatch.setenv(name, value)
    tracer = tracer_of(ENDPOINT)
    assert tracer is not None
    given = RequestTrace("id", f"00-{TRACE}-{SPAN}-00", "a=1")
    span = tracer.begin("work", "server", given, {})
    assert (span.trace.id, span.trace.trace_id, span.trace.tracestate) == ("id", TRACE, "a=1")
    assert span.trace.traceparent.endswith("-00")
    span.end(failed="it is over")
    span.end()
