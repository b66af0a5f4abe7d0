"""The list of topics, and the pages of one: its partitions, the groups that read it, its declared columns,
its settings. All pages of a topic have its head: how much is in it, where it is, the ways to its other pages.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote

from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.client_topics import TopicDescription, describe_topic, known_description
from api.console.cluster_index import ClusterState, GroupLag, PartitionState, TopicState
from api.console.page import HEADERS, ItemPage, paged, render
from api.console.page_route import PageRoute
from api.console.state import console
from api.gateway import Gateway
from api.requests.access import Asked
from api.requests.route_gateway import gateway
from coordinator.access.caller import Caller
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.setting import Setting
from log_tables.cluster.topic_settings import SETTINGS as TOPIC_SETTINGS
from log_tables.columns.column_type import ddl
from log_tables.columns.declaration import Column
from log_tables.limits import TOPIC_NAME_MAX_CHARS

MESSAGES, PARTITIONS, GROUPS, COLUMNS, SETTINGS = "Messages", "Partitions", "Groups", "Columns", "Settings"
_TABS = (
    (MESSAGES, "messages", Operation.READ),
    (PARTITIONS, "partitions", Operation.DESCRIBE),
    (GROUPS, "groups", Operation.DESCRIBE),
    (COLUMNS, "columns", Operation.DESCRIBE_CONFIGS),
    (SETTINGS, "settings", Operation.DESCRIBE_CONFIGS),
)

router = APIRouter(prefix="/console/topics/{topic}", include_in_schema=False, route_class=PageRoute)

_PageNumber = Annotated[int, Query(ge=1)]

all_topics = APIRouter(prefix="/console/topics", include_in_schema=False, route_class=PageRoute)

GROUPS_SHOWN = 3
"""Groups of a topic that the list names: those that are furthest behind."""


class TopicHead(NamedTuple):
    """A topic at the top of its pages. `location` is None where no other program can read its table."""

    state: TopicState
    description: TopicDescription
    location: str | None
    tabs: Sequence[tuple[str, str]]
    may_write: bool

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def path(self) -> str:
        return topic_path(self.state.name)


def topic_path(name: str) -> str:
    """The path of a topic's first page."""
    return f"/console/topics/{quote(name, safe='')}"


async def head_of(request: Request, asked: Caller, name: str) -> TopicHead:
    """The head of the topic `name` as it is now. Raises UnknownTopic, InvalidTopicName, StoreUnavailable."""
    state = await run_in_threadpool(console(request).index.topic, name)
    description = await run_in_threadpool(describe_topic, gateway(request), name)
    path = topic_path(name)
    return TopicHead(
        state,
        description,
        description.location,
        [
            (label, f"{path}/{page}")
            for label, page, operation in _TABS
            if asked.allows(operation, ResourceType.TOPIC, name)
        ],
        asked.allows(Operation.WRITE, ResourceType.TOPIC, name),
    )


def lacking(asked: Caller, operation: Operation, topic: str) -> str:
    """Why a change of `topic` would be refused for lack of a right; the empty text if it would not be."""
    if asked.allows(operation, ResourceType.TOPIC, topic):
        return ""
    return f"it needs {operation} on the topic {topic}, which you do not have; ask an administrator for it"


class _PartitionRow(NamedTuple):
    number: int
    start: int
    end: int
    records: int
    size_bytes: int
    newest_ms: int
    leader: int
    segments: int


class _SettingRow(NamedTuple):
    setting: Setting
    value: str
    is_default: bool
    values: str


@router.get("")
async def first(asked: Asked, topic: str) -> Response:
    """The way to the topic's messages; for who may not read them, to its partitions."""
    reads = asked.allows(Operation.READ, ResourceType.TOPIC, topic)
    return RedirectResponse(f"{topic_path(topic)}/{'messages' if reads else 'partitions'}", 303, HEADERS)


@router.get("/partitions")
async def partitions(request: Request, asked: Asked, topic: str, page: _PageNumber = 1) -> Response:
    """The topic's partitions."""
    head = await head_of(request, asked, topic)
    shown = paged(range(head.state.partition_count), page)
    rows = ItemPage([_partition(head, each) for each in shown.items], shown.page, shown.pages, shown.total)
    return _page(request, asked, head, "topic_partitions.html", {"rows": rows, "tab": PARTITIONS})


@router.get("/groups")
async def groups(request: Request, asked: Asked, topic: str, page: _PageNumber = 1) -> Response:
    """The groups that have committed offsets in the topic, those that are furthest behind first."""
    head = await head_of(request, asked, topic)
    look = await console(request).index.look()
    found = [each for each in look.of_topic.get(topic, ()) if _is_visible(asked, each)]
    found.sort(key=lambda each: (-each.lag.records, each.group))
    states = {each.group: look.groups[each.group] for each in found}
    values = {"rows": paged(found, page), "states": states, "at_ms": look.at_ms, "tab": GROUPS}
    return _page(request, asked, head, "topic_groups.html", values)


