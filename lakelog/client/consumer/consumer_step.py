"""A consumer as a pure state machine: `step(state, event) → state`.

The next request follows from the state (`ConsumerState.next_action`), also after a failure or an interrupt.
"""

from dataclasses import replace

from lakelog.client.consumer.consumer_events import (
    Assigned,
    Committed,
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
    Processed,
    Received,
    Reported,
    Restart,
    Rewind,
    Seek,
)
from lakelog.client.consumer.consumer_state import ConsumerState, Position
from log_tables.topic_partition import TopicPartition

Positions = dict[TopicPartition, Position]


def step(  # noqa: PLR0911 -- one for each event
    state: ConsumerState, event: Event
) -> ConsumerState:
    """The next state."""
    match event:
        case Created():
            return replace(state, created=True)
        case Joined():
            return _joined(state, event)
        case MemberLost():
            return _member_lost(state)
        case Left():
            return replace(state, created=False, joined=False)
        case Assigned(partitions, generation):
            owned = state.owned | partitions
            return replace(state, owned=owned, generation=generation, latest_generation=generation)
        case Dropped():
            return _dropped(state, event)
        case Reported():
            return replace(state, uncertain=False)
        case PollSent():
            return replace(state, uncertain=True)
        case _:
            return _moved(state, event)


def _moved(  # noqa: PLR0911 -- one for each event
    state: ConsumerState,
    event: Received | HandedOut | Processed | Committed | Seek | Rewind | Restart | Leave,
) -> ConsumerState:
    match event:
        case Received():
            return _received(state, event)
        case HandedOut(offsets):
            given = {at: replace(_position(state, at), handed_out=offset) for at, offset in offsets.items()}
            return _with(state, given)
        case Processed():
            done = {at: replace(p, processed=p.handed_out) for at, p in state.positions.items()}
            return _with(state, done)
        case Committed():
            return _committed(state, event)
        case Seek(at, offset):
            return _placed(_rewound(state), {at: offset})
        case Rewind():
            return _rewound(state)
        case Leave():
            left = _received_again(state, {at: p.processed for at, p in state.positions.items()})
            return replace(left, uncertain=left.uncertain or bool(state.to_commit))
        case Restart():
            return _restarted(state)


def _joined(state: ConsumerState, event: Joined) -> ConsumerState:
    joined = replace(state, joined=True, generation=0, latest_generation=0)
    if not state.choice.partitions:
        return joined
    begun = _placed(replace(joined, owned=state.choice.partitions), event.starts)
    return replace(begun, uncertain=bool(begun.received))


def _member_lost(state: ConsumerState) -> ConsumerState:
    positions = {at: replace(p, committed=None) for at, p in state.positions.items()}
    gone = replace(state, created=False, joined=False, uncertain=False, positions=positions)
    return gone if state.choice.partitions else _dropped(gone, Dropped(state.owned))


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


def _restarted(state: ConsumerState) -> ConsumerState:
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
