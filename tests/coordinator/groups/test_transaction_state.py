"""The transactions of a group, event by event: what each makes durable, what it is refused for."""

import pytest

from coordinator.groups.events import (
    Applied,
    Assign,
    Delete,
    Event,
    Join,
    Poll,
    Subscribe,
    Tick,
    TopicsChanged,
)
from coordinator.groups.state.group import Group
from coordinator.groups.state.group_records import restore
from coordinator.groups.state.step import step
from coordinator.groups.state.transaction_state import TransactionState, begin
from log_tables.cluster.group_log import (
    AppendedRange,
    Intent,
    IntentKey,
    MemberConfig,
    OffsetKey,
    OffsetValue,
    Records,
    Retry,
    RetryKey,
    TransactionsKey,
    TransactionsValue,
    decode,
    encode,
)
from log_tables.errors import (
    Conflict,
    GroupNotEmpty,
    InvalidConsumer,
    InvalidRecord,
    InvalidTopicName,
    LakelogError,
    NotAssigned,
    Retriable,
    RetryKeyReused,
    StaleGeneration,
    TransactionLost,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
)
from log_tables.limits import PRODUCER_EPOCH_MAX, PRODUCER_ID_MAX, RETRY_RETENTION_MS
from log_tables.segments.staging import StagedFile
from tests.kit.transact_events import AT_MS, IN0, IN1, MANUAL, PRODUCER, TOPICS, staged, transact


class Driven:
    """A group that knows TOPICS, and all that was made durable."""

    def __init__(self, *events: Event) -> None:
        self.records: Records = []
        self.group = Group("g")
        self.happen(TopicsChanged(TOPICS), *events)

    def happen(self, *events: Event) -> Records:
        """Apply `events`; returns the records of the last."""
        records: Records = []
        for event in events:
            self.group, records = step(self.group, event, 0)
            self.records += records
        return records

    def refuse(self, event: Event, error: type[LakelogError], says: str) -> None:
        with pytest.raises(error, match=says):
            step(self.group, event, 0)


def member(name: str = "m", config: MemberConfig = MANUAL) -> Driven:
    """A group of one member, which owns all of topic `in`."""
    return Driven(Join(name, config), Subscribe(name, frozenset({"in"})), Poll(name), Poll(name))


def test_offsets_intent_retry_key_and_count_are_one_append() -> None:
    driven = Driven()
    records = driven.happen(transact(None, staged(), offsets={IN0: 5}, key="k"))
    assert records == [
        (OffsetKey("g", "in", 0), OffsetValue(5, "id-in", "", AT_MS)),
        (TransactionsKey("g"), TransactionsValue(PRODUCER, 1)),
        (IntentKey("g", 1), Intent(PRODUCER, 1, (staged(),), "k")),
        (RetryKey("g", "k"), Retry(1, "d", AT_MS)),
    ]
    assert driven.group.exists


def test_without_records_nothing_is_pending() -> None:
    driven = Driven()
    driven.happen(transact(None, offsets={IN0: 5}, key="k"))
    assert not driven.group.transactions.pending
    assert driven.group.transactions.retries["k"].placed == ()


def test_what_is_applied_is_not_pending_any_more_and_its_key_knows_where_it_is() -> None:
    driven = Driven(transact(None, staged(), key="k"))
    placed = (AppendedRange("out", 0, 2, 17),)
    assert driven.happen(Applied(1, placed)) == [
        (IntentKey("g", 1), None),
        (RetryKey("g", "k"), Retry(1, "d", AT_MS, placed)),
    ]
    assert driven.happen(Applied(1, placed)) == []


def test_a_forgotten_key_is_not_written_again_when_its_transaction_is_applied() -> None:
    driven = Driven(transact(None, staged(), key="k"), transact(None, staged("b"), key="l", forget=("k",)))
    assert driven.happen(Applied(1, ())) == [(IntentKey("g", 1), None)]
    driven.happen(transact(None, staged("c"), key="k"))
    assert driven.group.transactions.retries["k"].number == 3


