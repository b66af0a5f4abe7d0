"""Requests to classic groups that are held, each with a number, by which its answer finds it."""

import asyncio
from itertools import count

from coordinator.groups.classic.events import Answer
from log_tables.errors import LakelogError, NotLeader


class PendingAnswers:
    """Answers of one shard that are held back. Used on the event loop."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Answer]] = {}

    def begin(self) -> tuple[int, "asyncio.Future[Answer]"]:
        """The number of a new request, and its answer to come."""
        number = next(self._numbers)
        coming = self._waiting[number] = asyncio.get_running_loop().create_future()
        coming.add_done_callback(lambda _: self._waiting.pop(number, None))
        return number, coming

    def answer(self, number: int, answer: Answer, after: "asyncio.Future[int | None] | None") -> None:
        """Answer a request when what it rests on, `after`, is durable; nobody hears of it otherwise."""
        if after is None or after.done():
            self._end(number, _unless_failed(after, answer))
        else:
            after.add_done_callback(lambda done: self._end(number, _unless_failed(done, answer)))

    def fail_all(self) -> None:
        """End all of them: another gateway coordinates the groups."""
        for number in [*self._waiting]:
            self._end(number, no_coordinator())

    def _end(self, number: int, answer: Answer) -> None:
        coming = self._waiting.get(number)
        if coming is None or coming.done():
            return  # its client is gone
        if isinstance(answer, LakelogError):
            coming.set_exception(answer)
        else:
            coming.set_result(answer)


def no_coordinator() -> NotLeader:
    """The error of a request whose group is another gateway's now."""
    return NotLeader("this gateway no longer coordinates the group; look for its coordinator")


def _unless_failed(done: "asyncio.Future[int | None] | None", answer: Answer) -> Answer:
    if done is not None and (done.cancelled() or done.exception() is not None):
        return no_coordinator()
    return answer
