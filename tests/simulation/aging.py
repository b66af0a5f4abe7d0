"""Topics whose old records go: by retention, or to the remote root, as hours pass and maintenance runs."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import ClassVar

import httpx

from jobs.segment_compaction import NAME as MERGE
from log_tables.cluster.admin.remote_admin import set_remote_root
from log_tables.cluster.cluster import Cluster
from log_tables.layout import partition_directory, topic_directory
from log_tables.table.table import Table
from tests.kit.asking import Answer
from tests.kit.clients import Client, Fetcher, IdempotentProducer, Task
from tests.kit.consumers import JSON
from tests.kit.history import At, Operation, Outcome, Placed, Poll, Rows, Write
from tests.kit.history_checker import Finding, Log, check
from tests.kit.history_checker import Kind as Broken
from tests.kit.workload import committed, read_partition
from tests.simulation.chance import Chance
from tests.simulation.jobs import Maintainer
from tests.simulation.scenes import CheckedScene
from tests.simulation.stores import REMOTE

SPREAD_MS = 3_000
"""Records are up to so much older than their append."""

WATCH_S = 0.3
NEVER_MERGED = {"merge.min.age.ms": str(365 * 24 * 3_600_000)}


class Kind(StrEnum):
    YOUNG = "retention has deleted a record before its time"
    SMALL = "retention has left less than it has to keep"


class StampedProducer(IdempotentProducer):
    """Says the time of each record, which is not always that of the one before or later."""

    def _send(self, stamp: Mapping[str, str]) -> Answer:
        topic, partition = self.task.at
        records = [{"value": value, "timestamp": self._time(value)} for value in self._values]
        path = f"/topics/{topic}/partitions/{partition}"
        return self.gateways.ask("POST", path, {"records": records}, {"Content-Type": JSON, **stamp})

    def _time(self, value: str) -> int:
        times: dict[str, int] = self.__dict__.setdefault("times", {})
        now_ms = self.gateways.clock.now_ms()
        return times.setdefault(value, now_ms - round(self.gateways.clock.random() * SPREAD_MS))


class Watcher(Client):
    """Asks where the log starts: `seen` has when it was told, in milliseconds since 1970, and what."""

    def step(self) -> None:
        self._stop.wait(WATCH_S)
        topic, partition = self.task.at
        answer = self.gateways.ask("GET", f"/topics/{topic}/partitions/{partition}/offsets")
        if answer.ok:
            seen: list[tuple[int, int]] = self.__dict__.setdefault("seen", [])
            seen.append((self.gateways.clock.now_ms(), int(answer.json()["beginning_offset"])))


class Expired(CheckedScene):
    """Retention deletes what is older than it keeps, at the start of the log, and nothing else."""

    topic = "expired"
    groups = ("expired-readers",)
    kinds: ClassVar[Mapping[str, type[Client]]] = {
        **CheckedScene.kinds,
        "produce": StampedProducer,
        "watch": Watcher,
    }

    @property
    def configs(self) -> Mapping[str, str]:  # type: ignore[override]
        chance = Chance(f"expired {self.world.plan.seed}")
        by_size = {"retention.bytes": chance.choice(("4000", "8000")), **NEVER_MERGED}
        by_time = {"retention.ms": chance.choice(("1000", "3000", "3600000")), "segment.ms": "300"}
        return chance.choice((by_time, by_time, by_size))

    @property
    def tasks(self) -> Sequence[Task]:
        at = At(self.topic, 0)
        return (
            Task("produce", self.topic, at),
            Task("fetch", f"fetcher of {self.topic}", at),
            Task("read", f"reader of {self.topic}", at, *self.groups),
            Task("watch", f"watcher of {self.topic}", at),
        )

    def read(self, client: httpx.Client) -> None:
        at = At(self.topic, 0)
        self.start, held = read_partition(client, at)
        self.log = Log({at: held}, {group: committed(client, group) for group in self.groups})
        self.read_ms = self.world.clock.now_ms()
        table = Table(
            self.world.stores.main(), partition_directory(topic_directory(self.topic), 0), self.world.clock
        )
        self.bytes = sum(segment.size for segment in table.snapshot.segments)

    def findings(self, operations: Sequence[Operation]) -> Sequence[Finding]:
        """The checker's, as if all that may go were there still; and what went that had to stay."""
        [(at, held)] = self.log.records.items()
        known, given = _known(operations)
        gone = {offset: known[offset] for offset in range(self.start) if offset in known}
        whole = Log({at: gone | dict(held)}, self.log.committed)
        given_or_held = Log(
            {at: {o: v for o, v in gone.items() if o in given} | dict(held)}, self.log.committed
        )
        told = [op for op in operations if not self._may_be_gone(op, len(gone))]
        return [
            *(each for each in check(told, whole) if each.kind is not Broken.MISSED),
            *(each for each in check(told, given_or_held) if each.kind is Broken.MISSED),
            *self._too_young(gone),
            *self._too_small(),
        ]

    def _may_be_gone(self, op: Operation, known: int) -> bool:
        """Whether its records may be gone, as nobody has said where they were: less is `known`."""
        untold = isinstance(op.answer, Placed) and None in op.answer.offsets
        return op.outcome is Outcome.OK and untold and known < self.start

    def _too_young(self, gone: Mapping[int, str]) -> Iterator[Finding]:
        keep_ms = int(self.configs.get("retention.ms", "0"))
        if not keep_ms:
            return
        times: dict[str, int] = {}
        seen = [(self.read_ms, self.start)]
        for client in self.clients():
            times |= getattr(client, "times", {})
            seen += getattr(client, "seen", [])
        for when_ms, start in seen:
            for offset, value in gone.items():
                if offset < start and value in times and times[value] + keep_ms > when_ms:
                    yield Finding(Kind.YOUNG, f"{value!r} at {offset}, {when_ms - times[value]} ms old")

    def _too_small(self) -> Iterator[Finding]:
        keep = int(self.configs.get("retention.bytes", "0"))
        merged = any(
            outcome.job == MERGE and outcome.topic == self.topic
            for actor in self.world.actors
            if isinstance(actor, Maintainer)
            for outcome in actor.done
        )
        if self.start and self.bytes < keep and not merged:
            yield Finding(
                Kind.SMALL, f"{self.bytes} bytes are there, of {keep}; the log starts at {self.start}"
            )


