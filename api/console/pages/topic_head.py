"""The head of a topic's pages: how much is in it, where it is, and the ways to its other pages."""

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request

from api.client_topics import TopicDescription, describe_topic
from api.console.cluster_index import TopicState
from api.console.state import console
from api.requests.route_gateway import gateway
from coordinator.access.caller import Caller
from log_tables.cluster.acl import Operation, ResourceType

MESSAGES, PARTITIONS, GROUPS, COLUMNS, SETTINGS = "Messages", "Partitions", "Groups", "Columns", "Settings"
_TABS = (
    (MESSAGES, "messages", Operation.READ),
    (PARTITIONS, "partitions", Operation.DESCRIBE),
    (GROUPS, "groups", Operation.DESCRIBE),
    (COLUMNS, "columns", Operation.DESCRIBE_CONFIGS),
    (SETTINGS, "settings", Operation.DESCRIBE_CONFIGS),
)


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