def test_a_member_commits_with_its_records_what_it_owns() -> None:
    driven = member()
    generation = driven.group.member("m").epoch
    driven.happen(transact("m", staged(), offsets={IN0: 1, IN1: 2}, generation=generation))
    assert {at: c.offset for at, c in driven.group.offsets.items()} == {IN0: 1, IN1: 2}
    assert driven.group.offsets[IN0].member == "m"


def test_a_member_is_refused_for_what_is_not_its_own() -> None:
    driven = member()
    generation = driven.group.member("m").epoch
    driven.happen(Join("n", MANUAL), Subscribe("n", frozenset({"in"})))
    told = driven.group.member("m").epoch
    assert told > generation
    driven.refuse(
        transact("m", staged(), offsets={IN0: 1}, generation=generation), StaleGeneration, f"it is {told}"
    )
    driven.refuse(transact("n", staged(), offsets={IN0: 1}), NotAssigned, "does not own")
    driven.refuse(transact("o", staged()), UnknownMember, "no consumer instance 'o'")


def test_a_member_that_commits_by_itself_cannot_take_offsets_into_a_transaction() -> None:
    driven = member(config=MemberConfig())
    driven.refuse(transact("m", staged(), offsets={IN0: 1}), InvalidConsumer, "auto.commit.enable=false")
    driven.happen(transact("m", staged()))


def test_who_chose_its_partitions_cannot_set_the_offsets_of_those_that_share() -> None:
    driven = member()
    driven.happen(Join("n", MANUAL), Assign("n", frozenset({IN0})))
    driven.refuse(transact("n", staged(), offsets={IN0: 1}), GroupNotEmpty, "partitions of its own")


def test_nobody_from_outside_transacts_while_members_share_topics() -> None:
    member().refuse(transact(None, staged()), GroupNotEmpty, "has members")


@pytest.mark.parametrize(
    ("file", "error"),
    [
        (staged(topic="gone", topic_id="x"), UnknownTopic),
        (staged(topic_id="of-another"), UnknownTopic),
        (staged(partition=2), UnknownPartition),
        (staged(topic="__lakelog_x", topic_id="id-x"), InvalidTopicName),
    ],
)
def test_records_for_what_is_not_there_are_refused(file: StagedFile, error: type[LakelogError]) -> None:
    Driven().refuse(transact(None, file), error, "topic")


def test_a_transaction_of_nothing_is_refused() -> None:
    Driven().refuse(transact(None), InvalidRecord, "neither records nor offsets")


def test_a_repeat_changes_nothing_and_another_content_is_refused() -> None:
    driven = Driven(transact(None, staged(), key="k"))
    assert driven.happen(transact(None, staged("b"), key="k")) == []
    assert driven.group.transactions.number == 1
    driven.refuse(transact(None, staged(), key="k", digest="e"), RetryKeyReused, "another content")


def test_a_repeat_is_known_though_it_could_not_be_done_now() -> None:
    driven = member()
    asked = transact("m", staged(), offsets={IN0: 1}, generation=driven.group.member("m").epoch, key="k")
    driven.happen(asked, Join("n", MANUAL), Subscribe("n", frozenset({"in"})), TopicsChanged({}))
    assert driven.happen(asked) == []


def test_keys_are_forgotten_after_a_day_but_for_the_newest() -> None:
    driven = Driven()
    for number in range(3):
        driven.happen(transact(None, offsets={IN0: 1}, key=f"k{number}", at_ms=AT_MS + number))
    assert driven.group.transactions.expiry_ms == AT_MS + RETRY_RETENTION_MS
    assert driven.happen(Tick(0)) == []
    assert driven.happen(Tick(AT_MS + RETRY_RETENTION_MS)) == [(RetryKey("g", "k0"), None)]
    driven.happen(Tick(AT_MS + 9 * RETRY_RETENTION_MS))
    assert [*driven.group.transactions.retries] == ["k2"]
    assert driven.group.transactions.expiry_ms is None


