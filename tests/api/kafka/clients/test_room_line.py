"""Batches that wait for room: where only their own frames are in the way, the oldest gets in."""

import pytest

from api.kafka.clients.door import GIVE_WAY_S, RoomLine
from ingest.buffer import Buffer
from log_tables.clock import ManualClock

MOMENT_MS = int(GIVE_WAY_S * 500)


@pytest.fixture
def buffer() -> Buffer:
    buffer = Buffer(100)
    buffer.reserve("frames", 80)
    return buffer


def test_all_but_the_oldest_give_way_where_nothing_moves(buffer: Buffer, clock: ManualClock) -> None:
    line = RoomLine(buffer, clock)
    with line.place() as old, line.place() as young, line.place() as younger:
        everybody = (old, young, younger)
        assert [each.gives_way() for each in everybody] == [False] * 3
        clock.advance(3 * MOMENT_MS)
        assert [each.gives_way() for each in everybody] == [False, True, True]


def test_nobody_gives_way_while_room_is_given_back(buffer: Buffer, clock: ManualClock) -> None:
    line = RoomLine(buffer, clock)
    with line.place() as old, line.place() as young:
        for _ in range(5):
            assert [old.gives_way(), young.gives_way()] == [False, False]
            clock.advance(MOMENT_MS)
            buffer.release("frames", 1)


def test_nobody_gives_way_while_others_get_in(buffer: Buffer, clock: ManualClock) -> None:
    line = RoomLine(buffer, clock)
    with line.place() as old, line.place() as young:
        for _ in range(5):
            assert [old.gives_way(), young.gives_way()] == [False, False]
            clock.advance(MOMENT_MS)
            with line.place() as other:
                assert not other.gives_way()


def test_those_that_find_room_at_once_keep_nobody_waiting(buffer: Buffer, clock: ManualClock) -> None:
    line = RoomLine(buffer, clock)
    with line.place() as old, line.place() as young:
        assert [old.gives_way(), young.gives_way()] == [False, False]
        clock.advance(3 * MOMENT_MS)
        with line.place():
            pass
        assert [old.gives_way(), young.gives_way()] == [False, True]


def test_the_next_oldest_stays_when_the_oldest_is_in(buffer: Buffer, clock: ManualClock) -> None:
    line = RoomLine(buffer, clock)
    with line.place() as young:
        with line.place() as old:
            assert not old.gives_way()
            assert not young.gives_way()
        clock.advance(6 * MOMENT_MS)
        assert not young.gives_way()
