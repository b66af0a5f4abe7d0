"""Lines of the log: one for each message as text and as JSON, whatever a client has put into it."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from api.log_format import FIELDS, JsonFormatter, TextFormatter, announced
from ingest.request_trace import CURRENT, RequestTrace

HOSTILE = "a\nb\r\n2026-11-24 10:00:00,000 INFO forged: c\x1b[2J\x00\x85\u2028\u2029d"
TRACE = RequestTrace("id-1", f"00-{'a' * 32}-{'b' * 16}-01")


def record(
    message: str, *args: object, error: BaseException | None = None, **fields: object
) -> logging.LogRecord:
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord("api.part", logging.WARNING, __file__, 1, message, args, exc_info)
    setattr(made, FIELDS, fields)
    return made


@contextmanager
def of_request(trace: RequestTrace) -> Iterator[None]:
    token = CURRENT.set(trace)
    try:
        yield
    finally:
        CURRENT.reset(token)


def raised(text: str) -> ValueError:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


def test_a_message_is_one_line_whatever_is_in_it() -> None:
    for formatter in (TextFormatter(), JsonFormatter()):
        line = formatter.format(record("asked for %s", HOSTILE, name=HOSTILE, names=[HOSTILE, "x"]))
        assert len(line.splitlines()) == 1
        assert line.isprintable()
    line = json.loads(JsonFormatter().format(record("asked for %s", HOSTILE, name=HOSTILE)))
    assert (line["message"], line["name"]) == (f"asked for {HOSTILE}", HOSTILE)


def test_no_line_of_a_traceback_looks_like_a_message() -> None:
    line, *rest = TextFormatter().format(record("failed", error=raised(HOSTILE))).splitlines()
    assert line.endswith("WARNING api.part: failed")
    assert any("ValueError" in each for each in rest)
    assert all(each.startswith("    ") for each in rest)
    (only,) = JsonFormatter().format(record("failed", error=raised(HOSTILE))).splitlines()
    assert f"ValueError: {HOSTILE}" in json.loads(only)["exception"]


def test_a_line_has_its_time_its_level_and_where_it_comes_from() -> None:
    made = record("%d of %d", 1, 2, status=200)
    made.created = 1_700_000_000.5
    assert json.loads(JsonFormatter().format(made)) == {
        "time": "2023-11-14T22:13:20.500Z",
        "level": "warning",
        "logger": "api.part",
        "message": "1 of 2",
        "process": made.process,
        "status": 200,
    }


def test_a_line_has_the_request_for_which_it_is_written() -> None:
    with of_request(TRACE):
        line = json.loads(JsonFormatter().format(record("said")))
        text = TextFormatter().format(record("said"))
    assert (line["request_id"], line["trace_id"], line["span_id"]) == ("id-1", "a" * 32, "b" * 16)
    assert text.endswith(f"said (request id-1 trace {'a' * 32})")
    with of_request(RequestTrace("id-2")):
        line = json.loads(JsonFormatter().format(record("said")))
    assert line["request_id"] == "id-2"
    assert "trace_id" not in line
    assert TextFormatter().format(record("said")).endswith("api.part: said")


def test_facts_follow_a_message_of_text_as_words() -> None:
    text = TextFormatter().format(record("request", a=1, b=None, c="", d="e f", g=["h", "i"], j=[]))
    assert text.endswith('request a=1 b=- c="" d="e f" g=h,i j=-')
    text = TextFormatter().format(record("request", a='"x', b="-", c="y=z"))
    assert text.endswith(r'request a="\"x" b="-" c=y=z')


def test_what_python_itself_would_print_is_a_line_of_json_too(process: None) -> None:
    code = """
import threading, warnings
from api.log_format import log_to_stderr
log_to_stderr("info", "json")
def fail():
    raise ValueError("a\\nb")
warnings.warn("old")
thread = threading.Thread(target=fail, name="worker")
thread.start()
thread.join()
fail()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    warned, of_thread, of_process = (json.loads(line) for line in done.stderr.splitlines())
    assert (done.returncode, done.stdout) == (1, "")
    assert "UserWarning: old" in warned["message"]
    assert of_thread["message"] == "the thread 'worker' ended by an error"
    assert of_process["message"] == "the process ends by an error"
    assert all("ValueError: a\nb" in each["exception"] for each in (of_thread, of_process))


def test_what_is_said_on_standard_output_has_the_form_of_the_log() -> None:
    assert announced("ready", "text") == "ready"
    line = json.loads(announced("ready", "json"))
    assert (line["message"], line["level"], line["logger"]) == ("ready", "info", "lakelog")
