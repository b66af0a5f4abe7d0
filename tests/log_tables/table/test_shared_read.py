"""A read that threads share: it serves all that came before it began, and none that came later."""

import threading
from concurrent.futures import ThreadPoolExecutor

from log_tables.table.shared_read import SharedRead
from tests.kit.support import wait_until


def test_nobody_gets_the_result_of_a_read_that_began_before_they_came() -> None:
    shared, reading, go_on = SharedRead(), threading.Event(), threading.Event()
    found: list[bool] = []

    def read() -> bool:
        reading.set()
        assert go_on.wait(60)
        found.append(len(found) > 0)
        return found[-1]

    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(shared.share, read)
        assert reading.wait(60)
        came = threading.Semaphore(0)

        def late() -> bool:
            came.release()
            return shared.share(read)

        others = [pool.submit(late) for _ in range(3)]
        assert all(came.acquire(timeout=60) for _ in others)
        go_on.set()
        assert first.result() is False
        assert [other.result() for other in others] == [True] * 3
    assert len(found) >= 2


def test_a_read_counts_only_for_those_that_came_before_it_began() -> None:
    shared = SharedRead()
    before = shared.begun
    assert not shared.is_since(before)
    assert shared.read(lambda: "found") == "found"
    assert shared.is_since(before)
    assert not shared.is_since(shared.begun)


def test_a_read_that_fails_serves_nobody_and_the_next_caller_reads_again() -> None:
    shared, reads = SharedRead(), 0

    def fail_once() -> bool:
        nonlocal reads
        reads += 1
        if reads == 1:
            raise OSError("on purpose")
        return True

    came = shared.begun
    with ThreadPoolExecutor(1) as pool:
        failed = pool.submit(shared.share, fail_once)
        wait_until(failed.done, "the first has read")
    assert isinstance(failed.exception(), OSError)
    assert not shared.is_since(came)
    assert shared.share(fail_once)
