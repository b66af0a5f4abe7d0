"""The only ways from a topic name in a client's request to the current topic.

The gateway may know an old state of a topic: another gateway may have deleted or re-created it. Each way
either reads the metadata log first, or uses the known state until that turns out to be old, and then begins
again. A client gets the description of an internal topic at most: no partition, and so no record, no offset
and no write. The way that a route takes is its promise.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Annotated, TypeVar

from fastapi.concurrency import run_in_threadpool
from pydantic import AfterValidator

from api.gateway import Gateway
from log_tables.cluster.config import TopicConfig
from log_tables.cluster.topic import Topic, check_public, check_readable, check_writable, is_internal
from log_tables.errors import Damaged, InvalidArgument, LakelogError
from log_tables.partition.partition import Partition
from log_tables.store.store import table_location

Result = TypeVar("Result")


def _public(name: str) -> str:
    check_public(name)
    return name


PublicName = Annotated[str, AfterValidator(_public)]
"""A field of a body that names a topic. An internal one is refused."""


class TopicDescription:
    """The facts that a client may know of any topic, also of an internal one."""

    def __init__(self, here: Gateway, topic: Topic) -> None:
        self._here, self._topic = here, topic

    @property
    def name(self) -> str:
        return self._topic.name

    @property
    def config(self) -> TopicConfig:
        return self._topic.config

    @property
    def partition_count(self) -> int:
        return self._topic.partition_count

    @property
    def location(self) -> str | None:
        """Where other programs find the one Delta table over the topic; None if none can."""
        if is_internal(self._topic.name):
            return None
        try:
            return self._here.cluster.store.delta_location(self._topic.directory)[0]
        except InvalidArgument:
            return None

    @property
    def remote_location(self) -> str | None:
        """Where other programs find the table over what has moved to the remote root; None if nothing has,
        nor will. Blocking, and the remote root is not asked.
        """
        url = self._here.cluster.remote_root
        if url is None or is_internal(self._topic.name) or not self._is_tiered():
            return None
        return table_location(url, self._topic.directory)

    def _is_tiered(self) -> bool:
        if self.config.remote_storage:
            return True
        for number in range(self.partition_count):
            with suppress(Damaged):  # a topic with a damaged partition can be described
                here = self._topic.partition(number).snapshot
                if here.tiered > here.log_start:
                    return True
        return False

    def check(self, partition: int) -> None:
        """Raise UnknownPartition or CorruptLog unless the partition exists; blocking."""
        self._topic.partition(partition)

    def leader(self, partition: int) -> int:
        """The broker that leads a partition, as far as this gateway knows."""
        return self._here.leadership.leader_id(self._topic, partition)


def describe_topic(here: Gateway, name: str) -> TopicDescription:
    """The description of the topic `name`; blocking. Raises UnknownTopic."""
    here.cluster.refresh()
    return TopicDescription(here, here.cluster.topic(name))


def describe_topics(here: Gateway) -> list[TopicDescription]:
    """The descriptions of all topics that are not internal, by name; blocking."""
    here.cluster.refresh()
    return [TopicDescription(here, topic) for topic in here.cluster.topics()]


async def topic_to_write(here: Gateway, name: str) -> Topic:
    """A topic to which a client may write. Raises UnknownTopic, InvalidTopicName."""
    known = here.cluster.cached_topic(name)
    if known is not None and not is_internal(name):
        return known
    check_writable(name)
    return await run_in_threadpool(here.cluster.topic, name)


async def with_topic_to_read(here: Gateway, name: str, act: Callable[[Topic], Awaitable[Result]]) -> Result:
    """The result of `act` on a topic whose records a client may read (`Cluster.with_current_topic`).

    That is also the audit log. Raises UnknownTopic, InvalidTopicName, and the errors of `act`.
    """
    check_readable(name)
    known = here.cluster.cached_topic(name)
    topic = known if known is not None else await run_in_threadpool(here.cluster.topic, name)
    while True:
        partitions = topic.partition_count
        try:
            return await act(topic)
        except LakelogError as error:
            topic = await current_topic(here, topic, partitions, error)


async def current_topic(here: Gateway, topic: Topic, partitions: int, error: LakelogError) -> Topic:
    """`Cluster.current_topic`."""
    return await run_in_threadpool(here.cluster.current_topic, topic, partitions, error)


def with_partition(here: Gateway, name: str, number: int, act: Callable[[Partition], Result]) -> Result:
    """The result of `act` on a partition whose records a client may read and delete, with all commits up to
    now; blocking (`Cluster.with_current_topic`).

    Raises UnknownTopic, UnknownPartition, InvalidTopicName, and the errors of `act`.
    """

    def act_on_partition(topic: Topic) -> Result:
        partition = topic.partition(number)
        partition.refresh()
        return act(partition)

    check_public(name)
    return here.cluster.with_current_topic(name, act_on_partition)


async def refreshed_topic(here: Gateway, topic: Topic) -> Topic:
    """The topic that has the name of `topic` now, by the metadata log. Raises UnknownTopic."""
    await run_in_threadpool(here.cluster.refresh)
    return here.cluster.topic(topic.name)


def is_current(here: Gateway, name: str, topic_id: str) -> bool:
    """Whether the topic of this name still has this id, by the state that is known here."""
    known = here.cluster.cached_topic(name)
    return known is not None and known.topic_id == topic_id