def _known(operations: Sequence[Operation]) -> tuple[dict[int, str], set[int]]:
    """The values that were acknowledged at each offset of one partition; and the offsets that members of
    groups were given.
    """
    found: dict[int, str] = {}
    given: set[int] = set()
    for op in operations:
        if isinstance(op.asked, Write) and isinstance(op.answer, Placed):
            values = (value for part in op.asked.parts for value in part.values)
            found |= {o: v for o, v in zip(op.answer.offsets, values, strict=True) if o is not None}
        elif isinstance(op.answer, Rows):
            found |= {row.offset: row.value for row in op.answer.rows if row.offset not in found}
            given |= {row.offset for row in op.answer.rows if isinstance(op.asked, Poll)}
    return found, given


class FetcherAgain(Fetcher):
    """Begins again and again, so that it reads what has moved."""

    def step(self) -> None:
        before = self._offset
        super().step()
        if self._offset == before and self._stop.wait(WATCH_S) is False:
            self._offset = 0


class Tiered(Expired):
    """Old segments move to the remote root, and are read there as they were; some go from there, too."""

    topic = "tiered"
    groups = ("tiered-readers",)
    kinds: ClassVar[Mapping[str, type[Client]]] = {**Expired.kinds, "fetch": FetcherAgain}

    @property
    def configs(self) -> Mapping[str, str]:  # type: ignore[override]
        chance = Chance(f"tiered {self.world.plan.seed}")
        local = chance.choice((("local.retention.ms", "300"), ("local.retention.bytes", "1500")))
        found = {"remote.storage.enable": "true", "merge.min.age.ms": "0", "segment.ms": "200"}
        found |= {"retention.ms": "3000"} if chance.random() < 0.3 else {}
        return found | {local[0]: local[1]}

    def prepare(self, client: httpx.Client) -> None:  # noqa: ARG002 -- it asks the store
        current = self.world.scheduler.current
        assert current is not None
        process = current.process
        set_remote_root(Cluster.open(self.world.opened(process), process.clock, create=False), REMOTE)
