"""Clients of what does not stay: topics deleted and re-created, logs truncated, groups set back."""

import threading
from collections.abc import Mapping, Sequence
from typing import ClassVar

from tests.kit.asking import Answer, Gateways
from tests.kit.clients import (
    NO_MEMBER,
    NO_PARTITION,
    NO_TOPIC,
    NOT_ASSIGNED,
    OUT_OF_RANGE,
    POLL_MS,
    Client,
    Member,
    Producer,
    Task,
    rows_of,
)
from tests.kit.history import (
    Absent,
    At,
    Changed,
    Commit,
    Create,
    Delete,
    Fetch,
    History,
    Outcome,
    Place,
    Row,
    Rows,
    Truncate,
)
from tests.kit.support import WAIT_S

IMPOSSIBLE = 40002
"""Among others: the topic exists already."""

PARTITIONS = 2
"""Of each life of a topic."""

FILES_STAY_MS = 365 * 24 * 60 * 60 * 1000
"""Longer than any test, also one in which hours pass at once: the files of all lives are read at its end."""


class Again(Client):
    """Makes a topic and deletes it, again and again; it is there in the end.

    It waits for each answer: a gateway that is paused carries a request out when it goes on, and a deletion
    that was given up would meet a later life.
    """

    timeout_s = WAIT_S
    life_max_s: ClassVar[float] = 3

    def __init__(self, task: Task, gateways: Gateways, history: History, stop: threading.Event) -> None:
        super().__init__(task, gateways, history, stop)
        self._draw = gateways.clock

    def step(self) -> None:
        self._change("POST", "/topics", Create(self.task.at.topic), IMPOSSIBLE)
        while self._stop.wait(self.life_max_s * self._draw.random()) is False:
            self._change("DELETE", f"/topics/{self.task.at.topic}", Delete(self.task.at.topic), NO_TOPIC)
            self._stop.wait(self._draw.random() / 4)
            self._change("POST", "/topics", Create(self.task.at.topic), IMPOSSIBLE)

    def _change(self, method: str, path: str, asked: Create | Delete, done: int) -> None:
        """Repeat a request until it is done, also at the end: the code `done` tells it to a repeat."""
        body = None
        if isinstance(asked, Create):
            body = {"topic_name": asked.topic, "partitions_count": PARTITIONS}
            body |= {"configs": [{"name": "file.delete.delay.ms", "value": str(FILES_STAY_MS)}]}
        unknown = False
        with self._history.doing(asked) as doing:
            while not (answer := self._asked(method, path, body, done)).ok:
                if answer.code == done and unknown:
                    doing.ok(Changed(sure=False))
                    return
                assert answer.code != done, answer
                unknown = unknown or answer.outcome is Outcome.UNKNOWN
                self._pause_anyway()
            doing.ok(Changed(sure=True))

    def _asked(self, method: str, path: str, body: object, done: int) -> Answer:
        found = self.gateways.ask("GET", "/v3/clusters")
        if not found.ok:
            return Answer(Outcome.FAILED)
        cluster = found.json()["data"][0]["cluster_id"]
        content = {"Content-Type": "application/json"}
        return self.gateways.ask(method, f"/v3/clusters/{cluster}{path}", body, content, (done,))

    def _pause_anyway(self) -> None:
        threading.Event().wait(0.1)


class ProducerToLives(Producer):
    """Sends each batch once, to whatever life the topic has."""

    _may = (NO_TOPIC, NO_PARTITION)


