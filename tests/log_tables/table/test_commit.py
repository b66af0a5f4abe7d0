"""A commit is put once, whatever the store answers; and what is written is what Delta reads."""

import json

import pytest

from log_tables.clock import ManualClock
from log_tables.errors import CorruptLog, OutcomeUnknown, PutRefused, StoreUnavailable
from log_tables.layout import commit_path
from log_tables.limits import PUT_RETRY_LIMIT_S
from log_tables.store.store import Store, open_store
from log_tables.table.commit import (
    Add,
    Commit,
    CommitInfo,
    Format,
    Metadata,
    ProducedBatch,
    Protocol,
    Remove,
    Txn,
    decode,
    encode,
    put_commit,
    read_commit,
)
from log_tables.testing import (
    Failure,
    Fault,
    FaultyStore,
    answer_lost,
    nothing_landed,
    refused,
    repeated,
    unavailable,
)

TABLE = "topics/t/partition=0"
COMMITS = {"put_if_absent"}
MINE = Commit(CommitInfo(batchId="mine", engineInfo="lakelog/test"), txns=(Txn("lakelog.log", 1),))
THEIRS = Commit(CommitInfo(batchId="theirs", engineInfo="lakelog/test"), txns=(Txn("lakelog.leader", 2),))

FULL = Commit(
    CommitInfo(
        5,
        "WRITE",
        {"mode": "Append"},
        True,
        "lakelog/test",
        "b",
        3,
        "http://a",
        (ProducedBatch(1, 2, 3, 4, 5),),
    ),
    (Txn("lakelog.log", 9), Txn("lakelog.producer.1.seq", 2**33 + 1, 77)),
    (Add("a.parquet", 10, 20, True, '{"numRecords":1}', {"lakelog.bytes": "5"}),),
    (Remove("r.parquet", False, 30, 40, True, {}),),
    Protocol(1, 2),
    Metadata("id", "{}", Format(), (), {"delta.checkpointInterval": "100"}, 50),
)


@pytest.fixture
def inner() -> Store:
    return open_store("memory://")


def test_a_commit_is_read_back_as_it_was_written() -> None:
    assert decode(encode(FULL), "x") == FULL
    assert decode(encode(Commit(CommitInfo())), "x") == Commit(CommitInfo())


def test_each_line_of_a_commit_is_one_action_and_the_first_says_who_made_it() -> None:
    lines = [json.loads(line) for line in encode(FULL).splitlines()]
    assert [list(line) for line in lines] == [
        ["commitInfo"], ["protocol"], ["metaData"], ["txn"], ["txn"], ["remove"], ["add"],
    ]  # fmt: skip
    assert lines[0]["commitInfo"]["producers"] == [[1, 2, 3, 4, 5]]
    assert lines[3] == {"txn": {"appId": "lakelog.log", "version": 9}}
    assert lines[4]["txn"]["lastUpdated"] == 77
    assert lines[6]["add"]["partitionValues"] == {}


def test_actions_that_are_not_known_are_passed_over() -> None:
    data = b'{"cdc":{"path":"x"}}\n{"domainMetadata":{"domain":"d"}}\n\n{"txn":{"appId":"a","version":1}}\n'
    assert decode(data, "x") == Commit(CommitInfo(), txns=(Txn("a", 1),))


@pytest.mark.parametrize(
    "data",
    [
        b"not json",
        b'{"txn":{"appId":"a"}}',
        b'{"add":{"path":1}}',
        b'{"txn":{"appId":"a","version":%d}}' % (2**63),
        b'{"txn":{"appId":"a","version":1,"lastUpdated":%d}}' % -(2**63),
        b'{"add":{"path":"a","size":%d,"modificationTime":1,"dataChange":true}}' % (2**63),
        b'{"remove":{"path":"a","dataChange":true,"deletionTimestamp":%d}}' % (2**63),
        b'{"metaData":{"id":"a","schemaString":"{}","createdTime":%d}}' % (2**63),
        encode(FULL)[:-10],
        b"\xff\xfe",
        b"[]",
        b"7",
        b"",
        b"\n",
    ],
)
def test_a_commit_that_cannot_be_read_is_named_by_its_path_under_the_root(data: bytes) -> None:
    with pytest.raises(
        CorruptLog, match=r"topics/t/partition=0/_delta_log/00000000000000000007\.json"
    ) as raised:
        decode(data, commit_path(TABLE, 7))
    assert raised.value.message.endswith("restore the file")


