"""Clients that write down what they do: producers, a fetcher, members of groups, with nothing but HTTP.

python -m tests.kit.clients TASK FILE URL... runs one (a `Task` as JSON) until it is killed, with a history of
its own in FILE.
"""

import sys
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Struct

from tests.kit.asking import Answer, Gateways
from tests.kit.consumers import JSON
from tests.kit.history import (
    Absent,
    At,
    Commit,
    Doing,
    Fetch,
    History,
    Outcome,
    Part,
    Place,
    Placed,
    Poll,
    Row,
    Rows,
    Span,
    Write,
)

AGAIN_S = 0.1
"""Between two attempts."""

SESSION_MS = 3_000
POLL_MS = 200
BATCH = 3
"""Records in a request."""

NO_MEMBER, NOT_ASSIGNED, NO_TOPIC, NO_PARTITION, OUT_OF_RANGE = 40403, 40913, 40401, 40402, 41601


class Task(Struct, frozen=True):
    """The work of a client: produce to `at`, or fetch from it; or, in `group`, read the topic of `at` and
    commit, or copy it to the partitions `to` by transactions. Tasks of tests/kit/lives_clients.py delete
    topics and records, those of tests/simulation change topics, or send in ways of their own.
    """

    kind: Literal[
        "produce",
        "produce plainly",
        "fetch",
        "read",
        "copy",
        "make again",
        "produce to lives",
        "fetch lives",
        "read lives",
        "truncate",
        "reset",
        "grow",
        "alter",
        "kafka produce",
        "kafka read",
        "produce once",
        "produce conditionally",
        "watch",
        "set",
    ]
    name: str
    at: At
    group: str = ""
    to: tuple[At, ...] = ()


class Client(ABC):
    """Does `step` again and again until `stop` is set. It waits `timeout_s` for an answer."""

    timeout_s: ClassVar[float] = 5

    def __init__(self, task: Task, gateways: Gateways, history: History, stop: threading.Event) -> None:
        self.task, self.gateways, self._history, self._stop = task, gateways, history, stop

    def run(self) -> None:
        while not self._stop.is_set():
            self.step()

    @abstractmethod
    def step(self) -> None: ...

    def _pause(self) -> None:
        self._stop.wait(AGAIN_S)


class Producer(Client):
    """Sends each batch once: without an answer it is unknown."""

    _sent = 0
    _may: tuple[int, ...] = ()
    """The refusals for good that it may meet."""

    def step(self) -> None:
        write = self._batch(None)
        with self._history.doing(write) as doing:
            answer = self._send({})
            settle(doing, answer)
        if not answer.ok:
            self._pause()

    def _batch(self, number: int | None) -> Write:
        self._values = tuple(f"{self.task.name}-{self._sent + index}" for index in range(BATCH))
        self._sent += BATCH
        return Write(self.task.name, (Part(self.task.at, self._values),), number)

    def _send(self, stamp: Mapping[str, str]) -> Answer:
        topic, partition = self.task.at
        body = {"records": [{"value": value} for value in self._values]}
        path = f"/topics/{topic}/partitions/{partition}"
        return self.gateways.ask("POST", path, body, {"Content-Type": JSON, **stamp}, self._may)


class IdempotentProducer(Producer):
    """Repeats each batch until it is acknowledged, wherever a gateway answers."""

    def __init__(self, task: Task, gateways: Gateways, history: History, stop: threading.Event) -> None:
        super().__init__(task, gateways, history, stop)
        self._id = str(int(gateways.clock.random_hex(15), 16))

    def step(self) -> None:
        number = self._sent
        stamp = {"Producer-Id": self._id, "Producer-Epoch": "0", "Producer-Seq": str(number)}
        with self._history.doing(self._batch(number)) as doing:
            while not (answer := self._send(stamp)).ok:
                if self._stop.is_set():
                    return
                self._pause()
            settle(doing, answer)


def settle(doing: Doing, answer: Answer) -> None:
    """Write down what became of a produce request."""
    if answer.ok:
        doing.ok(Placed(tuple(each["offset"] for each in answer.json()["offsets"])))
    elif answer.code in (NO_TOPIC, NO_PARTITION):
        doing.failed(Absent())
    elif answer.outcome is Outcome.FAILED:
        doing.failed()


