"""The groups of one partition of `__consumer_offsets`, in the process that leads it.

Every change of a group is appended before any client hears of it, and the records before the positions that
it notes are durable first. When one of the two fails, the term of leadership ends, and with it the shard: its
memory may be ahead of the log, so the log is read again.
"""

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import islice

from coordinator.groups.classic.classic_group import ClassicLimits
from coordinator.groups.classic.events import (
    Answer,
    ClassicEvent,
    ClassicTick,
    JoinGroup,
    LeaveGroup,
    LeftMember,
    SyncGroup,
)
from coordinator.groups.classic.rebalance import rebalancing
from coordinator.groups.events import (
    ConsumerHeartbeat,
    Delete,
    Event,
    Tick,
    TopicState,
    Transact,
)
from coordinator.groups.late_work import LateWork
from coordinator.groups.open_transactions import OpenTransactions
from coordinator.groups.pending_answers import PendingAnswers
from coordinator.groups.state.classic_step import classic_step
from coordinator.groups.state.group import Group
from coordinator.groups.state.group_records import restore
from coordinator.groups.state.noted_positions import make_durable, new_positions
from coordinator.groups.state.step import step
from coordinator.groups.topic_filter import TopicFilter
from ingest.accumulator import Accumulator
from ingest.buffer import RETRY_AFTER_S
from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import (
    Intent,
    PendingKey,
    ProducerKey,
    ProducerValue,
    Records,
    encode,
    ids_group,
    producers_of,
    replay,
)
from log_tables.errors import GroupMaxSizeReached, LakelogError, NotLeader, Retriable, UnknownMember
from log_tables.layout import staging_directory
from log_tables.limits import GROUPS_LOOKED_AT, TURN_S, UNDO_GROUPS_MAX
from log_tables.partition.partition import AppendRequest
from log_tables.record import input_batch
from log_tables.segments.producer_staging import ProducerFile, files_of
from log_tables.segments.producer_staging import delete as delete_files

_log = logging.getLogger(__name__)

_ALL_TIME_MS = 2**63 - 1

_UNBOUNDED = ClassicLimits()

_PROMPT_KEYS = (ProducerKey, PendingKey)
"""The keys of records, beside those of intents, whose client sends nothing more until they are durable."""


