"""A partition, and the network to it, as values: leaders die, and answers are lost or late."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ingest.writer import Appended, AppendOutcome
from log_tables.errors import LakelogError, NotLeader
from log_tables.partition.partition import AppendRequest
from log_tables.partition.sequencer import SequencedAppend, Sequencer, producers_of
from log_tables.rows import as_batch
from log_tables.table.txns import ProducerState
from log_tables.topic_partition import TopicIdPartition
from tests.log_tables.partition.test_sequencer import sequencer


@dataclass(eq=False)
class Message:
    """An append that a gateway has sent. `waiting` is told its answer; None when nobody waits for it."""

    at: TopicIdPartition
    requests: Sequence[AppendRequest]
    waiting: "Callable[[Message, Sequence[AppendOutcome]], None] | None"
    sequenced: list[SequencedAppend | LakelogError] = field(default_factory=list)


def answer(message: Message, outcomes: Sequence[AppendOutcome]) -> None:
    """Tell who waits for it what became of a message."""
    if message.waiting is not None:
        message.waiting(message, outcomes)


class Log:
    """A partition: its durable values, and appends that have offsets and are not durable yet."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.producers: dict[int, ProducerState] = {}
        self.under_way: list[Message] = []
        self._leader = self._next_leader()

    def _next_leader(self) -> Sequencer:
        return sequencer(len(self.values), **{f"p{key}": state for key, state in self.producers.items()})

    def deliver(self, message: Message) -> None:
        """Requests behind a refused one are refused with it."""
        refused: LakelogError | None = None
        for request in message.requests:
            try:
                if refused is None:
                    message.sequenced.append(self._leader.sequence(request))
            except LakelogError as error:
                refused = error
            if refused is not None:
                message.sequenced.append(refused)
        if not all(isinstance(one, LakelogError) for one in message.sequenced):
            self.under_way.append(message)
        else:
            answer(message, [one for one in message.sequenced if isinstance(one, LakelogError)])

    def commit(self, limit: int | None = None) -> None:
        """Make durable what is under way; with a `limit` so many requests of it, and then the leader dies."""
        answers: list[tuple[Message, list[AppendOutcome]]] = []
        left = 1_000_000 if limit is None else limit
        for message in self.under_way:
            outcomes: list[AppendOutcome] = []
            for one in message.sequenced:
                if isinstance(one, LakelogError):
                    outcomes.append(one)
                elif left > 0:
                    left -= 1
                    outcomes.append(self._durable(one, message.at.partition))
                else:
                    outcomes.append(NotLeader("an earlier commit failed"))
            answers.append((message, outcomes))
        self.under_way = []
        if limit is not None:
            self._leader = self._next_leader()
        for message, outcomes in answers:
            answer(message, outcomes)

    def _durable(self, one: SequencedAppend, partition: int) -> Appended:
        if not one.duplicate:
            self.values += as_batch(one.request.records).column("value").to_pylist()
            self.producers |= producers_of([one])
        return Appended(partition, one.base_offset, one.count, one.duplicate)