class FetcherOfLives(Client):
    """Reads a partition on, and from its beginning where it has become another."""

    _offset = 0

    def step(self) -> None:
        topic, partition = self.task.at
        path = f"/topics/{topic}/partitions/{partition}/records?offset={self._offset}&timeout={POLL_MS}"
        may = (NO_TOPIC, NO_PARTITION, OUT_OF_RANGE)
        with self._history.doing(Fetch(self.task.at, self._offset)) as doing:
            answer = self.gateways.ask("GET", path, may=may)
            if answer.ok:
                rows = rows_of(answer)
                doing.ok(Rows(rows, int(answer.headers["Next-Offset"])))
            elif answer.code in may:
                doing.failed(None if answer.code == OUT_OF_RANGE else Absent())
        if not answer.ok:
            self._offset = 0
            self._pause()
        elif rows:  # what is next may be another life's
            self._offset = rows[-1].offset + 1


class MemberOfLives(Member):
    """Reads its share of a topic in whatever life that has, and commits each poll."""

    _may = (NO_MEMBER, NOT_ASSIGNED, NO_TOPIC, NO_PARTITION, OUT_OF_RANGE)


class Truncater(Client):
    """Deletes what all groups have committed. What it deletes it reads before, into `aside`."""

    every_s: ClassVar[float] = 1

    def __init__(self, task: Task, gateways: Gateways, history: History, stop: threading.Event) -> None:
        super().__init__(task, gateways, history, stop)
        self.aside: dict[int, str] = {}

    def step(self) -> None:
        self._stop.wait(self.every_s)
        places = [self._committed(group) for group in self.task.group.split()]
        if None in places:
            return
        before = min(place for place in places if place is not None)
        topic, partition = self.task.at
        path = f"/topics/{topic}/partitions/{partition}/records"
        if not self._read(path, before):
            return
        with self._history.doing(Truncate(self.task.at, before)) as doing:
            if self.gateways.ask("DELETE", f"{path}?before={before}").ok:
                doing.ok()

    def _committed(self, group: str) -> int | None:
        answer = self.gateways.ask("GET", f"/consumers/{group}/offsets", may=(40405,))
        if not answer.ok:
            return None
        found = [each["offset"] for each in answer.json()["offsets"] if _at(each) == self.task.at]
        return int(found[0]) if found else None

    def _read(self, path: str, before: int) -> bool:
        """Put aside what is below `before`; whether all of it is."""
        offset = max(self.aside, default=-1) + 1
        while offset < before:
            answer = self.gateways.ask("GET", f"{path}?offset={offset}")
            if not answer.ok:
                return False
            self._keep(rows_of(answer), before)
            offset = int(answer.headers["Next-Offset"])
        return True

    def _keep(self, rows: Sequence[Row], before: int) -> None:
        self.aside |= {row.offset: row.value for row in rows if row.offset < before}


def _at(found: Mapping[str, object]) -> At:
    return At(str(found["topic"]), int(str(found["partition"])))


class Resetter(Client):
    """Sets a group back to where it has been, while its members go on."""

    def __init__(self, task: Task, gateways: Gateways, history: History, stop: threading.Event) -> None:
        super().__init__(task, gateways, history, stop)
        self._draw = gateways.clock

    def step(self) -> None:
        self._stop.wait(1)
        path = f"/consumers/{self.task.group}/offsets"
        answer = self.gateways.ask("GET", path, may=(40405,))
        found = [each for each in answer.json()["offsets"] if _at(each) == self.task.at] if answer.ok else []
        if not found:
            return
        back = int(found[0]["offset"] * (0.5 + self._draw.random() / 2))
        place = Place(self.task.at, back)
        body = {"offsets": [{"topic": place.at.topic, "partition": place.at.partition, "offset": back}]}
        with self._history.doing(Commit(self.task.group, (place,))) as doing:
            answer = self.gateways.ask("PUT", f"{path}?force=true", body)
            if answer.ok:
                doing.ok()
            elif answer.outcome is Outcome.FAILED:
                doing.failed()


LIVES_CLIENTS: Mapping[str, type[Client]] = {
    "make again": Again,
    "produce to lives": ProducerToLives,
    "fetch lives": FetcherOfLives,
    "read lives": MemberOfLives,
    "truncate": Truncater,
    "reset": Resetter,
}
