"""How a line of the log looks, as text and as JSON: one line for each message, whatever a message has in it.

A line has the request for which it was written (`ingest/request_trace.py`). `record.fields` are further facts
of a message, for programs.
"""

import json
import logging
import sys
import threading
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ingest.request_trace import CURRENT

if TYPE_CHECKING:  # settings take long to import, and commands without any need the errors of the API
    from ingest.settings import LogFormat

FIELDS = "fields"
"""The name of the facts of a message in the `extra` of a call of a logger."""

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_INDENT = "    "
_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) != "\t"} | {
    code: f"\\u{code:04x}" for code in (0x2028, 0x2029)
}
"""Characters that end a line, or control a terminal."""

_log = logging.getLogger("lakelog")


class TextFormatter(logging.Formatter):
    """For people: the facts of a message follow it as `name=value`. Control characters are shown by their
    number, and a traceback is indented: so no line begins as a client likes.
    """

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- logging's
        facts = getattr(record, FIELDS, {})
        text = " ".join((super().formatMessage(record), *(f"{name}={_shown(facts[name])}" for name in facts)))
        text = text.translate(_ESCAPED)
        trace = CURRENT.get()
        if trace is None:
            return text
        within = f" trace {trace.trace_id}" if trace.traceparent else ""
        return f"{text} (request {trace.id}{within})"

    def formatException(self, ei: Any) -> str:  # noqa: N802
        lines = super().formatException(ei).splitlines()
        return "\n".join(_INDENT + line.translate(_ESCAPED) for line in lines)

    def formatStack(self, stack_info: str) -> str:  # noqa: N802
        return "\n".join(_INDENT + line for line in stack_info.splitlines())


class JsonFormatter(logging.Formatter):
    """For programs: one object a line, in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
        }
        trace = CURRENT.get()
        if trace is not None:
            line["request_id"] = trace.id
            if trace.traceparent:
                line |= {"trace_id": trace.trace_id, "span_id": trace.span_id}
        line |= getattr(record, FIELDS, {})
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = "".join(traceback.format_exception(*record.exc_info)).rstrip()
        if record.stack_info:
            line["stack"] = record.stack_info
        return json.dumps(line, default=str)


def _shown(value: object) -> str:
    """A fact as one word."""
    if value is None:
        return "-"
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    text = str(value)
    plain = text.isascii() and text.isprintable() and not any(mark in text for mark in ' "')
    return text if plain and text not in ("", "-") else json.dumps(text)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def log_to_stderr(level: str, log_format: "LogFormat") -> None:
    """Write messages of `level` and above to standard error; nothing new where that is done already.

    As JSON, also what Python itself would print there: warnings, and errors that end a thread or the process.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if log_format == "json":
        logging.captureWarnings(capture=True)
        sys.excepthook = lambda *error: _log.critical("the process ends by an error", exc_info=error)
        threading.excepthook = _on_thread_error


def _on_thread_error(ended: threading.ExceptHookArgs) -> None:
    if ended.exc_type is not SystemExit and ended.exc_value is not None:
        name = "" if ended.thread is None else ended.thread.name
        error = (ended.exc_type, ended.exc_value, ended.exc_traceback)
        _log.critical("the thread %r ended by an error", name, exc_info=error)


def announced(text: str, log_format: "LogFormat") -> str:
    """A line for standard output, which is no message of the log, in the form of the log."""
    if log_format == "text":
        return text
    record = logging.LogRecord(_log.name, logging.INFO, __file__, 0, text, None, None)
    return JsonFormatter().format(record)
