"""The rebalance of a classic group: members come and go, all join, the leader assigns.

`Rebalance` is the work of one step: it begins with a group and gathers the next one, its records, and the
answers to held requests. The rules are those of Kafka's group coordinator; KIP-134 has the delay of the first
rebalance, KIP-345 static members.
"""

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from coordinator.groups.classic.classic_group import (
    ClassicGroup,
    ClassicLimits,
    ClassicMember,
    ClassicState,
    newest_noted,
    renamed,
    value_of,
)
from coordinator.groups.classic.events import Answer, Answers, JoinAnswer, SyncAnswer
from log_tables.cluster.group_log import ClassicKey, ClassicValue, Records
from log_tables.errors import FencedInstanceId, LakelogError, RebalanceInProgress, UnknownMember

_REASON_MAX_CHARS = 255
"""The longest reason that is kept (KIP-800)."""


def rebalancing() -> RebalanceInProgress:
    """The error that sends a member back to JoinGroup."""
    return RebalanceInProgress("the group is rebalancing; join it again")


class Rebalance:
    """The work of one step, at `now_ms`."""

    def __init__(self, group_id: str, group: ClassicGroup, now_ms: float, limits: ClassicLimits) -> None:
        self._id, self.group, self._now_ms, self._limits = group_id, group, now_ms, limits
        self.records: Records = []
        self.answers: Answers = []

    def answer(self, request: int, answer: Answer) -> None:
        """End a request."""
        self.answers.append((request, answer))

    # Members.

    def put(self, member: ClassicMember) -> None:
        """Add a member, or replace it."""
        group = self.group
        first = not group.members
        self.group = replace(
            group,
            members={**group.members, member.id: member},
            pending={name: until for name, until in group.pending.items() if name != member.id},
            leader=member.id if first or not group.leader else group.leader,
        )

    def touch(self, member: ClassicMember) -> ClassicMember:
        """A member is alive."""
        self.put(seen := replace(member, seen_ms=self._now_ms))
        return seen

    def remove(self, names: Iterable[str], error: LakelogError) -> None:
        """Remove members; their held requests end with `error`. A lost leader is followed by the first."""
        gone = {*names}
        members = {name: member for name, member in self.group.members.items() if name not in gone}
        for name in gone & self.group.members.keys():
            self._end_requests(self.group.members[name], error)
        leader = self.group.leader
        pending = {name: until for name, until in self.group.pending.items() if name not in gone}
        if leader not in members:
            leader = next(iter(members), "")
        self.group = replace(self.group, members=members, pending=pending, leader=leader)

    def replace_static(self, old: ClassicMember, new_id: str) -> ClassicMember:
        """Give a static member, whose client was started again, its new id; the old one is fenced."""
        group = self.group
        fenced = FencedInstanceId(
            "another member has joined with this group.instance.id; stop one of the two"
        )
        self._end_requests(old, fenced)
        new = replace(old, id=new_id, joining=None, syncing=None, seen_ms=self._now_ms, is_new=False)
        members = {name: member for name, member in group.members.items() if name != old.id}
        leader = new_id if group.leader == old.id else group.leader
        self.group = replace(group, members={**members, new_id: new}, leader=leader)
        self.note_static(new)
        return new

    def note_static(self, member: ClassicMember) -> None:
        """Write down the id of a static member, if the record has another one for it.

        The record follows at once: another coordinator must not take the old client for the right one.
        """
        stored = self.group.stored
        if stored is None or member.instance_id is None:
            return
        for name, value in stored.members.items():
            if value.instance_id == member.instance_id and name != member.id:
                self.store(renamed(stored, name, member.id))
                return

    def _end_requests(self, member: ClassicMember, error: LakelogError) -> None:
        for request in (member.joining, member.syncing):
            if request is not None:
                self.answer(request, error)

    # Joining.

    def rebalance(self, reason: str) -> None:
        """Begin a rebalance, unless one has begun; complete it if nobody is waited for."""
        if self.group.state is ClassicState.PREPARING_REBALANCE:
            self.complete_if_joined()
            return
        if self.group.state is ClassicState.COMPLETING_REBALANCE:
            self._interrupt_sync()
        first = self.group.state is ClassicState.EMPTY
        timeout_ms, delay_ms = self.group.rebalance_timeout_ms, self._limits.initial_rebalance_delay_ms
        self.group = replace(
            self.group,
            state=ClassicState.PREPARING_REBALANCE,
            join_deadline_ms=self._now_ms + (delay_ms if first else timeout_ms),
            sync_deadline_ms=None,
            initial=first,
            growing=False,
            remaining_ms=max(timeout_ms - delay_ms, 0) if first else 0,
            reason=reason[:_REASON_MAX_CHARS],
        )
        if first and not delay_ms:
            self._complete_join()
        else:
            self.complete_if_joined()

    def complete_if_joined(self) -> None:
        """Complete the rebalance if nobody is waited for. The first one lasts for its delay."""
        group = self.group
        if group.state is not ClassicState.PREPARING_REBALANCE or not group.all_joined:
            return
        if not group.initial or not group.members:
            self._complete_join()

    def pass_join_deadline(self) -> None:
        """The time to join is over. While members still come to a new group, it gets more."""
        group = self.group
        if group.initial and group.growing and group.remaining_ms > 0:
            delay_ms = min(self._limits.initial_rebalance_delay_ms, group.remaining_ms)
            self.group = replace(
                group,
                growing=False,
                join_deadline_ms=self._now_ms + delay_ms,
                remaining_ms=group.remaining_ms - delay_ms,
            )
            return
        self._complete_join()

    def pass_sync_deadline(self) -> None:
        """The time to ask for an assignment is over."""
        late = [member.id for member in self.group.members.values() if not member.synced]
        self.group = replace(self.group, sync_deadline_ms=None)
        if late:
            self.remove(late, UnknownMember("the member did not ask for its assignment in time; join again"))
            self.rebalance(f"{len(late)} members did not send SyncGroup in time")

    def _interrupt_sync(self) -> None:
        """Members that wait for the assignment join again."""
        members = {}
        for name, member in self.group.members.items():
            seen_ms = member.seen_ms
            if member.syncing is not None:
                self.answer(member.syncing, rebalancing())
                seen_ms = self._now_ms
            members[name] = replace(member, syncing=None, seen_ms=seen_ms, assignment=b"")
        self.group = replace(self.group, members=members)

    def _complete_join(self) -> None:
        """The members that have joined are the next generation; static ones stay without joining."""
        gone = [m.id for m in self.group.members.values() if m.joining is None and m.instance_id is None]
        self.remove(gone, UnknownMember("the member did not join in time; join again"))
        if not self.group.members:
            self._end()
            return
        joined = [member.id for member in self.group.members.values() if member.joining is not None]
        if not joined:
            # Only static members are left, which may be starting again: their session timeouts decide.
            until = self._now_ms + self.group.rebalance_timeout_ms
            self.group = replace(self.group, join_deadline_ms=until, initial=False)
            return
        leader = self.group.leader if self.group.leader in joined else joined[0]
        self._begin_generation(replace(self.group, leader=leader))

    def _begin_generation(self, group: ClassicGroup) -> None:
        generation = group.newest + 1
        self.group = group = replace(
            group,
            state=ClassicState.COMPLETING_REBALANCE,
            generation=generation,
            newest=generation,
            protocol=group.selected_protocol(),
            join_deadline_ms=None,
            sync_deadline_ms=self._now_ms + group.rebalance_timeout_ms,
            initial=False,
        )
        for member in group.members.values():
            if member.joining is not None:
                self.answer(member.joining, self.join_answer(member.id))
        members = {
            member.id: replace(
                member,
                joining=None,
                synced=False,
                is_new=False,
                is_named=True,
                generation=None,
                assignment=b"",
                seen_ms=self._now_ms,
            )
            for member in group.members.values()
        }
        self.group = replace(group, members=members)
        self._note_begun()

    def _note_begun(self) -> None:
        """Write the generation down, if another coordinator would begin it, too.

        It leaves out the one after the newest that it finds. So no generation is begun twice, at the cost of
        a record only for the first one, and after one that was not completed.
        """
        stored = self.group.stored or ClassicValue(protocol_type=self.group.protocol_type)
        if self.group.stored is None or self.group.generation > newest_noted(stored) + 1:
            self.store(msgspec.structs.replace(stored, begun=self.group.generation))

    def _end(self) -> None:
        """The group is empty now."""
        group = replace(
            self.group,
            state=ClassicState.EMPTY,
            protocol="",
            leader="",
            join_deadline_ms=None,
            sync_deadline_ms=None,
            initial=False,
        )
        if group.stored is None and not group.generation:
            self.group = replace(group, protocol_type="")  # it never had a generation: nothing stays of it
            return
        self.group = replace(group, generation=group.newest + 1, newest=group.newest + 1)
        self.store(value_of(self.group))

    # Assigning.

    def complete_sync(self) -> None:
        """The assignments are known: they are written down, and all members that wait hear of them."""
        self.group = replace(self.group, state=ClassicState.STABLE)
        for member in self.group.members.values():
            if member.syncing is not None:
                self.answer(member.syncing, self.sync_answer(member))
        members = {
            name: member if member.syncing is None else replace(member, syncing=None, seen_ms=self._now_ms)
            for name, member in self.group.members.items()
        }
        self.group = replace(self.group, members=members)
        self.store(value_of(self.group))
        self.end_sync_if_all_synced()

    def end_sync_if_all_synced(self) -> None:
        """Wait for nobody any longer, when all members have asked for their assignments."""
        if all(member.synced for member in self.group.members.values()):
            self.group = replace(self.group, sync_deadline_ms=None)

    def store(self, value: ClassicValue) -> None:
        """Write the record of the group."""
        self.group = replace(self.group, stored=value)
        self.records = [(ClassicKey(self._id), value)]

    def join_answer(self, member_id: str) -> JoinAnswer:
        """The generation as it is, for one of its members."""
        group = self.group
        return JoinAnswer(
            member_id=member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol=group.protocol,
            leader=group.leader,
            members=group.joined_members() if group.leader == member_id else (),
        )

    def sync_answer(self, member: ClassicMember) -> SyncAnswer:
        """The assignment of a member."""
        return SyncAnswer(self.group.protocol_type, self.group.protocol, member.assignment)
