"""A consumer as a pure state machine: `step(state, event) → state`.

The next request follows from the state (`ConsumerState.next_action`), also after a failure or an interrupt.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from lakelog.client.consumer.consumer_state import (
    Assigned,
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
    PollSent,
    Position,
    Processed,
    Received,
    Reported,
    Restart,
    Rewind,
    Seek,
)
from log_tables.topic_partition import TopicPartition

Positions = dict[TopicPartition, Position]


def step(state: ConsumerState, event: Event) -> ConsumerState:
    """The next state."""
    return _STEPS[type(event)](state, event)


def _joined(state: ConsumerState, event: Joined) -> ConsumerState:
    joined = replace(state, joined=True, generation=0, latest_generation=0)
    if not state.choice.partitions:
        return joined
    begun = _placed(replace(joined, owned=state.choice.partitions), event.starts)
    return replace(begun, uncertain=bool(begun.received))


def _member_lost(state: ConsumerState, _event: MemberLost) -> ConsumerState:
    positions = {at: replace(p, committed=None) for at, p in state.positions.items()}
    gone = replace(state, created=False, joined=False, uncertain=False, positions=positions)
    return gone if state.choice.partitions else _dropped(gone, Dropped(state.owned))


def _assigned(state: ConsumerState, event: Assigned) -> ConsumerState:
    owned, generation = state.owned | event.partitions, event.generation
    return replace(state, owned=owned, generation=generation, latest_generation=generation)


def _dropped(state: ConsumerState, event: Dropped) -> ConsumerState:
    """Without partitions that another member owns."""
    lost = {at for at in event.partitions if _is_unfinished(_position(state, at))}
    positions = {at: p for at, p in state.positions.items() if at not in event.partitions}
    return replace(state, owned=state.owned - event.partitions, positions=positions, lost=state.lost | lost)


def _is_unfinished(position: Position) -> bool:
    return (position.handed_out or 0) > (position.restart or 0)


def _received(state: ConsumerState, event: Received) -> ConsumerState:
    positions: Positions = {}
    for at, (first, following) in event.offsets.items():
        position = _position(state, at)
        restart = first if position.restart is None else position.restart
        positions[at] = replace(position, received=following, restart=restart)
    return replace(_with(state, positions), uncertain=False, latest_generation=event.generation)


def _handed_out(state: ConsumerState, event: HandedOut) -> ConsumerState:
    given = {at: replace(_position(state, at), handed_out=offset) for at, offset in event.offsets.items()}
    return _with(state, given)


def _processed(state: ConsumerState, _event: Processed) -> ConsumerState:
    return _with(state, {at: replace(p, processed=p.handed_out) for at, p in state.positions.items()})


def _committed(state: ConsumerState, event: Committed) -> ConsumerState:
    """A commit counts as far as it was handed out."""
    positions: Positions = {}
    for at, offset in event.offsets.items():
        position = replace(_position(state, at), committed=offset)
        if position.handed_out is not None:
            done = min(offset, position.handed_out)
            processed = done if position.processed is None else max(done, position.processed)
            position = replace(position, processed=processed, restart=done)
        positions[at] = position
    return replace(_with(state, positions), lost=frozenset())


def _rewound(state: ConsumerState) -> ConsumerState:
    """All that was not handed out is received again."""
    return _received_again(state, {at: p.handed_out for at, p in state.positions.items()})


def _received_again(state: ConsumerState, offsets: "dict[TopicPartition, int | None]") -> ConsumerState:
    """It receives from these offsets on; None: from where the group goes on."""
    if all(state.positions[at].received == offset for at, offset in offsets.items()):
        return state
    positions = {at: replace(state.positions[at], received=offset) for at, offset in offsets.items()}
    return replace(_with(state, positions), uncertain=True)


def _leaving(state: ConsumerState, _event: Leave) -> ConsumerState:
    left = _received_again(state, {at: p.processed for at, p in state.positions.items()})
    return replace(left, uncertain=left.uncertain or bool(state.to_commit))


def _restarted(state: ConsumerState, _event: Restart) -> ConsumerState:
    starts = {at: p.restart for at, p in state.positions.items() if p.restart is not None}
    return replace(_placed(state, starts), uncertain=True, lost=frozenset())


def _placed(state: ConsumerState, offsets: Offsets) -> ConsumerState:
    """It goes on from `offsets`, whatever was before, and whatever the gateway has committed since."""
    positions = {at: Position(offset, offset, offset, restart=offset) for at, offset in offsets.items()}
    return replace(_with(state, positions), uncertain=True)


def _position(state: ConsumerState, at: TopicPartition) -> Position:
    return state.positions.get(at, Position())


def _with(state: ConsumerState, positions: Positions) -> ConsumerState:
    return replace(state, positions={**state.positions, **positions})


_STEPS: Mapping[type[Event], Callable[[ConsumerState, Any], ConsumerState]] = {
    Created: lambda state, _: replace(state, created=True),
    Joined: _joined,
    MemberLost: _member_lost,
    Left: lambda state, _: replace(state, created=False, joined=False),
    Assigned: _assigned,
    Dropped: _dropped,
    Reported: lambda state, _: replace(state, uncertain=False),
    PollSent: lambda state, _: replace(state, uncertain=True),
    Received: _received,
    HandedOut: _handed_out,
    Processed: _processed,
    Committed: _committed,
    Seek: lambda state, event: _placed(_rewound(state), {event.at: event.offset}),
    Rewind: lambda state, _: _rewound(state),
    Leave: _leaving,
    Restart: _restarted,
}
