"""The appends of a group's transactions to one partition, event by event: what is done next, what is told."""

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
    LossGivenUp,
    LossNoted,
    PartitionAppend,
    ProducerSeen,
    Queued,
    Report,
    Tick,
    TopicGone,
    Wait,
    appends_of,
)
from coordinator.groups.transactions.append_queue import BACKOFF, AppendQueue, step
from ingest.writer import Appended
from log_tables.cluster.group_log import AppendedRange, Intent
from log_tables.errors import (
    CorruptSegment,
    NotLeader,
    OutcomeUnknown,
    SequenceGap,
    StaleProducerEpoch,
    TransactionLost,
)
from log_tables.limits import KEPT_PRODUCER_ID_MIN
from log_tables.segments.staging import StagedFile, StagedRun
from log_tables.table.txns import ProducerState
from log_tables.topic_partition import TopicIdPartition

PRODUCER = KEPT_PRODUCER_ID_MIN + 7
OUTDATED = StaleProducerEpoch("fenced", current=9)
GONE = CorruptSegment("the file is missing")


def transaction(number: int, records: int = 2, producer_id: int = PRODUCER) -> PartitionAppend:
    """Transaction `number`: one run of so many `records`."""
    staged = StagedFile(f"staging/{number}", (StagedRun("t", "id", 0, 0, 10, records),))
    return appends_of(number, Intent(producer_id, number, (staged,)))[TopicIdPartition("t", "id", 0)]


def appended(base_offset: int | None, count: int = 2) -> Appended:
    return Appended(0, base_offset, count)


class Driven:
    """A queue, and what its last step reported."""

    def __init__(self, *events: Event) -> None:
        self.queue = AppendQueue()
        self.reports: list[Report] = []
        self.happen(*events)

    def happen(self, *events: Event) -> list[Report]:
        for event in events:
            self.queue, self.reports = step(self.queue, event)
        return self.reports

    def command(self) -> Command | None:
        return self.queue.command

    @property
    def numbers(self) -> list[int]:
        return [append.number for append in self.queue.appends]


def seen(epoch: int, newest_epoch: int = 9, kept: bool = True) -> ProducerSeen:
    return ProducerSeen(ProducerState(epoch, 2, 2, kept), newest_epoch)


def placed(report: Report) -> tuple[AppendedRange, ...]:
    assert isinstance(report, Finished)
    return report.append.placed


def test_a_queue_without_transactions_waits_for_one() -> None:
    driven = Driven()
    assert driven.command() is None
    driven.happen(Queued(transaction(1)))
    assert driven.command() == Append()
    [report] = driven.happen(Answered([appended(5)]))
    assert placed(report) == (AppendedRange("t", 0, 2, 5),)
    assert driven.queue == AppendQueue()


def test_a_transaction_that_comes_meanwhile_changes_nothing_of_what_is_under_way() -> None:
    driven = Driven(Queued(transaction(1)), AppendFailed())
    waiting = driven.command()
    assert waiting == Wait(BACKOFF.first_s)
    driven.happen(Queued(transaction(2)))
    assert driven.command() == waiting
    assert driven.numbers == [1, 2]


def test_a_transaction_without_records_for_the_partition_ends_in_its_turn() -> None:
    [report] = Driven(Queued(transaction(1, records=0))).reports
    assert placed(report) == ()
    driven = Driven(Queued(transaction(1)), Queued(transaction(2, records=0)), Queued(transaction(3)))
    assert [*map(placed, driven.happen(Answered([appended(0), appended(2)])))] == [
        (AppendedRange("t", 0, 2, 0),),
        (),
        (AppendedRange("t", 0, 2, 2),),
    ]


def test_the_answer_of_one_append_finishes_several_transactions_and_begins_another() -> None:
    driven = Driven(*(Queued(transaction(number)) for number in (1, 2, 3)))
    reports = driven.happen(Answered([appended(0), appended(2), appended(4, 1)]))
    assert [*map(placed, reports)] == [(AppendedRange("t", 0, 2, 0),), (AppendedRange("t", 0, 2, 2),)]
    assert driven.numbers == [3]
    assert driven.queue.appends[0].durable == 1
    assert driven.command() == Append()


def test_ranges_that_follow_one_another_are_one() -> None:
    driven = Driven(Queued(transaction(1, records=8)))
    outcomes = [appended(base) for base in (10, 12, None, None)]
    assert [*map(placed, driven.happen(Answered(outcomes)))] == [
        (AppendedRange("t", 0, 4, 10), AppendedRange("t", 0, 4, None)),
    ]


def test_a_failure_keeps_what_is_durable_and_is_repeated_after_ever_longer_waits() -> None:
    driven = Driven(Queued(transaction(1, records=4)), Queued(transaction(2)))
    assert driven.happen(Answered([appended(0), NotLeader("moved"), NotLeader("moved")])) == []
    assert driven.queue.appends[0].durable == 2
    wait_s = BACKOFF.first_s
    for _ in range(9):
        assert driven.command() == Wait(wait_s)
        driven.happen(Tick())
        assert driven.command() == Append(refresh=True)
        driven.happen(Answered([OutcomeUnknown("no answer")]))
        wait_s = BACKOFF.after(wait_s)
    assert wait_s == BACKOFF.max_s
    driven.happen(Tick(), Answered([appended(2)]), AppendFailed())
    assert driven.command() == Wait(BACKOFF.first_s)
    assert driven.numbers == [2]


