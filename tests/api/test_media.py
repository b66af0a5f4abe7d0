"""api/media.py: what Accept asks for, with its weights (RFC 9110, 12.4.2 and 12.5.1)."""

import pytest
from starlette.requests import Request

from api.errors import FormatMismatch
from api.media import Format, accepted_format, accepts, prefers_page, wants_events
from log_tables.limits import ACCEPT_RANGES_MAX

BINARY, TEXT, JSON = (f"application/vnd.kafka.{name}.v2+json" for name in ("binary", "text", "json"))
EVENTS = "text/event-stream"


def request(accept: str | None) -> Request:
    headers = [] if accept is None else [(b"accept", accept.encode())]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": headers})


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, Format.JSON),
        ("*/*", Format.JSON),
        (f"{BINARY};q=0.1, {JSON};q=0.9", Format.JSON),
        (f"{BINARY};q=0.1, application/json", Format.JSON),
        (f"{JSON};q=0, {TEXT}", Format.TEXT),
        (f"{TEXT};q=0.5, */*;q=0.1", Format.TEXT),
        (f"{BINARY};Q=0.5 , {TEXT} ; q=0.7", Format.TEXT),
        (f"{BINARY};q=0.333, {TEXT};q=0.334", Format.TEXT),
        (f"{TEXT}, {BINARY}", Format.TEXT),
        (f"{BINARY};q=1.000, {TEXT};q=1", Format.BINARY),
        ("application/json;q=0, */*", Format.BINARY),
        (f"{JSON};q=0, {BINARY};q=0, application/*;q=0.2", Format.TEXT),
        (f"application/*;q=0, */*, {TEXT};q=0.1", Format.TEXT),
        (f"application/*, {JSON};q=0.2", Format.BINARY),
        ("text/html, */*;q=0.8", Format.JSON),
        (f", ,{TEXT},", Format.TEXT),
        (f"{BINARY};q=2, {TEXT};q=0.9", Format.BINARY),
        (f"{BINARY};charset=utf-8;q=0.2, {TEXT};q=0.3;x=y", Format.TEXT),
        ("*/*;q=0", None),
        (f"{BINARY};q=0", None),
        ("application/*;q=0.000", None),
        ("text/html", None),
        (", ,", None),
    ],
)
def test_the_format_is_the_one_that_weighs_most(accept: str | None, form: Format | None) -> None:
    if form is None:
        with pytest.raises(FormatMismatch, match="no format in Accept"):
            accepted_format(request(accept))
    else:
        assert accepted_format(request(accept)) is form


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (EVENTS, True),
        (f"{EVENTS}, */*", True),
        (f"application/json;q=0.9, {EVENTS}", True),
        (f"application/json, {EVENTS};q=0.9", False),
        (f"{EVENTS};q=0", False),
        ("*/*", False),
        (None, False),
    ],
)
def test_events_are_answered_where_nothing_weighs_more(accept: str | None, wanted: bool) -> None:
    assert wants_events(request(accept)) is wanted


@pytest.mark.parametrize(
    ("accept", "allowed"),
    [
        (None, True),
        (BINARY, True),
        ("application/vnd.kafka.v2+json", True),
        ("application/json", True),
        ("application/*", True),
        (f"{TEXT}, */*;q=0.1", True),
        (f"{TEXT}, {BINARY};q=0.001", True),
        (TEXT, False),
        (f"{BINARY};q=0, */*", False),
        ("*/*;q=0", False),
        ("application/json;q=0", False),
    ],
)
def test_a_poll_has_the_format_of_its_instance_or_is_refused(accept: str | None, allowed: bool) -> None:
    assert accepts(request(accept), Format.BINARY) is allowed


@pytest.mark.parametrize(
    ("accept", "page"),
    [
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", True),
        ("application/xhtml+xml, text/html", True),
        ("application/json;q=0.5, text/html", True),
        ("text/html;q=0.5, application/json", False),
        ("application/json, text/html", False),
        ("text/html;q=0", False),
        ("*/*", False),
        ("", False),
        (",", False),
    ],
)
def test_a_browser_is_who_wants_a_page_most(accept: str, page: bool) -> None:
    assert prefers_page(accept) is page


def test_an_accept_of_too_many_ranges_is_refused_and_no_browsers() -> None:
    most = ["text/html", EVENTS, JSON] + ["a"] * (ACCEPT_RANGES_MAX - 3)
    assert accepted_format(request(",".join(most))) is Format.JSON
    assert prefers_page(",".join(most))
    beyond = ",".join([*most, "a"])
    assert not prefers_page(beyond)
    for look in (accepted_format, wants_events, lambda asked: accepts(asked, Format.JSON)):
        with pytest.raises(FormatMismatch, match=f"more than {ACCEPT_RANGES_MAX} media ranges"):
            look(request(beyond))
