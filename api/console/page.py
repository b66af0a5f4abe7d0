"""A page: HTML that a template makes of values, under a policy that lets it load from this gateway alone.

Every value is escaped where it is put in. No template has a script or a style of its own, so the policy
allows none: what a record holds can never be run. In text of others nothing hides or turns the line around.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

from markupsafe import Markup, escape
from starlette.datastructures import URL
from starlette.requests import Request
from starlette.responses import HTMLResponse

from api.console.files import file_url
from api.requests.access import cookie_of
from api.requests.route_gateway import gateway
from coordinator.access.caller import Caller
from coordinator.access.principal import ANONYMOUS
from log_tables.cluster.acl import CLUSTER_NAME, Operation, ResourceType
from log_tables.counts import counted
from log_tables.version import VERSION

_HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    r"\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Control characters but a tab and a line's end, those that turn text around, and those without a width. The
two joiners stay, by which scripts and emoji are written.
"""

WIDTH, HEIGHT = 560, 100
POINTS_MAX = 240
"""Points of a curve: it is sent again every few seconds."""

_CLOCK = slice(11, 19)
"""The part of a moment that is the time of a day."""


def visible(text: str) -> Markup:
    """`text` with what cannot be seen escaped, in an element of its own, so that it is told from the same
    characters typed; and apart from the text around it, whatever its direction.
    """
    made, at = ["<bdi>"], 0
    for found in _HIDDEN.finditer(text):
        made += [escape(text[at : found.start()]), f'<span class="hid">{_name(found[0])}</span>']
        at = found.end()
    return Markup("".join([*made, escape(text[at:]), "</bdi>"]))  # noqa: S704 (each part is escaped)


def hidden_count(text: str) -> int:
    """How many characters of `text` cannot be seen."""
    return len(_HIDDEN.findall(text))


def one_line(text: str, most: int) -> str:
    """The first `most` characters of `text` without its line breaks."""
    short = " ".join(text[: most + 1].split())
    return short[:most]


def _name(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


if TYPE_CHECKING:
    from jinja2 import Environment

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}

SECTIONS = (
    ("Overview", "/console"),
    ("Topics", "/console/topics"),
    ("Groups", "/console/groups"),
    ("Mirrors", "/console/mirrors"),
    ("SQL", "/console/sql"),
    ("Maintenance", "/console/maintenance"),
    ("Access", "/console/access"),
)
"""The items of the navigation, in order."""

HELP = "/console/help"

_DOCS = {
    "/console": "overview",
    "/console/topics": "topics",
    "/console/groups": "groups",
    "/console/mirrors": "mirrors",
    "/console/sql": "sql",
    "/console/maintenance": "maintenance",
    "/console/access": "access",
}
"""The parts of docs/console.md about the sections."""

NEW_TOPIC = "/console/new-topic"
"""Not among the paths of topics, where it would be the page of one with this name."""

NEW_MIRROR = "/console/new-mirror"
"""Likewise."""

_OF_CLUSTER = ("/console/maintenance", "/console/access")
"""Sections of those who may DESCRIBE the cluster."""

PLAIN_CHARS = 2_000
"""Characters of a text of somebody else that a page shows."""

_NUMBER = re.compile(r"(-?)([0-9]{4,})(\.[0-9]+)?")
_LONG_FRACTION = re.compile(r"-?[0-9]+\.[0-9]{7,}")
_DECIMALS, _SMALL = 6, 0.001

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3_600, 86_400


def render(
    request: Request, template: str, values: Mapping[str, Any], asked: Caller | None, status: int = 200
) -> HTMLResponse:
    """The page that `template` makes of `values` for the principal who has `asked`; None is nobody yet."""
    here = gateway(request)
    cookie = cookie_of(here, request.scope)
    section, docs = _section(request.url), here.settings.docs_url.rstrip("/")
    sections = [] if asked is None else [each for each in SECTIONS if _is_open(asked, each[1])]
    context = {
        **values,
        "version": VERSION,
        "cluster_id": here.cluster.cluster_id,
        "sections": sections,
        "section": section,
        "docs_url": docs,
        "docs": f"{docs}/docs/console/#{_DOCS[section]}" if docs and section else docs or HELP,
        "help": HELP,
        "principal": ""
        if asked is None or asked.context.principal is ANONYMOUS
        else asked.context.principal.name,
        "is_open": here.access.is_open,
        "csrf": here.sessions.csrf_token(cookie) if cookie else "",
        "has_session": cookie is not None,
        "now_ms": here.clock.now_ms(),
        "url": URL(request.url.path + (f"?{request.url.query}" if request.url.query else "")),
    }
    return HTMLResponse(_environment().get_template(template).render(context), status, HEADERS)


def fragment(template: str, values: Mapping[str, Any]) -> Markup:
    """The text that `template` makes of `values`, to be put into a page."""
    return Markup(_environment().get_template(template).render(values))  # noqa: S704 (the template escapes)


def plain(value: object, most: int = PLAIN_CHARS) -> str:
    """Text of somebody else: what controls a terminal or the direction of reading is shown by its number,
    and more than `most` characters are cut.
    """
    text = str(value)
    shown = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text[:most])
    return shown if len(text) <= most else f"{shown}… ({len(text):,} characters)"


def number(value: float) -> str:
    """A count with separators."""
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:,.1f}"


