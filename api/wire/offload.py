"""Where the work of a request is done: a little on the event loop, a lot in a thread."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from api.media import Format
from ingest.loop_share import to_its_end
from log_tables.arrow_bounds import has_more

INLINE_MAX_BYTES = 1024 * 1024
"""A larger body is decoded in a thread, and so is one that decompresses to more, or holds more than the
bounds below.
"""

INLINE_MAX_VALUES = 8_000
"""Fields, records and arrays of JSON that the event loop decodes at once: that takes about 7 ms."""

INLINE_MAX_ROWS = 1_000
"""Rows of an answer or of an Arrow stream that the event loop handles at once: about 5 ms."""

INLINE_MAX_JUDGED = 100
INLINE_MAX_JUDGED_BYTES = 64 * 1024
"""Values, and their bytes, that the event loop compares with declared columns: mostly 1 µs for each, but up
to 50 µs where one is written in an unusual way.
"""

INLINE_MAX_STRICT_BYTES = 16 * 1024
"""A body without records that the event loop checks field by field: about 4 ms."""

INLINE_MAX_HEAD_BYTES = 32 * 1024
"""Bytes of an Arrow stream besides its columns: each batch has a few hundred, and metadata may be JSON."""

COMPUTING_THREADS = 8
"""Requests that are decoded, unpacked or encoded at once, in threads of their own: a store that hangs holds
all those that read it, and an append waits for none of them."""

_computing = ThreadPoolExecutor(COMPUTING_THREADS, thread_name_prefix="compute")

Result = TypeVar("Result")


def is_large(body: bytes, form: Format) -> bool:
    """Whether decoding `body` is a lot of work.

    A few hundred bytes of Arrow may stand for a million records, and a few thousand may decompress to many
    megabytes.
    """
    if form is not Format.ARROW:
        return is_large_json(body)
    return len(body) > INLINE_MAX_BYTES or has_more(
        body, INLINE_MAX_ROWS, INLINE_MAX_BYTES, INLINE_MAX_HEAD_BYTES
    )


def is_large_json(body: bytes) -> bool:
    """Whether `body` is long, or holds many values: a record can be as short as three bytes, `{},`.

    Counting is much faster than waiting for a thread. Characters inside strings are counted as well.
    """
    if len(body) <= INLINE_MAX_VALUES:
        return False
    if len(body) > INLINE_MAX_BYTES:
        return True
    return body.count(b",") + body.count(b"{") + body.count(b"[") > INLINE_MAX_VALUES


async def decoded(body: bytes, form: Format, decode: Callable[[bytes], Result]) -> Result:
    """The result of `decode` for `body`, in a thread where that is a lot of work (`is_large`)."""
    return await maybe_in_thread(is_large(body, form), partial(decode, body))


async def maybe_in_thread(large: bool, work: Callable[[], Result]) -> Result:
    """The result of `work`, which waits for nothing; it is `computed` if it is `large`, so that it blocks no
    other request.
    """
    return await computed(work) if large else work()


async def computed(work: Callable[[], Result]) -> Result:
    """Let a thread do `work`, which needs a processor and no store, to its end (`to_its_end`)."""
    return await to_its_end(work, pool=_computing)