class Shard:
    """Used on the event loop, but for `read`."""

    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        clock: Clock,
        limits: ClassicLimits = _UNBOUNDED,
        partition: int = 0,
    ) -> None:
        """`accumulator` is that of `partition`, which this process must lead; `read` comes first."""
        self._cluster, self._accumulator, self._clock = cluster, accumulator, clock
        self.partition, self.producers = partition, dict[str, ProducerValue]()
        self.open, self.ids, self.unstable = OpenTransactions(), ids_group(partition), set[str]()
        self._term = accumulator.partition.term
        self._groups: dict[str, Group] = {}
        self._kept: dict[str, None] = {}  # those that were deleted and can be had again, as they went
        self._topics: Mapping[str, TopicState] = {}
        self._readable: TopicFilter | None = None
        self._behind: dict[str, None] = {}
        self._appended: dict[str, asyncio.Future[int | None]] = {}
        self._waiting: defaultdict[str, dict[asyncio.Event, None]] = defaultdict(dict)  # as they came
        self._lost: LakelogError | None = None
        self._limits = limits
        self._pending = PendingAnswers()
        self._late = LateWork(self.group, self.groups, self.apply, clock)
        self._members = 0
        self.have_left = False  # whether members may have left since sessions were tidied
        # When a group may be due at the earliest, by both clocks: idle groups are not asked at each tick.
        self._due_ms, self._expiry_ms = -math.inf, -math.inf
        self.looked_s = clock.monotonic()

    def read(self) -> None:
        """Restore the groups from the log. Blocking. Raises CorruptLog, CorruptSegment, StoreUnavailable."""
        newest = dict(replay(self._accumulator.partition))
        found = restore(newest.items(), self._now_ms())
        self.producers = producers_of(newest)
        self._read_staged(found.get(self.ids))
        interval_ms = self._limits.assignment_interval_ms
        self._groups = {
            name: replace(group, default_interval_ms=interval_ms) for name, group in found.items()
        }
        kept = [group for group in self._groups.values() if group.is_only_kept]
        self._kept = {group.id: None for group in sorted(kept, key=lambda group: group.acts[0].at_ms)}
        self._members = sum(map(_members, self._groups.values()))
        self.unstable = {name for name, group in self._groups.items() if group.unstable}
        self._due_ms = self._expiry_ms = -math.inf

    def _read_staged(self, ids: Group | None) -> None:
        """Take up what is staged for the transactions of transactional ids, open and committed."""
        store = self._cluster.store
        files, errors = files_of(store, self.partition)
        if files:  # one whose gateway died before it was durable is relied on from now on
            store.make_durable(staging_directory(self.partition))
        for error in errors:
            _log.error("%s", error)
        self.open.doubtful = bool(errors)
        unused = {*self.open.remember(files, self.producers, self._clock.boottime())}
        for intent in ids.transactions.pending.values() if ids is not None else ():
            self.open.hold(intent.staged)
        # Others are on their way: their gateway has put them, and is about to say so.
        ended = [each.path for each in files if each.path in unused and self._have_ended(each)]
        delete_files(store, [path for path in ended if not self.open.uses(path)])

    def _have_ended(self, file: ProducerFile) -> bool:
        known = self.producers
        return all(each.id in known and each.number <= known[each.id].number for each in file.runs)

    def refresh(self, wait: bool = False) -> None:
        """Check whether another process has taken over; with `wait` after a commit under way. Blocking."""
        now = self._clock.monotonic()
        self._accumulator.partition.refresh(wait)
        self.looked_s = now

    @property
    def leading(self) -> bool:
        """Whether this process still coordinates these groups, as far as it knows."""
        partition = self._accumulator.partition
        # A later term is another shard's: another process may have led between the two.
        return self._lost is None and partition.leading and partition.term == self._term

    def check_leading(self) -> None:
        """Raise NotLeader when this process no longer coordinates these groups."""
        if not self.leading:
            raise NotLeader("this gateway no longer coordinates the group; repeat the request")

    def group(self, group_id: str) -> Group:
        """The group `group_id`; an empty one when there is none."""
        if group_id in self._behind and self.leading:
            self._follow(group_id)
        found = self._groups.get(group_id)
        if found is not None:
            return found
        interval_ms = self._limits.assignment_interval_ms
        return Group(group_id, topics=self._topics, readable=self._readable, default_interval_ms=interval_ms)

    @property
    def size(self) -> int:
        """How many groups there are, or have settings."""
        return len(self._groups) - len(self._kept)

    @property
    def members(self) -> int:
        """How many members they have together."""
        return self._members

    @property
    def pending(self) -> int:
        """How many member ids were given to clients that have not joined with them yet."""
        return sum(len(group.classic.pending) for group in self._groups.values())

    def forget_pending(self) -> None:
        """Forget the oldest of these ids in the group that has most: its client asks for another one. Raises
        NotLeader.
        """
        group = max(self._groups.values(), key=lambda each: len(each.classic.pending))
        for oldest in [*group.classic.pending][:1]:
            self.apply_classic(group.id, LeaveGroup((LeftMember(oldest),)))

    def members_of(self, principal: str) -> int:
        """How many of them `principal` has made, or subscribed last."""
        contexts = [member.context for group in self._groups.values() for member in group.members.values()]
        contexts += [m.context for group in self._groups.values() for m in group.classic.members.values()]
        return sum(context is not None and context.principal.name == principal for context in contexts)

    def groups_of(self, principal: str) -> int:
        """How many groups `principal` has made."""
        return sum(group.principal == principal for group in self._groups.values())

    def groups(self) -> list[Group]:
        """Every group that there is, or has settings, by name."""
        return [group for _, group in sorted(self._groups.items())]

    def apply(self, group_id: str, event: Event) -> Group:
        """Apply `event` to the group `group_id`; the change is durable once `wait_durable` returns.

        Raises what `step` raises, and NotLeader; Retriable for a Delete while something is not durable yet.
        """
        self.check_leading()
        if isinstance(event, Delete) and group_id in self._appended:
            # A caller that waits for transaction N must not take N of the next group of this id for it.
            raise Retriable(f"changes of the group {group_id!r} are being committed; repeat the request")
        before = self.group(group_id)
        after, records = step(before, event, self._now_ms())
        self._check_size(before, after)
        # Of a thousand members that are alive most heartbeats change nothing.
        self._keep(before, after, records, isinstance(event, ConsumerHeartbeat) and not records)
        if not after.classic.members:
            gone = UnknownMember(f"the group {group_id!r} was deleted")
            error = gone if isinstance(event, Delete) else rebalancing()
            for request in before.classic.held:
                self._pending.answer(request, error, self._appended.get(group_id))
        return after

    def _check_size(self, before: Group, after: Group) -> None:
        """Raise GroupMaxSizeReached if a member is one too many. In a group whose members assign among
        themselves the step knows: those that come first to a rebalance stay.
        """
        most = self._limits.max_size
        if after.members and after.size > max(before.size, most):
            raise GroupMaxSizeReached(
                f"the group {after.id!r} has {before.size} members, as many as group_max_size allows; stop "
                "some, or use another group",
                retry_after_s=RETRY_AFTER_S,
            )

    def set_producer(self, name: str, value: ProducerValue | None, event: Transact | None = None) -> None:
        """Set the record of a transactional id, None deletes it; `event` commits records in the same append.
        Durable once `wait_durable(ids)` returns.

        Raises NotLeader, and what `step` raises.
        """
        self.check_leading()
        after = before = self.group(self.ids)
        records: Records = []
        if event is not None:
            after, records = step(before, event, self._now_ms())
        self._keep(before, after, [*records, (ProducerKey(name), value)])
        if value is None:
            self.producers.pop(name, None)
        else:
            self.producers[name] = value

    def apply_classic(self, group_id: str, event: ClassicEvent) -> Group:
        """Apply an event of a classic group, which may end requests that are held."""
        self.check_leading()
        before = self.group(group_id)
        after, records, answers = classic_step(before, event, self._now_ms(), self._limits)
        self._keep(before, after, records)
        if after.classic.state is not before.classic.state:
            said = group_id, after.classic.state, after.classic.generation, after.classic.reason
            # Clients give reasons and parts of member ids: quoted, they make no lines of their own.
            _log.info("the classic group %s is %s, generation %d (%r)", *said)
        rests_on = self._appended.get(group_id)
        for request, answer in answers:
            self._pending.answer(request, answer, rests_on)
        return after

    async def ask(self, group_id: str, event: JoinGroup | SyncGroup | LeaveGroup) -> Answer:
        """The answer to a request, which may take until other members have sent theirs; durable.

        Raises what `classic_step` raises, MemberIdRequired, RebalanceInProgress, and NotLeader.
        """
        number, coming = self._pending.begin()
        try:
            self.apply_classic(group_id, replace(event, request=number))
            return await coming
        finally:
            coming.cancel()

    def release(self) -> None:
        """End the requests that are held, as another gateway coordinates the groups, or none does."""
        self._pending.fail_all()

    def end(self) -> None:
        """End what waits here, and begin nothing any more: the groups are another shard's, or the process
        ends.
        """
        self._late.end()
        self.wake()
        self.release()

    def _keep(self, before: Group, after: Group, records: Records, is_quiet: bool = False) -> None:
        """`is_quiet`: nothing is due earlier than it was."""
        if records:
            self._append(before, records)
        known = self._groups.get(after.id)
        (self.unstable.add if after.unstable else self.unstable.discard)(after.id)
        if known is not None:
            self._members -= _members(known)
            if after.members is not known.members and not is_quiet:
                self.have_left = self.have_left or not known.members.keys() <= after.members.keys()
        if after.exists or after.configs or after.acts or after.kept:
            self._groups[after.id] = after
            self._members += _members(after)
            if not is_quiet:
                self._note_due(after, known)
            self._late.note(after)
        else:
            self._groups.pop(after.id, None)
        self._note_kept(after)
        if after.target is not before.target or after.generation != before.generation:
            self.wake(after.id)

    def _note_kept(self, group: Group) -> None:
        """Bound the deleted groups that are there for an undo alone: the oldest gives way."""
        if not group.is_only_kept:
            self._kept.pop(group.id, None)
            return
        self._kept[group.id] = None
        while len(self._kept) > UNDO_GROUPS_MAX:
            oldest = next(iter(self._kept))
            self.apply(oldest, Tick(self._clock.now_ms(), acts_before_ms=_ALL_TIME_MS))
            self._kept.pop(oldest, None)

    def _note_due(self, group: Group, known: Group | None = None) -> None:
        """Have the next tick that is due for `group` come in time. For those of `known` it will."""
        noted = {} if known is None else known.members
        new = [member for name, member in group.members.items() if noted.get(name) is not member]
        times = [member.deadline_ms for member in new]
        if group.classic.deadline_ms is not None:
            times.append(group.classic.deadline_ms)
        self._due_ms = min((self._due_ms, *times))
        if group.transactions.expiry_ms is not None:
            self._expiry_ms = min(self._expiry_ms, group.transactions.expiry_ms)

    def check(self, group_id: str, event: Event) -> None:
        """Raise what `apply` would raise now."""
        self.check_leading()
        step(self.group(group_id), event, self._now_ms())

    def follow(
        self,
        topics: Mapping[str, TopicState],
        readable: TopicFilter | None = None,
        held: frozenset[str] = frozenset(),
    ) -> None:
        """Set the topics, who may read which, and the ids of deleted ones that may come back. Each group
        hears of them when it is asked for, or by `follow_on`.
        """
        self._topics, self._readable, self._behind = topics, readable, dict.fromkeys(self._groups)
        self._late.follow(topics, readable, held)

    def follow_on(self) -> bool:
        """Apply the topics to some of the groups that have not heard of them.

        Returns whether there are more such groups. Raises NotLeader.
        """
        until = self._clock.monotonic() + TURN_S
        for group_id in [*islice(self._behind, GROUPS_LOOKED_AT)]:
            self._follow(group_id)
            if self._clock.monotonic() > until:
                break
        return bool(self._behind)

    def _follow(self, group_id: str) -> None:
        del self._behind[group_id]
        if group_id in self._groups:
            self._late.tell(group_id)

    def expire(self, retention_ms: int) -> bool:
        """Delete some of the groups that have had no members for `retention_ms`.

        Returns whether there may be more of them. Raises NotLeader.
        """
        wall_ms = self._clock.now_ms()
        before_ms = max(1, wall_ms - retention_ms)
        due = (g for g in self._groups.values() if g.idle and (not g.idle_ms or g.touched_ms < before_ms))
        some = [group.id for group in islice(due, GROUPS_LOOKED_AT)]
        for group_id in some:
            self.apply(group_id, Tick(wall_ms, before_ms))
        return len(some) == GROUPS_LOOKED_AT

    def forget_acts(self, undo_ms: int) -> bool:
        """Forget some of what operators have done to groups more than `undo_ms` ago.

        Returns whether there may be more of it. Raises NotLeader.
        """
        wall_ms = self._clock.now_ms()
        before_ms = wall_ms - undo_ms
        due = (g for g in self._groups.values() if g.acts and g.acts[-1].at_ms < before_ms)
        some = [group.id for group in islice(due, GROUPS_LOOKED_AT)]
        for group_id in some:
            self.apply(group_id, Tick(wall_ms, acts_before_ms=before_ms))
        return len(some) == GROUPS_LOOKED_AT

    @property
    def has_silent_member(self) -> bool:
        """Whether a member has been silent, or has not polled, for too long."""
        now = self._now_ms()
        if now < self._due_ms:
            return False
        deadlines = (group.deadline_ms for group in self._groups.values())
        return any(deadline is not None and now >= deadline for deadline in deadlines)

    def tick(self) -> None:
        """Apply the time that has passed to every group that may be due. Raises NotLeader."""
        if not self._is_due:
            return
        for group_id in [*self._groups]:
            self._expire_members(group_id)
        self._due_ms = self._expiry_ms = math.inf
        for group in self._groups.values():
            self._note_due(group)

    def expire_members(self, group_id: str) -> None:
        """Apply the time that has passed to one group: a member whose session is over is gone before its
        group is shown, or changed from outside. Raises NotLeader.
        """
        if self._is_due:
            self._expire_members(group_id)

    @property
    def _is_due(self) -> bool:
        """Whether time may have passed for a group, without a look at each."""
        return self._now_ms() >= self._due_ms or self._clock.now_ms() >= self._expiry_ms

    def _expire_members(self, group_id: str) -> None:
        group = self._groups.get(group_id)
        if group is None:
            return
        now, wall_ms = self._now_ms(), self._clock.now_ms()
        deadline, expiry_ms = group.deadline_ms, group.transactions.expiry_ms
        if (deadline is not None and now >= deadline) or (expiry_ms is not None and wall_ms >= expiry_ms):
            self.apply(group_id, Tick(wall_ms))
        due = group.classic.deadline_ms
        if due is not None and now >= due:
            self.apply_classic(group_id, ClassicTick())

    async def wait_durable(self, group_id: str) -> None:
        """Return when all events of the group `group_id` so far are durable.

        Raises NotLeader, StoreUnavailable, OutcomeUnknown, Damaged when they could not be made durable.
        """
        done = self._appended.get(group_id)
        if done is not None:
            await asyncio.shield(done)

    async def wait_all_durable(self) -> None:
        """Wait until all changes of every group are durable."""
        for done in [*self._appended.values()]:
            await asyncio.shield(done)

    def listen(self, group_id: str, event: asyncio.Event) -> None:
        """Set `event` whenever the target assignment of the group `group_id` changes."""
        self._waiting[group_id][event] = None

    def unlisten(self, group_id: str, event: asyncio.Event) -> None:
        self._waiting[group_id].pop(event, None)
        if not self._waiting[group_id]:
            del self._waiting[group_id]

    def wake(self, group_id: str | None = None) -> None:
        """Set the events of the listeners to one group, or to any."""
        for key in [*self._waiting] if group_id is None else [group_id] if group_id in self._waiting else []:
            for event in self._waiting[key]:
                event.set()

    def _append(self, before: Group, records: Records) -> None:
        group_id, positions = before.id, new_positions(before, records)
        batch = input_batch([encode(key, value) for key, value in records], self._clock.now_us())
        rests_on = partial(make_durable, self._cluster, positions) if positions else None
        prompt = any(isinstance(key, _PROMPT_KEYS) or isinstance(value, Intent) for key, value in records)
        since = self._clock.boottime()
        _, done = self._accumulator.add(AppendRequest(batch, rests_on=rests_on, since=since, prompt=prompt))
        self._appended[group_id] = done
        done.add_done_callback(lambda done: self._on_appended(group_id, done))

    def _on_appended(self, group_id: str, done: "asyncio.Future[int | None]") -> None:
        if self._appended.get(group_id) is done:
            del self._appended[group_id]
        error = None if done.cancelled() else done.exception()
        if isinstance(error, LakelogError):
            self._lost = error
            self.wake()
            self.release()

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1_000


def _members(group: Group) -> int:
    return len(group.members) + len(group.classic.members)
