"""Appending the records of a request to the topic of a name, as it is now.

What this gateway knows of the topic may be old. A request that is refused by it is looked at again by what
is there now; records that the topic would not take because it was deleted go to the one that was made since.
What was appended before that is answered as it was: it went with the old topic.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from api.errors import status_and_code
from api.gateway import Gateway
from api.requests.client_topics import newest, renewed
from api.wire.beside import worked_out
from api.wire.rows import Part, as_indices
from api.wire.v2 import Placed
from ingest.buffer import Room
from ingest.writer import Acks, Appended, AppendOutcome
from log_tables.cluster.config import TopicConfig
from log_tables.cluster.topic import Topic
from log_tables.errors import InvalidRecord, LakelogError, RecordTooLarge, TopicDeleted, UnknownPartition
from log_tables.limits import APPENDS_AT_ONCE
from log_tables.partition.partition import AppendRequest, ProducerStamp

Make = Callable[[Topic, int, Room], list[Part]]
"""Gives the parts of all records of a request for a topic and its sticky partition, the same records each
time, and takes room for what it unpacks.
"""

_BY_TOPIC = (InvalidRecord, RecordTooLarge, UnknownPartition)
"""Refusals that rest on what is known of the topic."""


@dataclass(frozen=True, slots=True)
class Appending:
    """What a request asks for. `make` is a lot of work if it is `large`.

    `in_turn`: it was answered already (acks=0), and whoever comes after it waits for it.
    """

    make: Make
    large: bool
    acks: Acks
    stamp: ProducerStamp | None = None
    expected_offset: int | None = None
    in_turn: bool = False

    def entries(self, parts: list[Part]) -> list[tuple[int, AppendRequest]]:
        """What is appended of `parts`, each to its partition."""
        return [
            (part.partition, AppendRequest(part.batch, self.stamp, self.expected_offset)) for part in parts
        ]


@dataclass(slots=True)
class Done:
    """What became of the parts of a request, which may have gone to one topic after the other."""

    parts: list[Part]
    outcomes: list[AppendOutcome]

    def add(self, part: Part, outcome: AppendOutcome) -> None:
        self.parts.append(part)
        self.outcomes.append(outcome)


async def append(here: Gateway, topic: Topic, asked: Appending, room: Room) -> Done:
    """Append what is `asked` for, to `topic` or what has taken its place.

    Raises what `make` raises, UnknownTopic and BufferFull, when nothing was appended.
    """
    done = Done([], [])
    left: list[Part] | None = None
    while True:
        try:
            topic, parts = await _made(here, topic, asked, room)
            partitions, parts = topic.partition_count, parts if left is None else _of(left, parts)
            outcomes = await _appended(here, topic, parts, asked, room)
            left = []  # only now: what raises before this is the answer to all that was left
            for part, outcome in zip(parts, outcomes, strict=True):
                if isinstance(outcome, TopicDeleted):
                    left, why = [*left, part], outcome
                else:
                    done.add(part, outcome)
            if not left:
                return done
            topic = await renewed(here, topic, partitions, why)
        except LakelogError as error:
            if not done.parts:
                raise
            for part in left or ():
                done.add(part, error)
            return done


async def _made(here: Gateway, topic: Topic, asked: Appending, room: Room) -> tuple[Topic, list[Part]]:
    """The parts for `topic`; if it refuses them, for what there is now, where that is another."""
    while True:
        before, sticky = known(topic), here.router.sticky_partition(topic)
        try:
            return topic, await worked_out(asked.large, lambda: asked.make(topic, sticky, room))  # noqa: B023
        except _BY_TOPIC:
            topic = await newest(here, topic)
            if known(topic) == before:
                raise


def known(topic: Topic) -> tuple[str, int, TopicConfig]:
    """What a request is refused by."""
    return topic.topic_id, topic.partition_count, topic.config


async def _appended(
    here: Gateway, topic: Topic, parts: list[Part], asked: Appending, room: Room
) -> list[AppendOutcome]:
    async def again(index: int, acks: Acks) -> None:
        """Append a part that was answered already (acks=0) to the topic that is there now."""

        def made(found: Topic, sticky: int, held: Room) -> list[Part]:
            return _of([parts[index]], asked.make(found, sticky, held))

        with here.buffer.room(topic.name) as more:
            later = replace(asked, make=made, acks=acks, in_turn=True)
            done = await append(here, await newest(here, topic), later, more)
            for outcome in done.outcomes:
                if isinstance(outcome, LakelogError):
                    raise outcome

    entries = await worked_out(len(parts) > APPENDS_AT_ONCE, lambda: asked.entries(parts))
    room.grow(sum(entry.size_bytes for _, entry in entries))
    return await here.router.append(topic, entries, asked.acks, room, again, asked.in_turn)


def _of(left: list[Part], parts: list[Part]) -> list[Part]:
    """Those records of `parts`, which are all of a request, that are in `left`, too."""
    if any(part.indexes is None for part in left):
        return parts  # that one is all of it
    wanted = np.concatenate([part.indexes for part in left])
    found = []
    for part in parts:
        indexes = np.arange(part.batch.num_rows) if part.indexes is None else part.indexes
        kept = np.flatnonzero(np.isin(indexes, wanted))
        if len(kept):
            found.append(Part(part.partition, part.batch.take(as_indices(kept)), indexes[kept]))
    return found


def refuse_if_all_failed(outcomes: list[AppendOutcome]) -> None:
    """Raise the first error when nothing was appended."""
    first = outcomes[0]
    if isinstance(first, LakelogError) and not any(isinstance(outcome, Appended) for outcome in outcomes):
        raise first


def place_of(partition: int, outcome: AppendOutcome, place: int) -> Placed:
    """What the answer says of the record at `place` among those of one partition."""
    if isinstance(outcome, LakelogError):
        return partition, None, status_and_code(outcome)[1], outcome.message
    base = outcome.base_offset
    return partition, None if base is None else base + place, None, None