def test_a_version_that_is_not_there_is_none(inner: Store) -> None:
    assert read_commit(inner, TABLE, 0) is None


def test_the_first_to_put_a_version_has_it_and_the_other_learns_whose_it_is(
    inner: Store, clock: ManualClock
) -> None:
    assert put_commit(inner, TABLE, 1, THEIRS, clock) is None
    assert put_commit(inner, TABLE, 1, MINE, clock) == THEIRS
    assert read_commit(inner, TABLE, 1) == THEIRS


@pytest.mark.parametrize("failure", [answer_lost, repeated])
def test_a_put_whose_answer_was_lost_is_recognised_as_won(
    inner: Store, clock: ManualClock, failure: Failure
) -> None:
    store = FaultyStore(inner, [Fault(1, failure, COMMITS)])
    assert put_commit(store, TABLE, 1, MINE, clock) is None
    assert store.writes() == 1
    assert read_commit(inner, TABLE, 1) == MINE


@pytest.mark.parametrize("failure", [unavailable, nothing_landed])
def test_a_put_that_did_not_land_is_repeated_as_it_was(
    inner: Store, clock: ManualClock, failure: Failure
) -> None:
    store = FaultyStore(inner, [Fault(n, failure, COMMITS) for n in (1, 2, 3)])
    assert put_commit(store, TABLE, 1, MINE, clock) is None
    assert store.writes() == 4
    assert inner.get(commit_path(TABLE, 1)) == encode(MINE)


@pytest.mark.parametrize("failure", [unavailable, nothing_landed])
def test_a_version_that_another_takes_between_two_puts_is_returned(
    inner: Store, clock: ManualClock, failure: Failure
) -> None:
    def another_is_first(perform: object) -> object:
        put_commit(inner, TABLE, 1, THEIRS, clock)
        return failure(lambda: None)

    store = FaultyStore(inner, [Fault(1, another_is_first, COMMITS)])
    assert put_commit(store, TABLE, 1, MINE, clock) == THEIRS


def test_looking_back_may_fail_too(inner: Store, clock: ManualClock) -> None:
    faults = [Fault(1, answer_lost, COMMITS), Fault(1, unavailable, {"get"}), Fault(2, unavailable, {"get"})]
    assert put_commit(FaultyStore(inner, faults), TABLE, 1, MINE, clock) is None
    assert read_commit(inner, TABLE, 1) == MINE


@pytest.mark.parametrize("failure", [unavailable, nothing_landed])
def test_an_outcome_that_stays_unknown_is_an_error_after_a_limit(
    inner: Store, clock: ManualClock, failure: Failure
) -> None:
    began = clock.monotonic()
    store = FaultyStore(inner, [Fault(n, failure, COMMITS) for n in range(1, 100)])
    with pytest.raises(OutcomeUnknown, match=r"version 1 .* with an idempotent producer"):
        put_commit(store, TABLE, 1, MINE, clock)
    assert PUT_RETRY_LIMIT_S <= clock.monotonic() - began < 3 * PUT_RETRY_LIMIT_S
    assert {call.path for call in store.calls} == {commit_path(TABLE, 1)}


def test_a_put_that_was_refused_certainly_did_not_happen(inner: Store, clock: ManualClock) -> None:
    with pytest.raises(PutRefused):
        put_commit(FaultyStore(inner, [Fault(1, refused, COMMITS)]), TABLE, 1, MINE, clock)
    assert read_commit(inner, TABLE, 1) is None


def test_a_refusal_after_an_unknown_outcome_settles_nothing(inner: Store, clock: ManualClock) -> None:
    faults = [Fault(1, unavailable, COMMITS), *(Fault(n, refused, COMMITS) for n in range(2, 100))]
    with pytest.raises(OutcomeUnknown):
        put_commit(FaultyStore(inner, faults), TABLE, 1, MINE, clock)
    once = [Fault(1, unavailable, COMMITS), Fault(2, refused, COMMITS)]
    assert put_commit(FaultyStore(inner, once), TABLE, 1, MINE, clock) is None


def test_a_commit_that_cannot_be_read_back_is_corrupt(inner: Store, clock: ManualClock) -> None:
    inner.put(commit_path(TABLE, 1), b"broken")
    with pytest.raises(CorruptLog):
        put_commit(inner, TABLE, 1, MINE, clock)


def test_a_store_that_does_not_answer_a_read_is_an_error(inner: Store) -> None:
    with pytest.raises(StoreUnavailable):
        read_commit(FaultyStore(inner, [Fault(1, unavailable, {"get"})]), TABLE, 1)
