"""A producer repeats a batch that was not acknowledged, gives it a new sequence, or gives up."""

import math

import pyarrow as pa
import pytest

from lakelog.client.producer.delivery import BatchResult
from lakelog.client.producer.partition_queue import Batch, PartitionQueue
from log_tables.errors import (
    BufferFull,
    LakelogError,
    NotLeader,
    OutcomeUnknown,
    Retriable,
    SequenceGap,
    StaleProducerEpoch,
    UnknownTopic,
    Unreachable,
)

LOST = OutcomeUnknown("the answer was lost")
FORGOTTEN = SequenceGap("sequence 3 where 0 is next", expected=0)
BEHIND = SequenceGap("sequence 3 where 1 is next", expected=1)
DEADLINE_S = 120.0


def lane(*counts: int, sequence: int = 0) -> PartitionQueue:
    """A lane with batches of so many records, the first of them in hand."""
    made = PartitionQueue("t", 0, sequence=sequence)
    for count in counts:
        batch = Batch(BatchResult("t", 0), due_s=1.0, deadline_s=DEADLINE_S)
        for number in range(count):
            batch.add(b"%d" % number, None, (), 0)
        made.batches.append(batch)
    made.begin()
    return made


def test_a_batch_is_due_when_it_has_lingered_or_is_sealed_and_not_while_one_is_in_flight() -> None:
    waiting = lane(1, 1)
    assert waiting.due_s() == math.inf
    waiting.delivered()
    waiting.put_down()
    assert waiting.due_s() == 1.0
    waiting.batches[0].sealed = True
    assert waiting.due_s() == -math.inf
    assert PartitionQueue("t", 0).due_s() == math.inf


def test_sequences_follow_each_other_and_wrap() -> None:
    sending = lane(3, 2, sequence=2**31 - 4)
    sending.delivered()
    sending.put_down()
    assert sending.sequence == 2**31 - 1
    sending.begin()
    sending.delivered()
    assert (sending.epoch, sending.sequence) == (0, 1)


@pytest.mark.parametrize("error", [NotLeader("no"), BufferFull("full"), Unreachable("gone"), LOST])
def test_what_may_succeed_is_repeated_under_its_sequence(error: LakelogError) -> None:
    sending = lane(3, sequence=7)
    assert sending.failed(error, now_s=10.0) is None
    assert (sending.epoch, sending.sequence) == (0, 7)
    assert 10.0 < sending.due_s() <= 10.2


def test_pauses_grow_to_a_second_and_the_gateway_may_ask_for_longer() -> None:
    sending = lane(1)
    pauses = []
    for _ in range(6):
        sending.failed(NotLeader("no"), now_s=0.0)
        pauses.append(sending.due_s())
        sending.begin()
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    sending.failed(BufferFull("full", retry_after_s=7), now_s=0.0)
    assert sending.due_s() == 7.0


def test_a_pause_ends_at_the_deadline() -> None:
    sending = lane(1)
    sending.failed(BufferFull("full", retry_after_s=1000), now_s=0.0)
    assert sending.due_s() == DEADLINE_S


@pytest.mark.parametrize("gap", [FORGOTTEN, BEHIND])
def test_a_batch_that_was_never_in_doubt_begins_a_new_epoch_after_a_gap(gap: SequenceGap) -> None:
    sending = lane(2, sequence=3)
    sending.failed(NotLeader("no"), now_s=0.0)
    sending.begin()
    assert sending.failed(gap, now_s=1.0) is None
    assert (sending.epoch, sending.sequence) == (1, 0)


def test_a_batch_in_doubt_is_renumbered_when_the_log_still_knows_the_producer() -> None:
    sending = lane(2, sequence=3)
    sending.failed(LOST, now_s=0.0)
    sending.begin()
    assert sending.failed(BEHIND, now_s=1.0) is None
    assert (sending.epoch, sending.sequence, sending.batches[0].uncertain) == (1, 0, False)


def test_a_batch_in_doubt_is_given_up_when_the_log_has_forgotten_the_producer() -> None:
    sending = lane(2, 1, sequence=3)
    sending.failed(LOST, now_s=0.0)
    sending.begin()
    reason = sending.failed(FORGOTTEN, now_s=1.0)
    assert isinstance(reason, OutcomeUnknown)
    assert "may be in the log or not" in str(reason)
    sending.put_down()
    assert (sending.epoch, sending.sequence, len(sending.batches)) == (1, 0, 1)


@pytest.mark.parametrize("error", [UnknownTopic("no topic t"), ValueError("a bug")])
def test_what_cannot_succeed_is_given_up_and_its_sequence_never_used_again(error: Exception) -> None:
    sending = lane(2, sequence=3)
    assert sending.failed(error, now_s=0.0) is error
    assert (sending.epoch, sending.sequence) == (1, 0)


def test_a_gateway_that_failed_inside_leaves_it_open() -> None:
    reason = lane(2, sequence=3).failed(LakelogError("internal error 0123"), now_s=0.0)
    assert isinstance(reason, OutcomeUnknown)
    assert "internal error 0123" in str(reason)


def test_a_refusal_of_a_batch_in_doubt_does_not_say_that_it_is_not_there() -> None:
    sending = lane(2, sequence=3)
    sending.failed(LOST, now_s=0.0)
    sending.begin()
    reason = sending.failed(UnknownTopic("no topic t"), now_s=1.0)
    assert isinstance(reason, OutcomeUnknown)
    assert "no topic t" in str(reason)


def test_a_fenced_producer_goes_on_above_the_epoch_that_fenced_it() -> None:
    sending = lane(2, sequence=3)
    fenced = StaleProducerEpoch("epoch 5 has written", current=5)
    assert sending.failed(fenced, now_s=0.0) is fenced
    assert (sending.epoch, sending.sequence) == (6, 0)


def test_at_the_deadline_it_is_said_what_is_known() -> None:
    sending = lane(1, 1, 1)
    assert type(sending.failed(Unreachable("gone"), now_s=DEADLINE_S)) is Unreachable
    sending.put_down()
    sending.begin()
    sending.failed(LOST, now_s=1.0)
    sending.begin()
    assert type(sending.expired()) is OutcomeUnknown
    sending.put_down()
    sending.begin()
    assert type(sending.expired()) is Retriable


def test_without_sequences_nothing_in_doubt_is_repeated() -> None:
    sending = lane(1)
    sending.idempotent = False
    assert isinstance(sending.failed(LOST, now_s=0.0), OutcomeUnknown)


def test_a_body_is_made_once() -> None:
    batch = lane(3).batches[0]
    assert batch.body() is batch.body()


def test_a_request_has_the_keys_headers_and_times_of_its_records_each_in_its_row() -> None:
    batch, headers = Batch(BatchResult("t", 0), due_s=1.0, deadline_s=DEADLINE_S), (("h", b"1"), ("h", None))
    places = [
        batch.add(b"a", None, (), -1),
        batch.add(None, b"k", headers, 2),
        batch.add(b"", b"", (), 1_763_000_000_000),
    ]
    assert places == [0, 1, 2]
    body = batch.body()
    with pa.ipc.open_stream(body) as stream:
        rows = stream.read_all()
    assert rows["value"].to_pylist() == [b"a", None, b""]
    assert rows["key"].to_pylist() == [None, b"k", b""]
    assert rows["headers"].to_pylist() == [
        None,
        [{"key": name, "value": data} for name, data in headers],
        None,
    ]
    assert rows["timestamp"].cast(pa.int64()).to_pylist() == [-1_000, 2_000, 1_763_000_000_000_000]
    assert batch.body() is body