def test_a_group_that_remembers_too_many_keys_asks_to_forget() -> None:
    known = TransactionState()
    for key in "ab":
        known, _ = begin(known, "g", transact(None, offsets={IN0: 1}, key=key), retry_keys_max=2)
    with pytest.raises(Conflict, match="forget"):
        begin(known, "g", transact(None, offsets={IN0: 1}, key="c"), retry_keys_max=2)
    event = transact(None, offsets={IN0: 1}, key="c", forget=("a",))
    known, _ = begin(known, "g", event, retry_keys_max=2)
    assert [*known.retries] == ["b", "c"]


def test_numbers_go_on_with_another_producer_where_epochs_are_used_up() -> None:
    records: Records = [(TransactionsKey("g"), TransactionsValue(PRODUCER, PRODUCER_EPOCH_MAX - 1))]
    driven = Driven()
    driven.group = restore(records, 0)["g"]
    driven.happen(TopicsChanged(TOPICS))
    for producer_id in range(PRODUCER + 1, PRODUCER + 4):
        driven.happen(transact(None, staged(), producer_id=producer_id))
    made = [(i.producer_id, i.epoch) for i in driven.group.transactions.pending.values()]
    assert made == [(PRODUCER, PRODUCER_EPOCH_MAX), (PRODUCER + 2, 0), (PRODUCER + 2, 1)]
    known = driven.group.transactions
    assert known.newest_epoch(PRODUCER + 2) == 1
    assert known.newest_epoch(PRODUCER) == PRODUCER_EPOCH_MAX


def test_a_group_of_an_older_root_gets_a_producer_that_no_client_can_name() -> None:
    old = PRODUCER_ID_MAX
    records: Records = [
        (TransactionsKey("g"), TransactionsValue(old, 5)),
        (IntentKey("g", 5), Intent(old, 5, (staged(),))),
    ]
    driven = Driven()
    driven.group = restore(records, 0)["g"]
    driven.happen(TopicsChanged(TOPICS))
    for producer_id in range(PRODUCER, PRODUCER + 3):
        driven.happen(transact(None, staged(), producer_id=producer_id))
    made = [(i.producer_id, i.epoch) for i in driven.group.transactions.pending.values()]
    assert made == [(old, 5), (PRODUCER, 6), (PRODUCER, 7), (PRODUCER, 8)]
    assert driven.group.transactions.newest_epoch(old) >= 5


def test_what_was_given_up_is_an_error_to_every_repeat() -> None:
    driven = Driven(transact(None, staged(), key="k"))
    assert driven.group.transactions.find_retry("k", "d") is not None
    driven.happen(Applied(1, (), lost=True))
    driven.refuse(transact(None, staged(), key="k"), TransactionLost, "transaction 1, of the retry key 'k'")
    driven.refuse(transact(None, staged(), key="k", digest="e"), RetryKeyReused, "another content")
    assert restore(driven.records, 0)["g"].transactions == driven.group.transactions


def test_a_group_is_deleted_with_its_transactions_once_they_are_applied() -> None:
    driven = Driven(transact(None, staged(), key="k"))
    driven.refuse(Delete(force=True), Retriable, "are being applied")
    driven.happen(Applied(1, ()))
    records = driven.happen(Delete())
    assert {(TransactionsKey("g"), None), (RetryKey("g", "k"), None)} <= {*records}
    assert not driven.group.exists
    driven.happen(transact(None, staged(), producer_id=PRODUCER + 1))
    assert driven.group.transactions.producer_id == PRODUCER + 1


def test_the_records_are_read_as_they_were_written() -> None:
    driven = Driven(transact(None, staged(), key="k"), Applied(1, (AppendedRange("out", 0, 2),)))
    for key, value in driven.records:
        assert decode(encode(key, value), "") == (key, value)