class Fetcher(Client):
    """Reads a partition from its beginning on; from its log start on, where records were deleted."""

    _offset = 0

    def step(self) -> None:
        topic, partition = self.task.at
        path = f"/topics/{topic}/partitions/{partition}/records?offset={self._offset}&timeout={POLL_MS}"
        with self._history.doing(Fetch(self.task.at, self._offset)) as doing:
            answer = self.gateways.ask("GET", path, may=(OUT_OF_RANGE,))
            if answer.ok:
                self._offset = int(answer.headers["Next-Offset"])
                doing.ok(Rows(self._rows(answer), self._offset))
            elif answer.code == OUT_OF_RANGE:
                doing.failed()
                # Beyond the end where a power cut took what was read: the history checker judges that.
                start, end = (int(answer.json()[name]) for name in ("log_start_offset", "high_watermark"))
                self._offset = start if self._offset < start else end
        if not answer.ok:
            self._pause()

    def _rows(self, answer: Answer) -> tuple[Row, ...]:
        return rows_of(answer)


def rows_of(answer: Answer) -> tuple[Row, ...]:
    return tuple(
        Row(At(each["topic"], each["partition"]), each["offset"], each["value"]) for each in answer.json()
    )


class Member(Client):
    """Reads its share of a topic and commits each poll.

    After an answer that did not come, or a record that it should have been given before, it begins anew under
    a new name, where the group has committed: a place moves on with an answer that is lost.
    """

    _lives = 0
    _path = ""
    _may: tuple[int, ...] = (NO_MEMBER, NOT_ASSIGNED)

    def run(self) -> None:
        super().run()
        self.leave()

    def step(self) -> None:
        if not self._path and not self._join():
            self._pause()
            return
        rows = self._poll()
        if rows:
            self._process(rows)

    def _process(self, rows: Sequence[Row]) -> None:
        ends = {row.at: row.offset + 1 for row in rows}
        commit = Commit(self.task.group, tuple(Place(*place) for place in ends.items()), self.task.name)
        while self._path and not self._stop.is_set():
            with self._history.doing(commit) as doing:
                answer = self.gateways.ask("POST", f"{self._path}/offsets", _processed(ends), may=self._may)
                if answer.ok:
                    doing.ok()
                elif answer.outcome is Outcome.FAILED:
                    doing.failed()
            if answer.code == NO_MEMBER:
                self._path = ""
            if answer.ok or answer.code in self._may:
                return
            self._pause()

    def _join(self) -> bool:
        self._lives += 1
        name = f"{self.task.name}-{self._lives}"
        self._path = f"/consumers/{self.task.group}/instances/{name}"
        self._positions: dict[At, int] = {}
        config = {"format": "json", "auto.offset.reset": "earliest", "auto.commit.enable": False}
        config |= {"name": name, "session.timeout.ms": SESSION_MS}
        if not self.gateways.ask("POST", f"/consumers/{self.task.group}", config).ok:
            self._path = ""
            return False
        topics = {"topics": [self.task.at.topic]}
        if not self.gateways.ask("POST", f"{self._path}/subscription", topics, may=(NO_MEMBER,)).ok:
            self.leave()
            return False
        return True

    def leave(self) -> None:
        """Give up this life, so that others need not wait for its end."""
        if self._path:
            self.gateways.ask("DELETE", self._path, may=(NO_MEMBER,))
        self._path = ""

    def _poll(self) -> tuple[Row, ...]:
        with self._history.doing(Poll(self.task.group, self.task.name)) as doing:
            path = f"{self._path}/records?timeout={POLL_MS}"
            answer = self.gateways.ask("GET", path, may=self._may)
            if answer.ok:
                rows = rows_of(answer)
                doing.ok(Rows(rows))
        if answer.ok and not self._has_gap(rows):
            return rows
        if answer.code == NO_MEMBER:
            self._path = ""
        elif answer.outcome is not Outcome.FAILED:
            self.leave()
        self._pause()
        return ()

    def _has_gap(self, rows: Sequence[Row]) -> bool:
        """Whether records are missing between the last ones and `rows`. Without a gap the positions move
        behind `rows`.
        """
        firsts = {row.at: row.offset for row in reversed(rows)}
        gap = any(first > self._positions.get(at, first) for at, first in firsts.items())
        if not gap:
            self._positions |= {row.at: row.offset + 1 for row in rows}
        return gap


