"""The only ways from a topic name in a client's request to the current topic.

The gateway may know an old state of a topic: another gateway may have deleted or re-created it. Each way
either reads the metadata log first, or uses the known state until that turns out to be old, and then begins
again. A client gets the description of an internal topic at most: no partition, and so no record, no offset
and no write. The way that a route takes is its promise.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Annotated, TypeVar

from pydantic import AfterValidator

from api.gateway import Gateway
from log_tables.cluster.admin.topic_admin import held
from log_tables.cluster.config import TopicConfig
from log_tables.cluster.topic import Topic, check_public, check_readable, check_writable, is_internal
from log_tables.columns.declaration import NOTHING, Declaration, parse
from log_tables.errors import Damaged, InvalidArgument, LakelogError, UnknownTopic
from log_tables.limits import TOPIC_NAME_MAX_CHARS
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
    def topic_id(self) -> str:
        return self._topic.topic_id

    @property
    def config(self) -> TopicConfig:
        return self._topic.config

    @property
    def partition_count(self) -> int:
        return self._topic.partition_count

    @property
    def mirror(self) -> str:
        """The mirror that makes its records; "" of one that is written here."""
        return self._topic.mirror

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
    def known_columns(self) -> Declaration:
        """All columns that the topic has ever declared: its table keeps them."""
        record = self._here.cluster.metadata_log.topic(self.name)
        return NOTHING if record is None else parse(record.columns)

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

    def check_own(self) -> None:
        """Raise MirroredTopic if a mirror makes its records."""
        self._topic.check_own()

    def size_bytes(self, partition: int) -> int:
        """The bytes of the segments of a partition, as last known; blocking where nothing is. Raises
        CorruptLog.
        """
        return sum(segment.size for segment in self._topic.partition(partition).snapshot.segments)

    def check(self, partition: int) -> None:
        """Raise UnknownPartition or CorruptLog unless the partition exists; blocking."""
        self._topic.partition(partition)

    def leader(self, partition: int) -> int:
        """The broker that leads a partition, as far as this gateway knows."""
        return self._here.leadership.leader_id(self._topic, partition)

    @property
    def leaders(self) -> list[int]:
        """The broker that leads each partition, as far as this gateway knows."""
        return self._here.leadership.leader_ids(self._topic)


def describe_topic(here: Gateway, name: str) -> TopicDescription:
    """The description of the topic `name`; blocking. Raises UnknownTopic."""
    here.cluster.refresh()
    return TopicDescription(here, here.cluster.topic(name))


async def topic_description(here: Gateway, name: str) -> TopicDescription:
    """The description of the topic `name`, as known here or else looked up. Raises UnknownTopic."""
    known = known_description(here, name)
    return known or TopicDescription(here, await asyncio.to_thread(here.cluster.topic, name))


def known_description(here: Gateway, name: str) -> TopicDescription | None:
    """The description of the topic `name`, as known here; None without one."""
    known = here.cluster.cached_topic(name)
    return None if known is None else TopicDescription(here, known)


def listed_topic(here: Gateway, name: str) -> Topic:
    """The topic `name`, for a page that sums it up; blocking. Raises UnknownTopic, InvalidTopicName."""
    check_public(name)
    here.cluster.refresh()
    return here.cluster.topic(name)


def listed_topics(here: Gateway) -> list[Topic]:
    """All topics that are not internal, by name, as last refreshed: for a list that sums them up."""
    return here.cluster.topics()


def describe_named(here: Gateway, names: Iterable[str]) -> dict[str, TopicDescription]:
    """The descriptions of those of the topics `names` that exist; blocking."""
    here.cluster.refresh()
    found = ((name, here.cluster.cached_topic(name)) for name in names)
    return {name: TopicDescription(here, topic) for name, topic in found if topic is not None}


def describe_topics(here: Gateway) -> list[TopicDescription]:
    """The descriptions of all topics that are not internal, by name; blocking."""
    here.cluster.refresh()
    return [TopicDescription(here, topic) for topic in here.cluster.topics()]


async def topic_to_write(here: Gateway, name: str) -> Topic:
    """A topic to which a client may write. Raises UnknownTopic, InvalidTopicName, MirroredTopic."""
    known = here.cluster.cached_topic(name)
    if known is not None and not is_internal(name):
        return await _own(here, known)
    check_writable(name)
    return await _own(here, await asyncio.to_thread(here.cluster.topic, name))


async def known_topic_to_write(here: Gateway, name: str) -> Topic:
    """A topic to which a client may write, as known after `know_names`. Raises as `topic_to_write`."""
    check_writable(name)
    return await _own(here, _known(here, name))


async def _own(here: Gateway, topic: Topic) -> Topic:
    if topic.mirror:
        await asyncio.to_thread(here.cluster.check_own, topic)
    return topic


async def topic_to_read(here: Gateway, name: str) -> Topic:
    """A topic whose records a client may read, as known here; it may be an old one, which its partitions say
    (`current_topic`). Raises UnknownTopic, InvalidTopicName.
    """
    check_readable(name)
    known = here.cluster.cached_topic(name)
    return known if known is not None else await asyncio.to_thread(here.cluster.topic, name)


def known_topic_to_read(here: Gateway, name: str) -> Topic:
    """A topic whose records a client may read, as known after `know_names`. Raises as `topic_to_read`."""
    check_readable(name)
    return _known(here, name)


def _known(here: Gateway, name: str) -> Topic:
    known = here.cluster.cached_topic(name)
    if known is None:
        raise UnknownTopic(f"there is no topic {name[:TOPIC_NAME_MAX_CHARS]!r}; check its name, or create it")
    return known


async def know_names(here: Gateway, names: Iterable[str], may: Callable[[str], bool]) -> None:
    """Look once for the topics `names`, if some are not known; one that is not known then does not exist.

    The store is not asked for a name that the client `may` not use: the time would say whether it exists.
    """
    async for each in here.loop_share.each(names):
        if here.cluster.cached_topic(each) is None and may(each):
            await asyncio.to_thread(here.cluster.refresh)
            return


async def know_ids(here: Gateway, topic_ids: Iterable[str]) -> None:
    """Look once for the topics with these ids, if some are not known; `known_name_of` has them then."""
    if any(here.cluster.name_of(each) is None for each in topic_ids):
        await asyncio.to_thread(here.cluster.refresh)


def current_name_of(here: Gateway, topic_id: str) -> str | None:
    """The name that the topic with this id has now, None without one; blocking."""
    here.cluster.refresh()
    return here.cluster.name_of(topic_id)


def known_name_of(here: Gateway, topic_id: str) -> str | None:
    """The name of the topic with this id, as known here; None without one."""
    return here.cluster.name_of(topic_id)


def known_id_of(here: Gateway, name: str) -> str | None:
    """The id of the topic `name`, as known here; None without one."""
    known = here.cluster.cached_topic(name)
    return None if known is None else known.topic_id


async def with_topic_to_read(here: Gateway, name: str, act: Callable[[Topic], Awaitable[Result]]) -> Result:
    """The result of `act` on a topic whose records a client may read (`Cluster.with_current_topic`).

    That is also the audit log. Raises UnknownTopic, InvalidTopicName, and the errors of `act`.
    """
    topic = await topic_to_read(here, name)
    while True:
        partitions = topic.partition_count
        try:
            return await act(topic)
        except LakelogError as error:
            topic = await current_topic(here, topic, partitions, error)


def held_by(here: Gateway, name: str) -> tuple[int, int]:
    """The records and the bytes that the topic `name` has here, without the remote tier; blocking.

    Raises UnknownTopic, InvalidTopicName.
    """
    check_writable(name)
    return here.cluster.with_current_topic(name, held)


def with_own_topic(here: Gateway, name: str, act: Callable[[Topic], Result]) -> Result:
    """The result of `act` on the topic `name`, which is no mirror's; blocking (`Cluster.with_current_topic`).

    Raises UnknownTopic, InvalidTopicName, MirroredTopic, and the errors of `act`.
    """

    def act_on_own(topic: Topic) -> Result:
        here.cluster.check_own(topic)
        return act(topic)

    check_writable(name)
    return here.cluster.with_current_topic(name, act_on_own)


async def current_topic(here: Gateway, topic: Topic, partitions: int, error: LakelogError) -> Topic:
    """`Cluster.current_topic`."""
    return await asyncio.to_thread(here.cluster.current_topic, topic, partitions, error)


def with_partition(
    here: Gateway, name: str, number: int, act: Callable[[Partition], Result], changes: bool = False
) -> Result:
    """The result of `act` on a partition whose records a client may read, with all commits up to now;
    blocking (`Cluster.with_current_topic`). If `act` `changes` the log, it is not that of a mirror.

    Raises UnknownTopic, UnknownPartition, InvalidTopicName, MirroredTopic, and the errors of `act`.
    """

    def act_on_partition(topic: Topic) -> Result:
        if changes:
            here.cluster.check_own(topic)
        partition = topic.partition(number)
        partition.refresh()
        return act(partition)

    check_public(name)
    return here.cluster.with_current_topic(name, act_on_partition)


async def refreshed_topic(here: Gateway, topic: Topic) -> Topic:
    """The topic that has the name of `topic` now, by the metadata log. Raises UnknownTopic.

    Schemas that values named in vain are asked for.
    """
    await asyncio.to_thread(here.cluster.refresh)
    found = here.cluster.topic(topic.name)
    await look_up_wanted(found)
    return found


async def look_up_wanted(topic: Topic) -> int:
    """Ask for schemas that values of the topic named in vain; gives the version of what is known now."""
    wanted = topic.schemas.wanted()
    if wanted:
        await asyncio.to_thread(topic.schemas.look_up, wanted)
    return topic.schemas.version


def is_current(here: Gateway, name: str, topic_id: str) -> bool:
    """Whether the topic of this name still has this id, by the state that is known here."""
    known = here.cluster.cached_topic(name)
    return known is not None and known.topic_id == topic_id
