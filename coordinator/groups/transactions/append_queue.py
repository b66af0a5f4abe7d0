"""The appends of a group's transactions to one partition, as a pure state machine.

`step(queue, event) → (queue, reports)`. A queue has at most one command under way. Its outcome is an event;
transactions and other events come at any time.

The producer of a group's transactions appends with a transaction's number as its epoch, and the sequences of
a partition count from 0. So a repeated append, after a failure or by another process, writes nothing twice.
An append with an older epoch than the partition has seen was made long ago, if the group has committed so
many. Any other reason that keeps records of a committed transaction from their partition is a loss: the
clients hear of it, and nothing is given up before a client deletes the group by force.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from coordinator.groups.transactions.append_events import (
    Answered,
    Append,
    AppendFailed,
    Command,
    Event,
    FetchProducer,
    FileLost,
    Finished,
    LeadershipLost,
    Left,
    Loss,
    LossGivenUp,
    LossNoted,
    PartitionAppend,
    ProducerSeen,
    Queued,
    Report,
    Tick,
    TopicGone,
    Wait,
)
from ingest.writer import Appended
from log_tables.clock import Backoff
from log_tables.errors import Conflict, StaleProducerEpoch, TransactionLost

BACKOFF = Backoff(0.05, max_s=5.0)
"""The pause between two attempts, which grows from the first to the second."""


@dataclass(frozen=True, slots=True)
class AppendQueue:
    """The appends to a partition that have not ended, by transaction number; `command` is under way for them.

    `loss` says why the first cannot go on. `pause_s` is how long the next failure is waited out.
    """

    appends: tuple[PartitionAppend, ...] = ()
    command: Command | None = None
    pause_s: float = BACKOFF.first_s
    loss: Loss | None = None
    giving_up: bool = False


def step(queue: AppendQueue, event: Event) -> tuple[AppendQueue, list[Report]]:
    """The queue after `event`, with its next command, and what is to be told of it."""
    return _STEPS[type(event)](queue, event)


def _queued(queue: AppendQueue, event: Queued) -> tuple[AppendQueue, list[Report]]:
    queue = replace(queue, appends=(*queue.appends, event.append))
    return _go_on(queue) if queue.command is None else (queue, [])


def _topic_gone(queue: AppendQueue, _event: TopicGone) -> tuple[AppendQueue, list[Report]]:
    gone = [replace(append, placed=()) for append in queue.appends]
    return AppendQueue(), [Finished(append, "the topic was deleted") for append in gone]


def _go_on(queue: AppendQueue) -> tuple[AppendQueue, list[Report]]:
    """Begin the next attempt, if anything is left: nothing has failed."""
    queue, reports = _without_whole(queue)
    if queue.loss is not None:
        reports.append(LossNoted(None))
    return AppendQueue(queue.appends, Append() if queue.appends else None), reports


def _failed(queue: AppendQueue) -> AppendQueue:
    return replace(queue, command=Wait(queue.pause_s), pause_s=BACKOFF.after(queue.pause_s))


def _without_whole(queue: AppendQueue) -> tuple[AppendQueue, list[Report]]:
    """The queue without the first appends, as far as they are whole."""
    count = next((i for i, append in enumerate(queue.appends) if not append.whole), len(queue.appends))
    return replace(queue, appends=queue.appends[count:]), [Finished(each) for each in queue.appends[:count]]


def _answered(queue: AppendQueue, event: Answered) -> tuple[AppendQueue, list[Report]]:
    """Requests behind a refused one are refused with it."""
    appends, first, refusal = [*queue.appends], 0, None
    for outcome in event.outcomes:
        if not isinstance(outcome, Appended):
            refusal = outcome
            break
        while appends[first].whole:
            first += 1
        appends[first] = appends[first].with_durable(outcome.count, outcome.base_offset)
    queue, reports = _without_whole(replace(queue, appends=tuple(appends)))
    match refusal:
        case None:
            queue, more = _go_on(queue)
        case StaleProducerEpoch():
            queue, more = replace(queue, command=FetchProducer(queue.appends[0].intent.producer_id)), []
        case Conflict():
            queue, more = _lost(queue, _loss(queue.appends[0], refusal.message))
        case _:
            queue, more = _failed(queue), []
    return queue, reports + more


def _seen(queue: AppendQueue, event: ProducerSeen) -> tuple[AppendQueue, list[Report]]:
    """The first append was refused because of a later epoch. So a later transaction of the group is durable
    in the partition, and so are all before it. For every append of a group begins with the first request that
    its sender does not know to be durable, and requests behind a refused one are refused.

    That holds only for a number that the group has committed; others are a loss. And the later transaction
    may be only sequenced, by another process: it may fail, and is looked for again.
    """
    first, state = queue.appends[0], event.state
    if state is None or state.epoch <= first.intent.epoch:
        return _failed(queue), []
    if not state.kept or state.epoch > event.newest_epoch:
        why = f"its producer was used with epoch {state.epoch}, the group's newest is {event.newest_epoch}"
        return _lost(queue, _loss(first, why))

    def skipped(append: PartitionAppend) -> PartitionAppend:
        intent = append.intent
        earlier = intent.producer_id == first.intent.producer_id and intent.epoch < state.epoch
        return append.with_durable(append.records - append.durable, None) if earlier else append

    return _go_on(replace(queue, appends=tuple(map(skipped, queue.appends))))


def _loss(append: PartitionAppend, why: str) -> TransactionLost:
    topic, partition = append.runs[0][1].topic, append.runs[0][1].partition
    files = ", ".join(staged.path for staged in append.intent.staged)
    return TransactionLost(
        f"records of a committed transaction (epoch {append.intent.epoch}) are not in {topic}-{partition}: "
        f"{why}; they stay in {files} until the group is deleted by force"
    )


def _lost(queue: AppendQueue, loss: Loss) -> tuple[AppendQueue, list[Report]]:
    """The first append cannot go on: it is given up by force, or waits for a person."""
    reports: list[Report] = [LossNoted(loss)] if queue.loss is None else []
    queue = replace(queue, loss=loss)
    if not queue.giving_up:
        return _failed(queue), reports
    first, *others = queue.appends
    queue, more = _without_whole(replace(queue, appends=tuple(others), pause_s=BACKOFF.first_s))
    reports += [Finished(replace(first, given_up=True), str(loss)), *more]
    return (replace(queue, command=Append()) if queue.appends else AppendQueue()), reports


_STEPS: Mapping[type[Event], Callable[[AppendQueue, Any], tuple[AppendQueue, list[Report]]]] = {
    Queued: _queued,
    Answered: _answered,
    FileLost: lambda queue, event: _lost(queue, event.error),
    TopicGone: _topic_gone,
    ProducerSeen: _seen,
    AppendFailed: lambda queue, _: (_failed(queue), []),
    Tick: lambda queue, _: (replace(queue, command=Append(refresh=True)), []),
    LossGivenUp: lambda queue, _: (replace(queue, giving_up=bool(queue.appends)), []),
    LeadershipLost: lambda queue, _: (AppendQueue(), [Left(append) for append in queue.appends]),
}
