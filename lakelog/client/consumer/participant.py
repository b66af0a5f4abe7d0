"""A consumer and its gateway: the requests that `ConsumerState` asks for, and the callbacks of the program.

Each method that asks the gateway is a call, and every request is sent once. One that fails with a Retriable
or OutcomeUnknown may be called again, and goes on where it stood.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from lakelog.client.consumer.consumer_record import ConsumerRecord, PendingRecords
from lakelog.client.consumer.consumer_state import (
    Action,
    Assigned,
    Choice,
    Committed,
    ConsumerState,
    Created,
    Dropped,
    Event,
    HandedOut,
    Joined,
    Leave,
    Left,
    MemberLost,
    Offsets,
    Partitions,
    PollSent,
    Processed,
    Received,
    Reported,
    Restart,
    Rewind,
    Seek,
)
from lakelog.client.consumer.consumer_step import step
from lakelog.client.consumer.membership import Membership
from lakelog.client.request import Call
from log_tables.errors import Conflict, NotFound, OffsetOutOfRange, UnknownMember
from log_tables.topic_partition import TopicPartition

Callback = Callable[[list[TopicPartition]], object]


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The functions of the program that a rebalance calls."""

    assigned: Callback | None
    revoked: Callback | None
    lost: Callback | None


class Participant:
    """Used by one thread, or one task."""

    def __init__(
        self, member: Membership, choice: Choice, callbacks: Callbacks, *, earliest: bool, auto_commit: bool
    ) -> None:
        self._member, self._callbacks, self._auto_commit = member, callbacks, auto_commit
        self._state = ConsumerState(choice=choice, earliest=earliest)
        self._pending = PendingRecords()

    @property
    def state(self) -> ConsumerState:
        """The state, with a note of all records that the program took."""
        before, last = self._pending.taken
        if last:
            state = step(step(self._state, HandedOut(before)), Processed())
            self._state = step(state, HandedOut(last))
            self._pending.forget()
        return self._state

    def take(self) -> ConsumerRecord | None:
        """Hand out the next record of those that wait; the one before is processed. None: no record waits."""
        return self._pending.take()

    def give(self, table: pa.Table) -> None:
        """Let the records of a poll wait for the program."""
        self._pending = PendingRecords(table)

    def hand_out(self) -> None:
        """Give the program all that was received."""
        self._apply(HandedOut(self._state.received))

    def process(self) -> None:
        """The program has processed all that it has."""
        self._apply(Processed())

    def rewind(self) -> None:
        """Receive again what was not handed out."""
        self._apply(Rewind())
        self._pending = PendingRecords()

    def seek(self, at: TopicPartition, offset: int) -> None:
        """Go on from `offset`."""
        self._apply(Seek(at, offset))
        self._pending = PendingRecords()

    def restart(self) -> None:
        """Receive again all that is not committed."""
        self._apply(Restart())
        self._pending = PendingRecords()

    def join(self) -> Call[None]:
        """Become a member with the subscription. Raises MemberExists, InvalidRequest, NotFound."""
        if not self._state.created:
            yield from self._member.create()
            self._apply(Created())
        choice = self._state.choice
        if choice.partitions:
            yield from self._member.assign(choice.partitions)
            self._apply(Joined((yield from self._starts(choice.partitions))))
        else:
            yield from self._member.subscribe(choice.topics, choice.pattern)
            self._apply(Joined())

    def poll(self, timeout_ms: int, max_bytes: int | None) -> Call[pa.Table]:
        """One poll, and whatever has to come before it. Records that it gave before count as processed.

        Raises UnknownMember: then `lose` comes next.
        """
        while (action := self.state.next_action) is not Action.POLL:
            yield from self._act(action)
        self._apply(PollSent())
        generation = self._state.known_generation
        table, latest_generation = yield from self._member.records(generation, timeout_ms, max_bytes)
        self._apply(Received(_spans(table), latest_generation))
        return table

    def lose(self) -> Call[None]:
        """The member is gone: begin again with the next poll."""
        before = self.state.owned
        self._apply(MemberLost())
        yield from _call(self._callbacks.lost, before - self._state.owned)

    def commit(self, offsets: Offsets) -> Call[None]:
        """Commit the offsets of the next records. Raises Conflict, UnknownMember, OffsetOutOfRange."""
        yield from self._check_ends(offsets)
        yield from self._member.commit(offsets)
        self.transacted(offsets)

    def transacted(self, offsets: Offsets) -> None:
        """These were committed with a transaction."""
        self._apply(Committed(offsets))

    def leave(self) -> Call[None]:
        """Leave the group; with auto-commit, commit what is processed."""
        state = self.state
        if state.joined and self._auto_commit:
            # The gateway would also commit what it gave and we did not process: report our position first.
            self._apply(Leave())
            while self._state.uncertain:
                yield from self._report()
        try:
            if state.joined and not state.choice.partitions:
                yield from self._revoke(self._state.owned)
        except GeneratorExit:  # nobody waits for it: it can ask nothing any more
            raise
        except BaseException:
            yield from self._delete()
            raise
        yield from self._delete()

    def _delete(self) -> Call[None]:
        if self._state.created or self._member.may_exist:
            yield from self._member.delete()
        self._apply(Left())

    def _apply(self, event: Event) -> None:
        self._state = step(self.state, event)

    def _act(self, action: Action) -> Call[None]:
        match action:
            case Action.JOIN:
                yield from self.join()
            case Action.REPORT:
                yield from self._report()
            case Action.REBALANCE:
                yield from self._rebalance()

    def _starts(self, partitions: Partitions) -> Call[Offsets]:
        """The log ends of partitions without a committed offset, where a member begins at the latest."""
        new = partitions - self._state.received.keys()
        if self._state.earliest or not new:
            return {}
        committed = yield from self._member.committed(new)
        starts = {}
        for at in new - committed.keys():
            starts[at] = yield from self._member.end(at)
        return starts

    def _report(self) -> Call[None]:
        """Report our positions to the gateway, so that nothing is skipped or repeated; or lose partitions."""
        try:
            yield from self._set_positions()
            if self._auto_commit:
                yield from self._commit_processed()
        except (Conflict, NotFound) as error:
            lost = self._state.owned - (yield from self._member.owned())
            if isinstance(error, UnknownMember) or not lost:
                raise
            yield from self._lose(lost)
        else:
            self._apply(Reported())

    def _set_positions(self) -> Call[None]:
        positions = self._state.to_report
        new = self._state.owned - positions.keys()
        if new:
            # At `latest` the gateway has committed where we begin, when it answered the subscription.
            positions |= yield from self._member.committed(new)
        unset = self._state.owned - positions.keys()
        if unset and self._state.earliest:
            yield from self._member.seek_to_beginning(unset)
        if positions:
            yield from self._member.seek(positions)

    def _commit_processed(self) -> Call[None]:
        processed = self._state.to_commit
        if not processed:
            return
        try:
            yield from self.commit(processed)
        except Conflict:
            if not self._state.choice.partitions:
                raise
            # Others share the group's topics, so its offsets are theirs; the gateway's auto-commit agrees.

    def _check_ends(self, offsets: Offsets) -> Call[None]:
        """Raise OffsetOutOfRange for an offset that no record has yet. The gateway would take it, as Kafka
        does, and the next poll would go by auto.offset.reset. Offsets that were handed out are below the end.
        """
        state = self.state
        beyond = {at: offset for at, offset in offsets.items() if offset > state.next_offsets.get(at, 0)}
        for at in beyond.keys() & state.owned:
            if beyond[at] > (end := (yield from self._member.end(at))):
                raise OffsetOutOfRange(
                    f"offset {beyond[at]} of {at.topic}-{at.partition} is beyond the end of the log, {end}; "
                    "commit up to there",
                    high_watermark=end,
                )

    def _rebalance(self) -> Call[None]:
        kept, generation = yield from self._member.assignment()
        gone = self._state.owned - kept
        if gone:
            still = yield from self._member.owned()
            yield from self._revoke(gone & still)
            yield from self._lose(gone - still)
        gained = kept - self._state.owned
        self._apply(Assigned(frozenset(gained), generation))
        yield from _call(self._callbacks.assigned, gained)

    def _revoke(self, partitions: Partitions) -> Call[None]:
        yield from _call(self._callbacks.revoked, partitions)
        self._apply(Dropped(partitions))

    def _lose(self, partitions: Partitions) -> Call[None]:
        self._apply(Dropped(partitions))
        yield from _call(self._callbacks.lost, partitions)


def _call(callback: Callback | None, partitions: Collection[TopicPartition]) -> Call[None]:
    if callback is not None and partitions:
        yield partial(callback, sorted(partitions))


def _spans(table: pa.Table) -> dict[TopicPartition, tuple[int, int]]:
    """The first offset and the next one of each partition; each batch is of one."""
    spans: dict[TopicPartition, tuple[int, int]] = {}
    for batch in table.to_batches():
        topic, partition = (batch.column(name)[0].as_py() for name in ("topic", "partition"))
        first, last = (batch.column("offset")[index].as_py() for index in (0, -1))
        at = TopicPartition(topic, partition)
        spans[at] = (spans[at][0] if at in spans else first, last + 1)
    return spans