def grouped(text: str) -> Markup:
    """A text whose digits are in groups of three, if it is a number. The commas are in the style, so what is
    copied has the digits alone (static/digits.js).
    """
    found = _NUMBER.fullmatch(text)
    if found is None:
        return escape(text)
    sign, whole, fraction = found.groups(default="")
    first = len(whole) % 3
    parts = [whole[:first]] * bool(first) + [whole[at : at + 3] for at in range(first, len(whole), 3)]
    parts = [sign + parts[0], *parts[1:-1], parts[-1] + fraction]
    return Markup("").join(Markup('<span class="digits">{}</span>').format(part) for part in parts)


def rounded(text: str) -> str:
    """A number of many decimals with six of them; a small one keeps all (static/digits.js)."""
    if _LONG_FRACTION.fullmatch(text) is None or abs(float(text)) < _SMALL:
        return text
    return f"{float(text):.{_DECIMALS}f}".rstrip("0").rstrip(".")


def size(value: float) -> str:
    """Bytes in the largest unit of which there is one."""
    unit = 0
    while abs(value) >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:,.0f} {_UNITS[unit]}" if unit == 0 or value >= 100 else f"{value:,.1f} {_UNITS[unit]}"


def duration(seconds: float) -> str:
    """A time in the two largest units of which there are any."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < _MINUTE_S:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    if seconds < _HOUR_S:
        return f"{seconds // _MINUTE_S:.0f} min {seconds % _MINUTE_S:.0f} s"
    if seconds < _DAY_S:
        return f"{seconds // _HOUR_S:.0f} h {seconds % _HOUR_S // _MINUTE_S:.0f} min"
    return f"{seconds // _DAY_S:.0f} d {seconds % _DAY_S // _HOUR_S:.0f} h"


def moment(ms: float) -> str:
    """A time in milliseconds since 1970, in UTC as ISO 8601; a dash for none, or for one beyond all years."""
    if not ms:
        return "–"
    try:
        made = datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{ms:.0f} ms"
    return made.strftime("%Y-%m-%d %H:%M:%S") + f".{int(ms) % 1000:03d}Z"


def _is_open(asked: Caller, section: str) -> bool:
    """Whether the navigation has it: a page would refuse who may not see it."""
    return section not in _OF_CLUSTER or asked.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)


def _section(url: URL) -> str:
    """The section that the path is in: the longest whose path it begins with."""
    apart = {NEW_TOPIC: "/console/topics", NEW_MIRROR: "/console/mirrors", HELP: ""}
    if url.path in apart:
        return apart[url.path]
    found = [path for _, path in SECTIONS if url.path == path or url.path.startswith(path + "/")]
    return max(found, key=len, default="")


@cache
def _environment() -> "Environment":
    """All templates, made for the first page: to load Jinja takes a start some 60 ms."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("api.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "number": number,
        "counted": counted,
        "size": size,
        "duration": duration,
        "moment": moment,
        "plain": plain,
        "visible": visible,
        "grouped": grouped,
        "rounded": rounded,
    }
    made.globals |= {"file_url": file_url}
    return made


Item = TypeVar("Item")

PAGE_ITEMS = 50


class ItemPage(NamedTuple, Generic[Item]):
    """A page of a list: its items, its number from 1 on, how many there are, and of how many items."""

    items: Sequence[Item]
    page: int
    pages: int
    total: int


def paged(items: Sequence[Item], page: int) -> ItemPage[Item]:
    """The page with this number; the last one for a number that is too large."""
    pages = max(1, -(-len(items) // PAGE_ITEMS))
    page = min(page, pages)
    return ItemPage(items[(page - 1) * PAGE_ITEMS : page * PAGE_ITEMS], page, pages, len(items))


def curve(
    points: Sequence[tuple[int, float]], label: str, kind: Literal["number", "size", "duration"]
) -> Markup:
    """A curve of `points` (milliseconds since 1970, value), in order; `kind` says how a value is written.

    The axis of values begins at 0. Without two points there is nothing to draw.
    """
    if len(points) < 2:
        return Markup('<p class="faint">Nothing to draw yet: a sample is taken every few seconds.</p>')
    shown = {"number": number, "size": size, "duration": duration}[kind]
    most = max(value for _, value in points)
    first, last = points[0][0], points[-1][0]
    kept = thinned(points, POINTS_MAX)

    def place(at: int, value: float) -> str:
        x = WIDTH * (at - first) / max(1, last - first)
        y = HEIGHT * (1 - value / most if most else 1)
        return f"{x:.1f},{y:.1f}"

    values = {
        "label": label,
        "line": " ".join(place(*point) for point in kept),
        "points": json.dumps([(at, round(value, 3)) for at, value in kept], separators=(",", ":")),
        "kind": kind,
        "newest": shown(points[-1][1]),
        "most": shown(most),
        "first": moment(first)[_CLOCK],
        "last": moment(last)[_CLOCK],
        "width": WIDTH,
        "height": HEIGHT,
    }
    return fragment("curve.html", values)


def thinned(points: Sequence[tuple[int, float]], most: int) -> list[tuple[int, float]]:
    """At most `most` of the points: of neighbours the highest, so that no peak is lost."""
    each = -(-len(points) // most)
    parts = (points[index : index + each] for index in range(0, len(points), each))
    return [max(part, key=lambda point: point[1]) for part in parts]
