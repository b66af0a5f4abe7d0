"""The pages of a topic: its partitions, the groups that read it, its declared columns, its settings."""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from api.console.cluster_index import GroupLag, PartitionState
from api.console.drawing.page import ItemPage, paged, render
from api.console.drawing.page_route import PageRoute
from api.console.pages.topic_head import COLUMNS, GROUPS, PARTITIONS, SETTINGS, TopicHead, head_of
from api.console.state import console
from api.requests.access import Asked
from coordinator.access.caller import Caller
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.config import SETTINGS as TOPIC_SETTINGS
from log_tables.cluster.setting import Setting
from log_tables.columns.column_type import ddl
from log_tables.columns.declaration import Column

router = APIRouter(prefix="/console/topics/{topic}", include_in_schema=False, route_class=PageRoute)

_PageNumber = Annotated[int, Query(ge=1)]


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
