"""The only ways from a topic's name in a client's request to the topic as it is now.

What this gateway knows of a topic may be old: it may have been deleted, and made again, elsewhere. A way
either looks at the metadata log first, or goes by what is known until that turns out to be old, and then
begins again. Of an internal topic a client gets a description at most: no partition, and so no record, no
offset and no write. Which of these ways a route takes is what it promises.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

from fastapi.concurrency import run_in_threadpool
from pydantic import AfterValidator

from api.gateway import Gateway
from log_tables.cluster.config import TopicConfig
from log_tables.cluster.topic import Topic, check_public, check_writable
from log_tables.errors import LakelogError
from log_tables.partition.partition import Partition

Answer = TypeVar("Answer")


def _public(name: str) -> str:
    check_public(name)
    return name


PublicName = Annotated[str, AfterValidator(_public)]
"""A field of a body that names a topic: a request that names an internal one goes no further."""


class Description:
    """What any client may know of a topic, an internal one too."""

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

    def check(self, partition: int) -> None:
        """Raise UnknownPartition, CorruptLog unless there is one; blocking."""
        self._topic.partition(partition)

    def leader(self, partition: int) -> int:
        """The broker that leads a partition, as is known here."""
        return self._here.leadership.leader_id(self._topic, partition)


def describe(here: Gateway, name: str) -> Description:
    """What a client may know of the topic `name`; blocking. Raises UnknownTopic."""
    here.cluster.refresh()
    return Description(here, here.cluster.topic(name))


def descriptions(here: Gateway) -> list[Description]:
    """Every topic that is not internal, by name; blocking."""
    here.cluster.refresh()
    return [Description(here, topic) for topic in here.cluster.topics()]


async def topic_to_write(here: Gateway, name: str) -> Topic:
    """The topic that a client may write to. Raises UnknownTopic, InvalidTopicName."""
    check_writable(name)
    return await _found(here, name)


async def read_topic(here: Gateway, name: str, act: Callable[[Topic], Awaitable[Answer]]) -> Answer:
    """What `act` gives for the topic whose records a client may read (`Cluster.with_current_topic`).

    Raises UnknownTopic, InvalidTopicName, and what `act` raises.
    """
    check_public(name)
    topic = await _found(here, name)
    while True:
        partitions = topic.partition_count
        try:
            return await act(topic)
        except LakelogError as error:
            topic = await renewed(here, topic, partitions, error)


async def renewed(here: Gateway, topic: Topic, partitions: int, error: LakelogError) -> Topic:
    """`Cluster.current_topic`."""
    return await run_in_threadpool(here.cluster.current_topic, topic, partitions, error)


def at_partition(here: Gateway, name: str, index: int, act: Callable[[Partition], Answer]) -> Answer:
    """What `act` gives for a partition that a client may read and delete from, at what is committed now;
    blocking (`Cluster.with_current_topic`).

    Raises UnknownTopic, UnknownPartition, InvalidTopicName, and what `act` raises.
    """

    def looked(topic: Topic) -> Answer:
        partition = topic.partition(index)
        partition.refresh()
        return act(partition)

    check_public(name)
    return here.cluster.with_current_topic(name, looked)


async def newest(here: Gateway, topic: Topic) -> Topic:
    """The topic of the name of `topic`, by a look at the metadata log. Raises UnknownTopic."""
    await run_in_threadpool(here.cluster.refresh)
    return here.cluster.topic(topic.name)


def is_current(here: Gateway, name: str, topic_id: str) -> bool:
    """Whether the topic with this id is still the one of its name, as was last looked."""
    known = here.cluster.cached_topic(name)
    return known is not None and known.topic_id == topic_id


async def _found(here: Gateway, name: str) -> Topic:
    found = here.cluster.cached_topic(name)
    return found if found is not None else await run_in_threadpool(here.cluster.topic, name)
