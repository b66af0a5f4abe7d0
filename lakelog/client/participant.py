"""A member's way through a group: joining, rebalances, lost answers, lost instances, leaving.

Every method sends its requests once. One that fails with a Retriable or OutcomeUnknown may be called again,
and goes on where it stood.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from lakelog.client.membership import Membership
from lakelog.client.positions import Offsets, Positions
from log_tables.errors import Conflict, NotFound, OffsetOutOfRange, UnknownMember
from log_tables.topic_partition import TopicPartition

Callback = Callable[[list[TopicPartition]], None]


@dataclass(frozen=True, slots=True)
class Choice:
    """The topics or partitions that a consumer reads: exactly one of the three is set."""

    topics: frozenset[str] = frozenset()
    pattern: str = ""
    partitions: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The functions of the program that a rebalance calls."""

    assigned: Callback | None
    revoked: Callback | None
    lost: Callback | None


class Participant:
    """Used by one thread."""

    def __init__(
        self, member: Membership, choice: Choice, callbacks: Callbacks, *, earliest: bool, auto_commit: bool
    ) -> None:
        self._member, self._choice, self._callbacks = member, choice, callbacks
        self._earliest, self._auto_commit = earliest, auto_commit
        self.owned: set[TopicPartition] = set()
        self.positions = Positions()
        self._committed: Offsets = {}
        self._created = self._joined = False
        self._generation = self._latest_generation = 0
        # Whether the gateway may have us further than we are: an answer of it was lost.
        self._position_uncertain = False

    @property
    def assignment_is_current(self) -> bool:
        """Whether the last poll had nothing to say about the assignment."""
        return bool(self._choice.partitions) or self._latest_generation == self._generation

    def join(self) -> None:
        """Become a member with the subscription. Raises MemberExists, InvalidRequest, NotFound."""
        if not self._created:
            self._member.create()
            self._created = True
        if self._choice.partitions:
            self._member.assign(self._choice.partitions)
            self.owned = set(self._choice.partitions)
            if not self._earliest:
                self._begin_at_ends()
            self._position_uncertain = bool(self.positions.received)
        else:
            self._member.subscribe(self._choice.topics, self._choice.pattern)
        self._generation = self._latest_generation = 0
        self._joined = True

    def step(self, timeout_ms: int, max_bytes: int | None) -> pa.Table:
        """One poll, and whatever has to come before it. Records that it gave before count as processed.

        Raises UnknownMember: then `lose` comes next.
        """
        if not self._joined:
            self.join()
        if self._position_uncertain:
            self._recover()
        if not self.assignment_is_current:
            self._rebalance()
        self._position_uncertain = True
        table, self._latest_generation = self._member.records(self.generation, timeout_ms, max_bytes)
        self.positions.receive(table)
        self._position_uncertain = False
        return table

    def lose(self) -> None:
        """The instance is gone: begin again with the next step."""
        self._created = self._joined = self._position_uncertain = False
        self._committed.clear()
        if not self._choice.partitions:
            self._lose(self.owned)

    def commit(self, offsets: Offsets) -> None:
        """Commit the offsets of the next records. Raises Conflict, UnknownMember, OffsetOutOfRange."""
        self._check_ends(offsets)
        self._member.commit(offsets)
        self.transacted(offsets)

    def _check_ends(self, offsets: Offsets) -> None:
        """Raise OffsetOutOfRange for an offset that no record has yet. The gateway would take it, as Kafka
        does, and the next poll would go by auto.offset.reset. Offsets that were handed out are below the end.
        """
        next_offsets = self.next_offsets
        for at, offset in offsets.items():
            if (
                at in self.owned
                and offset > next_offsets.get(at, 0)
                and offset > (end := self._member.end(at))
            ):
                raise OffsetOutOfRange(
                    f"offset {offset} of {at.topic}-{at.partition} is beyond the end of the log, {end}; "
                    "commit up to there",
                    high_watermark=end,
                )

    @property
    def generation(self) -> int | None:
        """The generation of the assignment as it is known here; None for partitions that are not shared."""
        return None if self._choice.partitions else self._generation

    @property
    def next_offsets(self) -> Offsets:
        """The offsets of the next records to hand out, of what is owned."""
        return {at: offset for at, offset in self.positions.next_offsets.items() if at in self.owned}

    def transacted(self, offsets: Offsets) -> None:
        """These were committed with a transaction."""
        self.positions.commit(offsets)
        self._committed |= offsets

    def restart(self) -> None:
        """Receive again, from the next step on, all that is not committed."""
        self.positions.restart()
        self._position_uncertain = True

    def move(self, at: TopicPartition, offset: int) -> None:
        """Go on from `offset`, from the next step on."""
        self.positions.rewind()
        self.positions.move(at, offset)
        self._position_uncertain = True

    def rewind(self) -> None:
        """Receive again, from the next step on, what was not handed out."""
        if self.positions.rewind():
            self._position_uncertain = True

    def leave(self) -> None:
        """Leave the group; with auto-commit, commit what is processed."""
        if self._joined and self._auto_commit:
            # The gateway would also commit what it gave and we did not process: report our position first.
            if self.positions.rewind(processed=True) or self._position_uncertain:
                self._recover()
            self._commit_processed()
        try:
            if self._joined and not self._choice.partitions:
                self._revoke(self.owned)
        finally:
            if self._created:
                self._member.delete()
            self._created = self._joined = False

    def _begin_at_ends(self) -> None:
        """Note the log ends of partitions without a committed offset: they are where this member begins."""
        new = self.owned - self.positions.received.keys()
        for at in new - self._member.committed(new).keys():
            self.positions.move(at, self._member.end(at))

    def _recover(self) -> None:
        """Report our positions to the gateway, so that nothing is skipped or repeated."""
        try:
            self._set_positions()
            if self._auto_commit:
                self._commit_processed()
        except (Conflict, NotFound) as error:
            lost = self.owned - self._member.owned()
            if isinstance(error, UnknownMember) or not lost:
                raise
            self._lose(lost)
            self._recover()
        self._position_uncertain = False

    def _set_positions(self) -> None:
        positions = {at: offset for at, offset in self.positions.received.items() if at in self.owned}
        new = self.owned - positions.keys()
        if new:
            # A position at a log end is committed as soon as the gateway sets it.
            positions |= self._member.committed(new)
        unset = self.owned - positions.keys()
        if unset and self._earliest:
            self._member.seek_to_beginning(unset)
        if positions:
            self._member.seek(positions)

    def _commit_processed(self) -> None:
        processed = self.positions.processed.items()
        new = {
            at: offset for at, offset in processed if at in self.owned and self._committed.get(at) != offset
        }
        if not new:
            return
        try:
            self.commit(new)
        except Conflict:
            if not self._choice.partitions:
                raise
            # Others share the group's topics, so its offsets are theirs; the gateway's auto-commit agrees.

    def _rebalance(self) -> None:
        kept, generation = self._member.assignment()
        gone = self.owned - kept
        if gone:
            still = self._member.owned()
            self._revoke(gone & still)
            self._lose(gone - still)
        gained = kept - self.owned
        self.owned |= gained
        self._generation = self._latest_generation = generation
        _call(self._callbacks.assigned, gained)

    def _revoke(self, partitions: set[TopicPartition]) -> None:
        _call(self._callbacks.revoked, partitions)
        self._drop(partitions)

    def _lose(self, partitions: set[TopicPartition]) -> None:
        lost = set(partitions)
        self._drop(lost)
        _call(self._callbacks.lost, lost)

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        dropped = set(partitions)
        self.owned -= dropped
        self.positions.forget(dropped)
        for at in dropped:
            self._committed.pop(at, None)


def _call(callback: Callback | None, partitions: set[TopicPartition]) -> None:
    if callback is not None and partitions:
        callback(sorted(partitions))
