"""Offsets that a mirror sets: only in the place of its own, and of what it has seen."""

from collections.abc import Mapping

import pytest

from coordinator.groups.events import Commit, Delete, Leave, OffsetAndMetadata, Reset, TopicState
from log_tables.cluster.group_log import OffsetValue, mirror_member
from log_tables.errors import Conflict, GroupNotEmpty
from log_tables.topic_partition import TopicPartition
from tests.kit.driven_group import T0, T1, TWO, Driven

OTHER = TopicPartition("other", 0)


def from_mirror(
    offsets: Mapping[TopicPartition, int], before: Mapping[TopicPartition, int], mirror: str = "shop"
) -> Reset:
    places = {at: OffsetAndMetadata(offset) for at, offset in offsets.items()}
    return Reset(places, 9, mirror=mirror, before=before)


def test_an_offset_of_a_mirror_says_so_and_is_replaced_by_its_next() -> None:
    driven = Driven()
    driven.happen(from_mirror({T0: 3}, {}))
    assert driven.group.offsets == {T0: OffsetValue(3, "id-t", committed_ms=9, member="/mirror-shop")}
    assert mirror_member("shop") == "/mirror-shop"
    driven.happen(from_mirror({T0: 2, T1: 0}, {T0: 3}))
    assert {at: each.offset for at, each in driven.restored().group.offsets.items()} == {T0: 2, T1: 0}


@pytest.mark.parametrize("seen", [{}, {T0: 2}, {T0: 4}])
def test_a_mirror_replaces_nothing_that_it_has_not_seen(seen: dict[TopicPartition, int]) -> None:
    driven = Driven()
    driven.happen(from_mirror({T0: 3}, {}))
    driven.refuse(from_mirror({T0: 9}, seen), Conflict, "the offset of t-0 of the group .* is 3, and not")
    driven.refuse(from_mirror({T1: 9}, {T1: 1}), Conflict, "is None, and not 1")


def test_a_mirror_changes_no_topic_in_which_the_group_has_committed() -> None:
    driven = Driven({**TWO, OTHER.topic: TopicState("id-o", 1)})
    driven.happen(from_mirror({T0: 3, T1: 3}, {}))
    driven.joined("a").stable()
    driven.refuse(from_mirror({T0: 4}, {T0: 3}), GroupNotEmpty, "has members")
    driven.happen(Commit("a", {T0: OffsetAndMetadata(3)}, 0), Leave("a"))
    driven.refuse(from_mirror({T0: 4}, {T0: 3}), Conflict, "has committed an offset of t-0 here")
    driven.refuse(from_mirror({T1: 4}, {T1: 3}), Conflict, "delete the group here")
    driven.refuse(from_mirror({T0: 4}, {T0: 3}, mirror="other"), Conflict, "so the mirror other changes none")
    driven.happen(from_mirror({OTHER: 4}, {}))
    driven.happen(Delete(), from_mirror({T0: 4}, {}))


def test_a_reset_by_a_person_is_kept() -> None:
    driven = Driven()
    driven.happen(from_mirror({T0: 3}, {}), Reset({T0: OffsetAndMetadata(1)}, 9))
    driven.refuse(from_mirror({T0: 4}, {T0: 1}), Conflict, "has committed an offset of t-0 here")
