"""The page of help: what this gateway has for its reader, where the documentation is, and the keys."""

from typing import NamedTuple

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.console.page import HELP, render
from api.console.page_route import PageRoute
from api.requests.access import Asked

router = APIRouter(prefix=HELP, include_in_schema=False, route_class=PageRoute)


class DocsPage(NamedTuple):
    """A page of the documentation: its file without `.md`, and what it is about."""

    name: str
    about: str


DOCS = (
    DocsPage("docs/console", "this console"),
    DocsPage("docs/http", "the HTTP API, ACLs and quotas"),
    DocsPage("docs/kafka", "Kafka's clients"),
    DocsPage("docs/consumers", "consumer groups"),
    DocsPage("docs/analysing", "SQL, DuckDB and Polars over topics"),
    DocsPage("docs/columns", "declared columns"),
    DocsPage("docs/spark", "Spark"),
    DocsPage("docs/operating", "running a gateway, and each setting"),
    DocsPage("docs/security", "keys, users, certificates and TLS"),
    DocsPage("docs/maintenance", "retention, merges and compaction"),
    DocsPage("docs/backup", "copies of a root"),
    DocsPage("docs/what-now", "what to do when something was lost"),
    DocsPage("docs/runbook", "what to do about an alert"),
)

KEYS = (
    ("/", "the search of a list"),
    ("Ctrl + Enter", "run the query"),
    ("Tab, Ctrl + Space", "complete a name in the query; Escape closes the list"),
    ("← →, Page Up and Down, Home, End", "the values of a chart that has the focus"),
)


@router.get("")
async def help_page(request: Request, asked: Asked) -> Response:
    """The page."""
    return render(request, "help.html", {"pages": DOCS, "keys": KEYS}, asked)