def test_nothing_behind_a_refusal_counts_as_durable() -> None:
    driven = Driven(Queued(transaction(1)), Queued(transaction(2)))
    assert driven.happen(Answered([NotLeader("moved"), appended(0)])) == []
    assert [append.durable for append in driven.queue.appends] == [0, 0]


def test_what_an_earlier_process_has_appended_is_skipped() -> None:
    driven = Driven(*(Queued(transaction(number)) for number in (1, 2, 3)))
    driven.happen(Answered([OUTDATED]))
    assert driven.command() == FetchProducer(PRODUCER)
    reports = driven.happen(seen(epoch=3))
    assert [*map(placed, reports)] == [(AppendedRange("t", 0, 2, None),)] * 2
    assert driven.numbers == [3]
    assert driven.command() == Append()


def test_transactions_of_the_next_producer_are_not_skipped() -> None:
    driven = Driven(Queued(transaction(8)), Queued(transaction(1, producer_id=PRODUCER + 1)))
    [report] = driven.happen(Answered([OUTDATED]), seen(epoch=9))
    assert placed(report) == (AppendedRange("t", 0, 2, None),)
    assert driven.numbers == [1]


def test_a_later_transaction_that_is_not_durable_says_nothing_of_earlier_ones() -> None:
    for state in (None, ProducerState(0, 2, 2, True), ProducerState(1, 2, 2, True)):
        driven = Driven(Queued(transaction(1)), Answered([OUTDATED]))
        assert driven.happen(ProducerSeen(state, 9)) == []
        assert driven.command() == Wait(BACKOFF.first_s)
        assert driven.queue.appends == (transaction(1),)


def test_an_epoch_that_the_group_has_not_committed_is_a_loss() -> None:
    for strange in (seen(epoch=5, newest_epoch=4), seen(epoch=5, kept=False)):
        driven = Driven(Queued(transaction(1)), Answered([OUTDATED]))
        [report] = driven.happen(strange)
        assert isinstance(report, LossNoted)
        assert isinstance(report.loss, TransactionLost)
        assert "with epoch 5" in str(report.loss)
        assert "staging/1" in str(report.loss)
        assert driven.command() == Wait(BACKOFF.first_s)


def test_a_loss_is_told_once_and_taken_back_when_it_is_none_any_longer() -> None:
    driven = Driven(Queued(transaction(1)), Queued(transaction(2)))
    assert driven.happen(FileLost(GONE)) == [LossNoted(GONE)]
    assert driven.happen(Tick(), FileLost(GONE)) == []
    assert driven.queue.loss is GONE
    assert driven.numbers == [1, 2]
    *finished, last = driven.happen(Tick(), Answered([appended(0), appended(2)]))
    assert [*map(placed, finished)] == [(AppendedRange("t", 0, 2, 0),), (AppendedRange("t", 0, 2, 2),)]
    assert last == LossNoted(None)
    assert driven.queue == AppendQueue()


def test_a_refusal_that_no_repeat_mends_is_a_loss() -> None:
    driven = Driven(Queued(transaction(1)))
    [report] = driven.happen(Answered([SequenceGap("sequence 7 is next", expected=7)]))
    assert isinstance(report, LossNoted)
    assert "epoch 1) are not in t-0: sequence 7 is next" in str(report.loss)


def test_a_loss_is_given_up_by_force_and_what_is_behind_it_is_appended() -> None:
    driven = Driven(*(Queued(transaction(number)) for number in (1, 2, 3)), FileLost(GONE))
    assert driven.happen(LossGivenUp()) == []
    [dropped] = driven.happen(Tick(), FileLost(GONE))
    assert isinstance(dropped, Finished)
    assert (dropped.append.number, dropped.append.given_up, dropped.dropped) == (1, True, str(GONE))
    [dropped] = driven.happen(FileLost(GONE))
    assert isinstance(dropped, Finished)
    assert dropped.append.number == 2
    driven.happen(Queued(transaction(4)), Answered([appended(0)]))
    assert driven.queue.loss is None
    assert driven.happen(FileLost(GONE)) == [LossNoted(GONE)]  # force is over with the first success
    assert driven.numbers == [4]


def test_force_is_over_when_nothing_is_left() -> None:
    driven = Driven(Queued(transaction(1)), FileLost(GONE), LossGivenUp(), Tick(), FileLost(GONE))
    assert driven.queue == AppendQueue()
    driven.happen(LossGivenUp(), Queued(transaction(2)), FileLost(GONE))
    assert driven.numbers == [2]


def test_nothing_waits_for_a_topic_that_is_gone() -> None:
    driven = Driven(Queued(transaction(1, records=4)), Queued(transaction(2)), Answered([appended(0)]))
    reports = driven.happen(TopicGone())
    assert [*map(placed, reports)] == [(), ()]
    for report in reports:
        assert isinstance(report, Finished)
        assert report.dropped == "the topic was deleted"
        assert not report.append.given_up
    assert driven.queue == AppendQueue()


def test_what_is_left_is_for_the_next_process() -> None:
    driven = Driven(Queued(transaction(1)), Queued(transaction(2)), FileLost(GONE))
    assert driven.happen(LeadershipLost()) == [Left(transaction(1)), Left(transaction(2))]
    assert driven.queue == AppendQueue()
