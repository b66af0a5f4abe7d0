"""ingest/buffer.py: room in all, a topic's share of it, and that all of it comes back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.buffer import Buffer
from log_tables.errors import BufferFull


def test_room_is_held_until_the_end_of_the_request() -> None:
    buffer = Buffer(100)
    with buffer.room("t") as room:
        room.grow(30)
        room.grow(20)
        assert buffer.used == 30
        room.grow(40)
        assert buffer.used == 40
    assert buffer.used == 0


def test_a_full_buffer_names_what_it_holds_and_says_when_to_come_again() -> None:
    buffer = Buffer(100)
    with buffer.room("a") as first, buffer.room("b") as second:
        first.grow(70)
        with pytest.raises(BufferFull, match="holds 70 of 100 bytes, 0 of topic 'b'") as caught:
            second.grow(31)
        assert caught.value.details["retry_after_s"] == 1
        second.grow(30)
        assert buffer.used == 100


def test_a_topic_takes_at_most_half_unless_it_is_one_request() -> None:
    buffer = Buffer(100)
    with buffer.room("t") as alone:
        alone.grow(40)
        alone.grow(90)
    with buffer.room("t") as first, buffer.room("t") as second, buffer.room("other") as other:
        first.grow(30)
        second.grow(20)
        with pytest.raises(BufferFull, match="50 of topic 't'"):
            second.grow(21)
        other.grow(50)
    assert buffer.used == 0


def test_detached_room_outlives_the_request() -> None:
    buffer = Buffer(100)
    with buffer.room("t") as room:
        room.grow(60)
        kept = room.detach()
    assert buffer.used == 60
    with kept:
        pass
    assert buffer.used == 0


def test_room_that_was_parted_is_taken_back() -> None:
    buffer = Buffer(100)
    with buffer.room("t") as room:
        room.grow(60)
        part = room.part(50)
        room.take_back(part.part(20))
        assert (room.size_bytes, part.size_bytes, buffer.used) == (30, 30, 60)
        part.settle(0)
        assert buffer.used == 30
    assert buffer.used == 0


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 60), max_size=3)), max_size=6),
    st.integers(1, 100),
)
def test_never_more_than_the_limit_and_all_of_it_comes_back(
    requests: list[tuple[str, list[int]]], limit: int
) -> None:
    buffer, held = Buffer(limit), []
    for topic, sizes in requests:
        room = buffer.room(topic)
        held.append(room)
        for size in sizes:
            before = buffer.used
            try:
                room.grow(size)
            except BufferFull:
                assert buffer.used == before
            assert buffer.used == sum(each.size_bytes for each in held) <= limit
    for room in held:
        with room:
            pass
    assert buffer.used == 0


def test_room_is_settled_to_what_is_there_and_each_request_takes_some_of_its_own() -> None:
    buffer = Buffer(100, request_bytes=10)
    with buffer.room("a") as room, buffer.room("b") as other:
        assert buffer.used == 0, "one that has sent nothing takes nothing"
        room.settle(50)
        assert buffer.used == 60
        room.settle(20)
        assert (room.size_bytes, buffer.used) == (20, 30)
        with room.more(30), room.more(10):
            assert buffer.used == 70
            with pytest.raises(BufferFull):
                other.settle(21)
            assert buffer.used == 70
        other.settle(21)
        assert buffer.used == 30 + 31
        kept = room.detach()
    assert buffer.used == 30
    with kept:
        assert (kept.size_bytes, room.size_bytes) == (20, 0)
    assert buffer.used == 0
