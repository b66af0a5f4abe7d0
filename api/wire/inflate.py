"""Compressed bytes, unpacked in steps: each step is told before its memory is taken, and the end is bounded.

A few bytes may stand for gigabytes.
"""

import pyarrow as pa

from api.wire.room import Reserve
from log_tables.limits import KIB, MIB

_STEP_MIN_BYTES = 4 * KIB
_STEP_MAX_BYTES = 1 * MIB
_EXPECTED_RATIO = 8


def inflate_stream(packed: bytes | memoryview, codec: str, most_bytes: int, hold: Reserve) -> bytes | None:
    """`packed` unpacked by `codec`, one of Arrow's; None if that is more than `most_bytes`.

    Raises OSError or ArrowException if it is not whole, and what `hold` raises.
    """
    parts: list[bytearray] = []
    part = bytearray()
    taken, step = 0, _step(_EXPECTED_RATIO * len(packed))
    try:
        with pa.CompressedInputStream(pa.BufferReader(packed), codec) as stream:
            while True:
                step = min(step, most_bytes + 1 - taken)
                hold(2 * (taken + step))  # the parts and all of them together, or a window of the codec
                part = bytearray(step)  # not stream.read(), which leaks a step where the stream is not whole
                size = stream.readinto(part)
                del part[size:]
                taken += size
                if taken > most_bytes:
                    return None
                if part:
                    parts.append(part)
                if size < step:
                    return b"".join(parts)
                step = _step(taken)
    finally:
        parts.clear()  # an error would keep them, with this frame, until all garbage is looked for
        part = bytearray()


def _step(wanted_bytes: int) -> int:
    return min(max(wanted_bytes, _STEP_MIN_BYTES), _STEP_MAX_BYTES)
