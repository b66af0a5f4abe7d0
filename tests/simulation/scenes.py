"""Topics of their own in a world, each with its clients, and what has to be there in the end."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import httpx

from tests.kit import lives
from tests.kit.asking import Answer, Gateways
from tests.kit.clients import CLIENTS, NO_TOPIC, Client, Member, Task
from tests.kit.history import At, Commit, Operation, Outcome, Place, Poll, Row, Rows
from tests.kit.history_checker import Finding, Kind, Log, check
from tests.kit.lives_clients import LIVES_CLIENTS, PARTITIONS, Again, Truncater
from tests.kit.workload import concerns, read_log
from tests.simulation.judges import kept, topics_of

if TYPE_CHECKING:
    from tests.simulation.world import World


class Scene(ABC):
    """One of them. `topic` is created with `configs`, unless a client does so."""

    topic: ClassVar[str]
    groups: ClassVar[tuple[str, ...]] = ()
    partitions: ClassVar[int] = 1
    begins_with: ClassVar[int] = 1
    """Partitions, of up to `partitions`."""
    is_created: ClassVar[bool] = True
    configs: ClassVar[Mapping[str, str]] = {}
    kinds: ClassVar[Mapping[str, type[Client]]] = {**CLIENTS, **LIVES_CLIENTS}

    def __init__(self, world: "World") -> None:
        self.world = world

    def prepare(self, client: httpx.Client) -> None:  # noqa: B027 -- most need nothing
        """Do what has to be done before its topic is created."""

    @property
    @abstractmethod
    def tasks(self) -> Sequence[Task]:
        """The tasks of its clients."""

    @abstractmethod
    def read(self, client: httpx.Client) -> None:
        """Read what is there, when its clients have ended."""

    def folded(self) -> Mapping[str, int]:
        """The topics that gateways have to fold in the end, with their numbers of partitions."""
        return {}

    @abstractmethod
    def findings(self, operations: Sequence[Operation]) -> Sequence[Finding]:
        """Findings, from the operations of its topic and groups."""

    def judge(self) -> None:
        """Judge all. Raises AssertionError."""
        topics, groups = {self.topic: 0}, self.groups
        operations = [op for op in self.world.history.operations() if concerns(op, topics, groups)]
        for finding in self.findings(operations):
            raise AssertionError(f"{self.topic}: {finding.kind}: {finding.text}")


class CheckedScene(Scene):
    """A scene that the history checker judges."""

    def read(self, client: httpx.Client) -> None:
        aside = {each.task.at: each.aside for each in self.clients() if isinstance(each, Truncater)}
        self.log = read_log(client, {self.topic: self.partitions}, self.groups, aside)

    def folded(self) -> Mapping[str, int]:
        return topics_of(self.log)

    def clients(self) -> list[Client]:
        """The clients of this scene."""
        return [client for _, client in self.world.clients if client.task.at.topic == self.topic]

    def findings(self, operations: Sequence[Operation]) -> Sequence[Finding]:
        return check(kept(self.world, operations, self.log), self.log)


class OftenTruncater(Truncater):
    every_s = 0.2


class Truncated(CheckedScene):
    """Whatever all groups have committed is deleted."""

    topic = "truncated"
    groups = ("truncated-readers",)
    kinds: ClassVar[Mapping[str, type[Client]]] = {**Scene.kinds, "truncate": OftenTruncater}

    @property
    def tasks(self) -> Sequence[Task]:
        at = At(self.topic, 0)
        return (
            Task("produce", "idempotent, truncated", at),
            Task("fetch", "fetcher, truncated", at),
            Task("read", "reader of truncated", at, *self.groups),
            Task("truncate", "truncater", at, *self.groups),
        )


class Grower(Client):
    """Gives its topic one more partition, up to GROWN."""

    def step(self) -> None:
        self._stop.wait(self.gateways.clock.random())
        topic = self.task.at.topic
        found = self.gateways.ask("GET", f"/topics/{topic}")
        if found.ok and len(found.json()["partitions"]) < GROWN:
            count = len(found.json()["partitions"]) + 1
            change(self.gateways, "PATCH", f"topics/{topic}", {"partitions_count": count})


GROWN = 3


def change(gateways: Gateways, method: str, path: str, body: object) -> Answer:
    """Ask once for a change of the cluster, which may have been done before."""
    found = gateways.ask("GET", "/v3/clusters")
    if not found.ok:
        return found
    cluster = found.json()["data"][0]["cluster_id"]
    content = {"Content-Type": "application/json"}
    return gateways.ask(method, f"/v3/clusters/{cluster}/{path}", body, content, (DONE_BEFORE, NO_TOPIC))


DONE_BEFORE = 40002
"""Among others: the topic has as many partitions already."""


class Grown(CheckedScene):
    """A topic gets partitions, and each gets records as soon as it is there."""

    topic = "grown"
    groups = ("grown-readers",)
    partitions = GROWN
    kinds: ClassVar[Mapping[str, type[Client]]] = {**Scene.kinds, "grow": Grower}

    @property
    def tasks(self) -> Sequence[Task]:
        return (
            *(Task("produce to lives", f"to grown {index}", At(self.topic, index)) for index in range(GROWN)),
            Task("read", "reader of grown", At(self.topic, 0), *self.groups),
            Task("grow", "grower", At(self.topic, 0)),
        )

    def read(self, client: httpx.Client) -> None:
        there = len(client.get(f"/topics/{self.topic}").json()["partitions"])
        self.log = read_log(client, {self.topic: there}, self.groups)


class Worker(Member):
    """A member whose records take it some time before it commits."""

    def _process(self, rows: Sequence[Row]) -> None:
        self._stop.wait(self.gateways.clock.random() * WORK_S)
        super()._process(rows)


WORK_S = 1.0


class Setter(Client):
    """Sets its group back and forth, while members share the topic and when none does."""

    def step(self) -> None:
        clock = self.gateways.clock
        self._stop.wait(clock.random())
        places = [place for at in self.task.to if (place := self._drawn(at)) is not None]
        if not places:
            return
        body = {"offsets": [{"topic": t, "partition": p, "offset": o} for (t, p), o in places]}
        force = "?force=true" if clock.random() < 0.7 else ""
        path = f"/consumers/{self.task.group}/offsets{force}"
        with self._history.doing(Commit(self.task.group, tuple(Place(*each) for each in places))) as doing:
            answer = self.gateways.ask("PUT", path, body, may=(HAS_MEMBERS,))
            if answer.ok:
                doing.ok()
            elif answer.outcome is Outcome.FAILED:
                doing.failed()

    def _drawn(self, at: At) -> tuple[At, int] | None:
        """Where to set a partition: an offset that it has, or its end; now and then none."""
        answer = self.gateways.ask("GET", f"/topics/{at.topic}/partitions/{at.partition}/offsets")
        if not answer.ok or self.gateways.clock.random() < 0.3:
            return None
        return at, round(int(answer.json()["end_offset"]) * self.gateways.clock.random())


class Reset(CheckedScene):
    """A group is set to other places, and its members go on there."""

    topic = "reset"
    groups = ("reset-readers",)
    partitions = begins_with = PARTITIONS
    kinds: ClassVar[Mapping[str, type[Client]]] = {**Scene.kinds, "read": Worker, "set": Setter}

    @property
    def tasks(self) -> Sequence[Task]:
        here, there = (At(self.topic, at) for at in range(PARTITIONS))
        return (
            Task("produce", "idempotent, reset", here),
            Task("produce", "another, reset", there),
            Task("read", "reader of reset", here, *self.groups),
            Task("read", "another reader of reset", here, *self.groups),
            Task("set", "setter", here, *self.groups, (here, there)),
        )

    def findings(self, operations: Sequence[Operation]) -> Sequence[Finding]:
        """The checker's, which takes groups to miss what they were set beyond."""
        given = {
            (row.at, row.offset)
            for op in operations
            if isinstance(op.asked, Poll) and isinstance(op.answer, Rows)
            for row in op.answer.rows
        }
        passed: dict[At, int] = {}
        for op in operations:
            if isinstance(op.asked, Commit) and not op.asked.member and op.outcome is not Outcome.FAILED:
                for place in op.asked.places:
                    passed[place.at] = max(place.offset, passed.get(place.at, 0))
        to_be_given = {
            at: {o: value for o, value in held.items() if o >= passed.get(at, 0) or (at, o) in given}
            for at, held in self.log.records.items()
        }
        return [
            *(each for each in check(operations, self.log) if each.kind is not Kind.MISSED),
            *(
                each
                for each in check(operations, Log(to_be_given, self.log.committed))
                if each.kind is Kind.MISSED
            ),
        ]


HAS_MEMBERS = 40914


class OftenAgain(Again):
    life_max_s = 0.5


class Lives(Scene):
    """A topic is deleted and made again and again."""

    topic = "phoenix"
    groups = ("phoenix-readers",)
    is_created = False
    kinds: ClassVar[Mapping[str, type[Client]]] = {**Scene.kinds, "make again": OftenAgain}

    @property
    def tasks(self) -> Sequence[Task]:
        return (
            Task("make again", "maker", At(self.topic, 0)),
            *(Task("produce to lives", f"to life {at}", At(self.topic, at)) for at in range(PARTITIONS)),
            Task("fetch lives", "fetcher of lives", At(self.topic, 0)),
            Task("read lives", "reader of lives", At(self.topic, 1), *self.groups),
        )

    def read(self, client: httpx.Client) -> None:
        """Its tables are read when all have ended."""

    def findings(self, operations: Sequence[Operation]) -> Sequence[Finding]:
        store = self.world.stores.main()
        left = lives.not_emptied(store, self.topic)
        assert not left, left
        found = lives.lives(operations, store, self.topic)
        return lives.check(operations, found, self.topic)
