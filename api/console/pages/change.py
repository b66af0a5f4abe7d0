"""A change, shown before it is made: what it does, the request that makes it, and the button that sends it.

The console changes nothing itself. The button sends the request of the public API that the page shows, with
the session of the browser, so a change is authorised, limited and audited as that of any other client.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from api.console.page import render
from api.requests.route_gateway import gateway
from coordinator.access.caller import Caller


class ChangedValue(NamedTuple):
    """A line of a dry run: what it is about, as it is now, and as it will be; each a text, or markup."""

    what: str
    now: str
    then: str


class Change(NamedTuple):
    """A request that changes something. `url` is its path and query; `refused` says why it would fail.

    `following` is the page that shows the result, `back` the one from which it came; `again`, where there is
    one, makes another change of the kind after this one. A `danger` cannot be undone.
    """

    title: str
    method: Literal["POST", "PUT", "PATCH", "DELETE"]
    url: str
    body: Any
    facts: Sequence[ChangedValue]
    following: str
    back: str
    button: str
    danger: str = ""
    refused: str = ""
    content_type: str = "application/json"
    again: str = ""


def planned(request: Request, asked: Caller, change: Change) -> Response:
    """The page that shows `change`, and lets it be made."""
    body = None if change.body is None else msgspec.json.encode(change.body).decode()
    curl = curl_of(gateway(request).settings.advertised_url, change, body)
    return render(request, "change.html", {"change": change, "body": body, "curl": curl}, asked)


def curl_of(url: str, change: Change, body: str | None) -> str:
    """The command that sends the same request."""
    words = ["curl", "-X", change.method, url.rstrip("/") + change.url]
    if body is not None or change.method == "POST":
        words += ["-H", f"Content-Type: {change.content_type}"]
    if body is not None:
        words += ["-d", body]
    return " ".join(map(shlex.quote, words))


def changed_values(now: Mapping[str, str], then: Mapping[str, str]) -> list[ChangedValue]:
    """A line for each name whose value differs; a dash stands for one that is not there."""
    names = sorted({*now, *then})
    return [
        ChangedValue(name, now.get(name, "–"), then.get(name, "–"))
        for name in names
        if now.get(name) != then.get(name)
    ]