class Copier(Member):
    """Consumes its share of a topic by transactions, each record of it once."""

    _sent = 0

    def _join(self) -> bool:
        self._done: dict[At, int] = {}
        return super()._join()

    def _process(self, rows: Sequence[Row]) -> None:
        # A gateway that dies may give again what was polled before.
        fresh = [row for row in rows if row.offset >= self._done.get(row.at, 0)]
        if not fresh:
            return
        self._sent += 1
        write = self._transaction(fresh, f"{self.task.name}-{self._sent}")
        if self._send(write, f"{self.task.name}-{self._sent}"):
            self._done |= {span.at: span.end for span in write.consumed}
        else:
            self.leave()

    def _transaction(self, rows: Sequence[Row], name: str) -> Write:
        values: dict[At, list[str]] = defaultdict(list)
        spans: dict[At, Span] = {}
        for row in rows:
            start = spans[row.at].start if row.at in spans else row.offset
            spans[row.at] = Span(row.at, start, row.offset + 1)
            values[self.task.to[row.offset % len(self.task.to)]].append(f"{row.value}>{name}")
        parts = tuple(Part(at, tuple(listed)) for at, listed in values.items())
        return Write(self.task.name, parts, group=self.task.group, consumed=tuple(spans.values()))

    def _send(self, write: Write, key: str) -> bool:
        """Repeat it by its key until it is done, or refused."""
        failed = True
        with self._history.doing(write) as doing:
            while not self._stop.is_set():
                answer = transact(self.gateways, self._path, write, key)
                if answer.ok:
                    doing.ok(placed(write, answer))
                    return True
                failed = failed and answer.outcome is Outcome.FAILED
                if answer.code in (NO_MEMBER, NOT_ASSIGNED):
                    break
                self._pause()
            if failed:  # each attempt has
                doing.failed()
        return False


def transact(
    gateways: Gateways, path: str, write: Write, key: str, may: tuple[int, ...] = (NO_MEMBER, NOT_ASSIGNED)
) -> Answer:
    """Try a transaction of the group or member at `path` once. `may` has refusals for good that it may
    meet.
    """
    records = [
        {"topic": part.at.topic, "partition": part.at.partition, "value": value}
        for part in write.parts
        for value in part.values
    ]
    body = _processed({span.at: span.end for span in write.consumed}) | {"records": records}
    headers = {"Content-Type": JSON, "Idempotency-Key": key}
    return gateways.ask("POST", f"{path}/transactions", body, headers, may=may)


def placed(write: Write, answer: Answer) -> Placed:
    """The offsets of a transaction: one or more runs for a partition, in order, or none yet."""
    told: dict[At, list[int | None]] = defaultdict(list)
    for each in answer.json()["offsets"]:
        base, count = each["base_offset"], each["count"]
        at = At(each["topic"], each["partition"])
        told[at] += [None] * count if base is None else range(base, base + count)
    offsets: list[int | None] = []
    for part in write.parts:
        offsets += told.get(part.at, [None] * len(part.values))
    return Placed(tuple(offsets))


def _processed(ends: Mapping[At, int]) -> dict[str, Any]:
    """The wire has the last record that was processed."""
    return {"offsets": [{"topic": t, "partition": p, "offset": end - 1} for (t, p), end in ends.items()]}


CLIENTS: Mapping[str, type[Client]] = {
    "produce": IdempotentProducer,
    "produce plainly": Producer,
    "fetch": Fetcher,
    "read": Member,
    "copy": Copier,
}


if __name__ == "__main__":
    _task = msgspec.json.decode(sys.argv[1], type=Task)
    CLIENTS[_task.kind](_task, Gateways(sys.argv[3:]), History(Path(sys.argv[2])), threading.Event()).run()