@router.get("/columns")
async def columns(request: Request, asked: Asked, topic: str) -> Response:
    """The typed columns that the topic declares, and those that it once declared."""
    head = await head_of(request, asked, topic)
    declared = head.description.config.columns.columns
    former = [each for each in head.description.known_columns.columns if each not in declared]
    values = {
        "declared": [_column(each) for each in declared],
        "former": [_column(each) for each in former],
        "mode": head.description.config["value.columns.mode"],
        "tab": COLUMNS,
    }
    return _page(request, asked, head, "topic_columns.html", values)


@router.get("/settings")
async def settings(request: Request, asked: Asked, topic: str) -> Response:
    """Every setting with its value, and a form to change it."""
    head = await head_of(request, asked, topic)
    config = head.description.config
    rows = [
        _SettingRow(setting, config[name], name not in config.overrides, _values(setting))
        for name, setting in TOPIC_SETTINGS.items()
    ]
    return _page(request, asked, head, "topic_settings.html", {"rows": rows, "tab": SETTINGS})


def _page(
    request: Request, asked: Caller, head: TopicHead, template: str, values: dict[str, Any]
) -> Response:
    return render(request, template, {"topic": head, **values}, asked)


def _partition(head: TopicHead, number: int) -> _PartitionRow:
    state = head.state.partitions.get(number, PartitionState(0, 0, ()))
    newest_ms = state.segments[-1].modification_time if state.segments else 0
    return _PartitionRow(
        number,
        state.start,
        state.end,
        sum(each.records for each in state.segments),
        sum(each.size for each in state.segments),
        newest_ms,
        head.description.leader(number),
        len(state.segments),
    )


def _is_visible(asked: Caller, lag: GroupLag) -> bool:
    return asked.allows(Operation.DESCRIBE, ResourceType.GROUP, lag.group)


def _column(column: Column) -> tuple[str, str, str]:
    """Name, type and JSON pointer."""
    return column.name, ddl(column.type), column.pointer


def _values(setting: Setting) -> str:
    """The values that a setting takes, in words."""
    choices: Sequence[str] = setting.shown_choices
    if choices:
        return ", ".join(choices)
    if type(setting) is not Setting:
        return ""
    return f"{setting.low} and more" if setting.high == 2**63 - 1 else f"{setting.low} to {setting.high}"


class _Row(NamedTuple):
    topic: TopicState
    groups: Sequence[GroupLag]
    lag: int
    lag_seconds: float
    mirror: str = ""


_ORDERS = {
    "name": lambda row: row.topic.name,
    "records": lambda row: -row.topic.records,
    "bytes": lambda row: -row.topic.size_bytes,
    "rate": lambda row: -row.topic.rate,
    "partitions": lambda row: -row.topic.partition_count,
    "lag": lambda row: -row.lag,
    "newest": lambda row: -row.topic.newest_ms,
}


@all_topics.get("")
async def topics(
    request: Request,
    asked: Asked,
    search: Annotated[str, Query(max_length=TOPIC_NAME_MAX_CHARS)] = "",
    order: Annotated[
        Literal["name", "records", "bytes", "rate", "partitions", "lag", "newest"], Query()
    ] = "name",
    page: Annotated[int, Query(ge=1)] = 1,
) -> Response:
    """The page."""
    look = await console(request).index.look()
    rows = _rows(gateway(request), look, asked, search.lower())
    rows.sort(key=_ORDERS[order])
    shown: ItemPage[_Row] = paged(rows, page)
    values = {"rows": shown, "search": search, "order": order, "look": look, "groups_shown": GROUPS_SHOWN}
    return render(request, "topics.html", values, asked)


def _rows(here: Gateway, look: ClusterState, asked: Caller, search: str) -> list[_Row]:
    visible = {group for group in look.groups if asked.allows(Operation.DESCRIBE, ResourceType.GROUP, group)}
    rows = []
    for name, topic in look.topics.items():
        if search in name.lower() and asked.describes(name):
            groups = [each for each in look.of_topic.get(name, ()) if each.group in visible]
            groups.sort(key=lambda each: -each.lag.records)
            lag = sum(each.lag.records for each in groups)
            known, seconds = known_description(here, name), (each.lag.seconds for each in groups)
            mirror = "" if known is None else known.mirror
            rows.append(_Row(topic, groups, lag, max(seconds, default=0.0), mirror))
    return rows
