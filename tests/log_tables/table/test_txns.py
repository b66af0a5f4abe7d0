"""Txns are as a dict of them would be, however many are a producer's, and in a checkpoint."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_tables.layout import producer_end_txn, producer_of_txn, producer_sequence_txn
from log_tables.limits import (
    BRIEF_PRODUCER_ID_MIN,
    BRIEF_PRODUCER_MAX_MS,
    KEPT_PRODUCER_ID_MAX,
    PRODUCER_ID_MAX,
)
from log_tables.table import txns as module
from log_tables.table.commit import Txn
from log_tables.table.txns import ProducerState, Txns

IDS = st.sampled_from([0, 7, BRIEF_PRODUCER_ID_MIN - 1, BRIEF_PRODUCER_ID_MIN, PRODUCER_ID_MAX, 2**63 - 1])
NAMES = (
    st.builds(producer_sequence_txn, IDS)
    | st.builds(producer_end_txn, IDS)
    | st.sampled_from(
        [
            "lakelog.log",
            "another's",
            "",
            "lakelog.producer.007.seq",
            f"lakelog.producer.{2**63}.seq",
            "lakelog.producer.9999999999999999999.end",
            "lakelog.producer.7.seq.",
            "lakelog.producer.٧.seq",
            "lakelog.producer.7.seq\n",
        ]
    )
)
INT64 = st.integers(-(2**63) + 1, 2**63 - 1)
TXNS = st.builds(Txn, NAMES, INT64, st.none() | INT64)
MANY = module._RECENT_MAX + 1


def many(first: int, version: int) -> list[Txn]:
    return [Txn(producer_sequence_txn(number), version, 5) for number in range(first, first + MANY)]


def through_columns(txns: Txns) -> Txns:
    return Txns.of_columns(*txns.columns())


@given(st.lists(st.lists(TXNS, max_size=5), max_size=5))
def test_the_newest_of_each_application_counts(commits: list[list[Txn]]) -> None:
    txns, expected = Txns(), dict[str, Txn]()
    for commit in commits:
        before, known = txns, dict(expected)
        txns = txns.after(commit)
        expected |= {txn.app_id: txn for txn in commit}
        assert before == known
    assert txns == expected
    assert {*txns} == {*expected}
    assert len(txns) == len(expected)
    assert through_columns(txns) == expected
    assert {txn.app_id: txn for txn in txns.lasting()} == {
        app_id: txn for app_id, txn in expected.items() if txn.last_updated is None
    }
    assert all(app_id in txns for app_id in expected)
    assert "nobody's" not in txns


@pytest.mark.parametrize("first", [0, MANY // 2, MANY], ids=["the same", "some the same", "others"])
def test_many_producers_are_as_few(first: int) -> None:
    old, new = many(0, 1), many(first, 2)
    txns = Txns([Txn("lakelog.log", 9)]).after(old).after(new)
    expected = {txn.app_id: txn for txn in [Txn("lakelog.log", 9), *old, *new]}
    assert txns == expected == through_columns(txns)
    assert (len(txns), [*txns].count("lakelog.log")) == (len(expected), 1)
    changed = txns.after([Txn(producer_sequence_txn(first), 3, None)])
    assert changed[producer_sequence_txn(first)] == Txn(producer_sequence_txn(first), 3)
    assert txns[producer_sequence_txn(first)].version == 2


@pytest.mark.parametrize("others", [0, MANY])
def test_a_producer_is_known_by_two_txns(others: int) -> None:
    state = ProducerState(epoch=2**31 - 1, next_sequence=2**31 - 1, end_offset=2**63 - 1, kept=True)
    number = KEPT_PRODUCER_ID_MAX
    both = Txn(producer_sequence_txn(number), state.packed), Txn(producer_end_txn(number), state.end_offset)
    txns = Txns(both).after(many(0, 1)[:others])
    assert txns.producer(number) == state
    assert txns.producer(number - 1) is None
    assert txns.producer(0) is None
    assert txns.producer(-1) is None
    assert txns.producer(2**63) is None
    assert txns.producer_ids() == {number, *range(others)}
    assert Txns(both[:1]).producer(number) is None


@pytest.mark.parametrize("others", [0, MANY])
def test_an_idle_producer_is_forgotten_a_brief_one_sooner_and_a_kept_one_never(others: int) -> None:
    day_ms = 24 * 60 * 60_000
    ids = {"brief": PRODUCER_ID_MAX, "long": BRIEF_PRODUCER_ID_MIN - 1, "kept": KEPT_PRODUCER_ID_MAX}
    txns = Txns([Txn("lakelog.log", 1), Txn("another's", 1, 5)]).after(many(0, 1)[:others])
    txns = txns.after(
        Txn(producer_end_txn(number), 1, None if name == "kept" else 5) for name, number in ids.items()
    )

    def left(now_ms: int) -> set[str]:
        return {*txns.pruned(now_ms, day_ms)} - {txn.app_id for txn in many(0, 1)}

    of = {name: producer_end_txn(number) for name, number in ids.items()}
    assert left(4 + BRIEF_PRODUCER_MAX_MS) == {"lakelog.log", "another's", *of.values()}
    assert left(5 + BRIEF_PRODUCER_MAX_MS) == {"lakelog.log", "another's", of["long"], of["kept"]}
    assert left(5 + day_ms) == {"lakelog.log", of["kept"]}
    assert len(txns.pruned(4 + day_ms, day_ms)) == 4 + others


def test_without_takes_one_out() -> None:
    txns = Txns([Txn("lakelog.log", 1), Txn("lakelog.tiered", 2)])
    assert {*txns.without("lakelog.tiered")} == {"lakelog.log"}
    assert txns.without("not there") == txns


def test_the_regular_expressions_of_python_and_arrow_agree() -> None:
    names = ["lakelog.producer.7.seq", "lakelog.producer.07.seq", "xlakelog.producer.7.end", "lakelog.log"]
    txns = Txns.of_columns(
        pa.array(names), pa.array([1] * len(names)), pa.array([None] * len(names), pa.int64())
    )
    assert [producer_of_txn(name) is not None for name in names] == [True, False, False, False]
    assert txns.producer_ids() == {7}
    assert {*txns} == {*names}


@pytest.mark.parametrize(("names", "versions"), [([None], [1]), (["lakelog.log"], [None])])
def test_a_txn_without_a_name_or_a_version_is_refused(
    names: list[str | None], versions: list[int | None]
) -> None:
    with pytest.raises(ValueError, match="no appId, or no version"):
        Txns.of_columns(
            pa.array(names, pa.string()), pa.array(versions, pa.int64()), pa.array([None], pa.int64())
        )
