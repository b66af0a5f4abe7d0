"""Compressed bytes in steps: what comes out, what is refused, and how much memory is asked for before."""

import gzip
import tracemalloc

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.wire.room import inflate_stream
from tests.kit.packing import PACKERS

MIB = 1 << 20
CODECS = st.sampled_from(sorted(PACKERS))


def inflated(packed: bytes, codec: str, most: int = MIB) -> tuple[bytes | None, list[int]]:
    """The unpacked bytes of `packed`, and the sizes that were reserved while unpacking."""
    asked: list[int] = []
    return inflate_stream(packed, codec, most, asked.append), asked


@given(CODECS, st.lists(st.binary(max_size=3_000).map(lambda part: part * 7), max_size=4))
def test_what_was_packed_comes_out_whatever_pieces_it_was_packed_in(codec: str, parts: list[bytes]) -> None:
    packed = b"".join(map(PACKERS[codec], parts))  # streams of either codec stand one after the other
    found, asked = inflated(packed, codec)
    assert found == b"".join(parts)
    assert asked == sorted(asked)
    assert asked[-1] >= 2 * len(found)


@given(CODECS, st.binary(min_size=1, max_size=2_000), st.data())
def test_half_a_stream_is_refused_wherever_it_ends(codec: str, content: bytes, data: st.DataObject) -> None:
    packed = PACKERS[codec](content * 9)
    end = data.draw(st.integers(1, len(packed) - 1))
    with pytest.raises((OSError, pa.ArrowException)):
        inflated(packed[:end], codec)


@given(CODECS, st.binary(min_size=1, max_size=200))
def test_what_follows_on_a_stream_is_not_left_out(codec: str, rest: bytes) -> None:
    content = b"content" * 900
    try:
        found, _ = inflated(PACKERS[codec](content) + rest, codec)
    except (OSError, pa.ArrowException):
        return
    assert found == content, "an empty stream, or a frame that says to skip it"


def test_zeros_after_the_end_of_gzip_are_left_out_and_nothing_else() -> None:
    members = gzip.compress(b"a") + bytes(700) + gzip.compress(b"b") + bytes(9_000)
    assert inflated(members, "gzip")[0] == b"ab"
    with pytest.raises(OSError, match="zlib inflate failed"):
        inflated(members + b"x", "gzip")


@pytest.mark.parametrize("codec", sorted(PACKERS))
@pytest.mark.parametrize("more", [0, 1])
def test_as_much_as_is_allowed_comes_out_and_no_byte_more(codec: str, more: int) -> None:
    content = bytes(200_000 + more)
    found, asked = inflated(PACKERS[codec](content), codec, 200_000)
    assert found == (content if more == 0 else None)
    assert max(asked) <= 2 * 200_001


@pytest.mark.parametrize("codec", sorted(PACKERS))
def test_a_bomb_takes_no_more_memory_than_it_has_asked_for(codec: str) -> None:
    bomb = PACKERS[codec](bytes(256 * MIB))
    assert len(bomb) < MIB
    tracemalloc.start()
    try:
        found, asked = inflated(bomb, codec, 4 * MIB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found is None
    assert peak < max(asked) <= 2 * (4 * MIB + 1)


@pytest.mark.parametrize("codec", sorted(PACKERS))
def test_half_a_stream_leaves_no_memory_behind(codec: str) -> None:
    half = PACKERS[codec](bytes(8 * MIB))[:-1]
    tracemalloc.start()
    try:
        for _ in range(5):
            with pytest.raises((OSError, pa.ArrowException)):
                inflated(half, codec, 16 * MIB)
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left < MIB


@pytest.mark.parametrize("codec", sorted(PACKERS))
def test_the_error_of_half_a_stream_does_not_keep_what_was_unpacked(codec: str) -> None:
    half = PACKERS[codec](bytes(8 * MIB))[:-1]
    tracemalloc.start()
    try:
        with pytest.raises((OSError, pa.ArrowException)) as kept:
            inflated(half, codec, 16 * MIB)
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept.value is not None
    assert left < MIB


def test_a_bomb_in_a_bomb_is_unpacked_once() -> None:
    inner = gzip.compress(bytes(MIB))
    assert inflated(gzip.compress(inner), "gzip")[0] == inner


def test_who_has_no_room_is_not_unpacked_for() -> None:
    def refuse(_: int) -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        inflate_stream(PACKERS["gzip"](b"x"), "gzip", MIB, refuse)
