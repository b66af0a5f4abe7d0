"""The preferred leader of each partition: shared evenly, and the same for every gateway that computes it."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from coordinator.brokers.leadership import preferred_leaders

IDS = st.text(st.characters(codec="ascii"), max_size=40)
BROKERS = st.sets(st.integers(1, 2**31), min_size=1, max_size=12).map(lambda found: tuple(sorted(found)))
TOPICS, PARTITIONS = 50, 12


@given(IDS, st.integers(0, 100), BROKERS)
def test_every_broker_has_as_many_give_or_take_one(
    topic: str, partitions: int, brokers: tuple[int, ...]
) -> None:
    chosen = preferred_leaders(topic, partitions, brokers)
    assert len(chosen) == partitions
    load = [chosen.count(broker) for broker in brokers]
    assert sum(load) == partitions
    assert max(load) - min(load) <= 1


@given(IDS, st.integers(0, 100), BROKERS)
def test_everybody_comes_to_the_same_shares(topic: str, partitions: int, brokers: tuple[int, ...]) -> None:
    elsewhere = preferred_leaders.__wrapped__  # what another process works out, which has remembered nothing
    assert preferred_leaders(topic, partitions, brokers) == elsewhere(topic, partitions, brokers)
    assert preferred_leaders(topic, partitions, brokers) == elsewhere(topic, partitions, brokers[::-1])


@given(st.sets(st.integers(1, 1_000), min_size=3, max_size=9), st.data())
def test_few_move_when_one_comes_or_goes(found: set[int], data: st.DataObject) -> None:
    one = data.draw(st.sampled_from(sorted(found)))
    many, fewer = tuple(sorted(found)), tuple(sorted(found - {one}))
    moved = its = 0
    for number in range(TOPICS):
        topic = f"topic-{number}"
        with_it, without = (
            preferred_leaders(topic, PARTITIONS, many),
            preferred_leaders(topic, PARTITIONS, fewer),
        )
        moved += sum(here != there for here, there in zip(with_it, without, strict=True))
        its += with_it.count(one)
    # Its own must; that all have as many moves some of the others, too. At random nearly all would.
    assert its <= moved <= 2.5 * its


def test_the_topics_differ_in_who_has_one_more() -> None:
    first = Counter(preferred_leaders(f"topic-{number}", 1, (1, 2, 3))[0] for number in range(300))
    assert sorted(first) == [1, 2, 3]
    assert min(first.values()) > 50
