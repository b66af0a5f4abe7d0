"""Two calls at once."""

import threading
from collections.abc import Callable

import pytest

from log_tables.store.file import CallWorker
from tests.kit.support import WAIT_S


def raising(error: BaseException) -> Callable[[], None]:
    def call() -> None:
        raise error

    return call


def nothing() -> None:
    return


def test_two_calls_are_made_at_once() -> None:
    meeting = threading.Barrier(2, timeout=WAIT_S)

    def meet() -> None:
        meeting.wait()

    CallWorker().both(meet, meet)
    assert not meeting.broken


def test_who_finds_the_worker_busy_makes_both_calls_in_turn() -> None:
    worker, here = CallWorker(), threading.current_thread()
    made: list[threading.Thread] = []

    def note() -> None:
        made.append(threading.current_thread())

    worker.both(lambda: worker.both(note, note), nothing)
    assert made[0] is made[1]
    made.clear()
    worker.both(nothing, lambda: worker.both(note, note))
    assert made == [here, here]


@pytest.mark.parametrize("error", [OSError("bad"), KeyboardInterrupt()])
def test_what_either_call_raises_is_raised_when_both_have_returned(error: BaseException) -> None:
    worker = CallWorker()
    done: list[str] = []
    for one, other in (
        (raising(error), lambda: done.append("other")),
        (lambda: done.append("one"), raising(error)),
    ):
        with pytest.raises(type(error)):
            worker.both(one, other)
    assert done == ["other", "one"]
    worker.both(nothing, nothing)  # it goes on


def test_without_a_thread_left_both_calls_are_made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    made: list[str] = []
    worker = CallWorker()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        worker.both(lambda: made.append("one"), lambda: made.append("other"))
    assert made == ["one", "other"]
    worker.both(nothing, nothing)
