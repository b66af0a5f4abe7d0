"""The story of a soak: all parts are started, some die as planned, and in the end all records are counted."""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable

from bench.contest import OURS
from bench.gateway import wait_until
from bench.soak.account import (
    Availability,
    Difference,
    Level,
    Numbers,
    Span,
    availability,
    difference,
    level,
)
from bench.soak.group import GroupMember
from bench.soak.plan import GATEWAYS, MINUTE_S, TABLE, Plan, Strike
from bench.soak.program import Program, SoakGateway
from bench.soak.senders import HttpSender, KafkaSender, Sender
from bench.soak.store import Bucket
from bench.spark_job import Job, Worker
from ingest.settings import Settings
from lakelog import Client
from log_tables.clock import SystemClock, timer
from log_tables.layout import VALUE
from log_tables.root.fsck import check
from tests.kit.support import free_port

TOPIC = GROUP = "soak"
PARTITIONS, MEMBERS = 4, 2
MAINTAIN_EVERY = "1m"
CAUGHT_UP_WITHIN_S = 300.0
_LOOK_AGAIN_S = 0.5


@dataclass(frozen=True, slots=True)
class Result:
    """The measurements and findings of a soak."""

    seconds: float
    acknowledged: int
    log: Difference
    delta: Difference
    missed: int
    """Records that the group did not read."""
    read_again: int
    failures: Counter[str]
    """Of senders, by what they were told: records or requests that were refused for good."""
    fsck: list[str]
    availability: Availability
    with_windows: Availability
    """Of all requests, also those that overlap a window."""
    windows_s: float
    memory_mb: list[tuple[float, ...]]
    """Of each gateway, once a minute."""
    requests: Counter[str]
    """Of the object store, by verb, until the senders had ended."""
    deaths: Counter[str]
    """Of programs that nobody killed, by their name."""
    query_failures: int
    micro_batches: int
    merges: int

    @property
    def level(self) -> Level | None:
        """The memory level of the larger gateway in each minute."""
        return level([max(sample) for sample in self.memory_mb])

    @property
    def broken(self) -> list[str]:
        """The violated promises, each with its count; empty if all is well."""
        found = {
            "lost": self.log.lost,
            "doubled": self.log.doubled,
            "lost in Spark's table": self.delta.lost,
            "doubled in Spark's table": self.delta.doubled,
            "missed by the group": self.missed,
            "refused for good": self.failures.total(),
            "problems that fsck found": len(self.fsck),
        }
        return [f"{count:,} {what}" for what, count in found.items() if count]


def soak(plan: Plan, directory: Path) -> Result:
    """Run it in `directory`, which is empty; the store and the logs of all programs stay there."""
    with ExitStack() as stack:
        bucket = stack.enter_context(Bucket(directory))
        # Gateways, jobs, Spark and its workers find the store by these.
        os.environ.update(
            bucket.environment,
            LAKELOG_PEER_SECRET=SystemClock().random_hex(32),
            MALLOC_ARENA_MAX="2",  # as all files of deploy/ have it
        )
        return _Soak(plan, directory, bucket, stack).run()


class _Soak:
    """All parts, running.

    Windows are the times that docs/guarantees.md excepts: `leader_timeout_ms` from the death of a gateway on,
    and while the store does not answer.
    """

    def __init__(self, plan: Plan, directory: Path, bucket: Bucket, stack: ExitStack) -> None:
        self._plan, self._bucket = plan, bucket
        self._failover_s = Settings().leader_timeout_ms / 1_000
        self._windows: list[Span] = []
        self._memory: list[tuple[float, ...]] = []
        self._deaths: Counter[str] = Counter()
        self._gateways = [
            SoakGateway(f"gateway-{number}", directory, bucket.root, free_port(), free_port())
            for number in range(GATEWAYS)
        ]
        for gateway in self._gateways:
            stack.callback(gateway.kill)
        self._until_ready()
        with Client(self._gateways[0].url) as client:
            client.create_topic(TOPIC, PARTITIONS)
        arguments = ("maintain", "--data", bucket.root, "--every", MAINTAIN_EVERY)
        self._maintainer = Program("maintain", directory, *arguments)
        stack.callback(self._maintainer.kill)
        self._job = Job("copy", OURS, bucket.root, str(directory / "spark"), topic=TOPIC)
        self._worker = stack.enter_context(Worker(self._job, "bench.soak.spark"))
        self._worker.ready()

    def run(self) -> Result:
        members, http, kafka = self._members(), self._http_senders(), self._kafka_sender()
        senders: list[Sender] = [*http, kafka]
        acknowledged = [sender.acknowledged for sender in senders]
        read = [member.read for member in members]
        before, begin = self._bucket.requests(), timer()
        with ExitStack() as load:
            threads: list[GroupMember | Sender] = [*members, *senders]
            for thread in threads:
                thread.start()
                load.callback(thread.end)
            self._let_die(http, kafka, members)
            for sender in senders:
                sender.end()
            seconds, requests = timer() - begin, self._bucket.requests() - before
            _say("the load has ended; reading what is there")
            self._until_ready()
            _until_read(acknowledged, read)
        found, copied = self._logged(), self._worker.figures()
        for program in (self._maintainer, *self._gateways):
            program.stop()
        attempts = [attempt for sender in http for attempt in sender.attempts]
        return Result(
            seconds=seconds,
            acknowledged=sum(each.total() for each in acknowledged),
            log=difference(acknowledged, [found]),
            delta=difference(acknowledged, [_numbers(_delta_values(Path(self._job.directory, TABLE)))]),
            missed=difference(acknowledged, read).lost,
            read_again=difference([], read).doubled,
            failures=sum((sender.failures for sender in senders), Counter()),
            fsck=[str(problem) for problem in check(self._bucket.open()).problems],
            availability=availability(attempts, self._windows),
            with_windows=availability(attempts, []),
            windows_s=sum(window.end - window.begin for window in self._windows),
            memory_mb=self._memory,
            requests=requests,
            deaths=self._deaths,
            query_failures=copied["failures"],
            micro_batches=copied["batches"],
            merges=_merges(self._maintainer.log),
        )

    def _members(self) -> list[GroupMember]:
        return [GroupMember(self._bootstrap, GROUP, TOPIC) for _ in range(MEMBERS)]

    def _http_senders(self) -> list[HttpSender]:
        plan, addresses = self._plan, [gateway.address for gateway in self._gateways]
        return [
            HttpSender(
                f"http-{number}",
                addresses[number % GATEWAYS :] + addresses[: number % GATEWAYS],
                TOPIC,
                plan.request_records,
                plan.request_every_s,
            )
            for number in range(plan.http_clients)
        ]

    def _kafka_sender(self) -> KafkaSender:
        return KafkaSender("kafka", self._bootstrap, TOPIC, self._plan.kafka_records_per_s)

    @property
    def _bootstrap(self) -> str:
        return ",".join(gateway.bootstrap for gateway in self._gateways)

    def _let_die(
        self, http: Sequence[HttpSender], kafka: KafkaSender, members: Sequence[GroupMember]
    ) -> None:
        """Until the end of the run: kill and stop as planned, and start again whatever has ended."""
        begin, strikes, clock = timer(), self._plan.strikes(), SystemClock()
        _say("| minute | records acknowledged | requests | not answered | MB | MB | S3 requests |")
        _say("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
        while timer() - begin < self._plan.minutes * MINUTE_S:
            if strikes and timer() - begin >= strikes[0].at_s:
                strike = strikes.pop(0)
                if strike.gateway is not None:
                    self._memory.append(tuple(gateway.resident_mb for gateway in self._gateways))
                    self._tell(len(self._memory), http, kafka)
                self._strike(strike)
            for program in (*self._gateways, self._maintainer):
                if not program.runs():
                    self._deaths[program.name] += 1
                    program.start()
            for thread in (*http, kafka, *members):
                if not thread.is_alive():
                    raise RuntimeError(f"{thread.name} has ended early; its error is above")
            clock.pause(_LOOK_AGAIN_S)

    def _strike(self, strike: Strike) -> None:
        begin = timer()
        if strike.gateway is None:
            self._bucket.stop()
            SystemClock().pause(self._plan.store_away_s)
            self._bucket.start()
            self._windows.append(Span(begin, timer()))
        else:
            gateway = self._gateways[strike.gateway]
            gateway.kill()
            gateway.start()
            self._windows.append(Span(begin, begin + self._failover_s))

    def _tell(self, minute: int, http: Sequence[HttpSender], kafka: KafkaSender) -> None:
        """A line of the table on the terminal."""
        acknowledged = sum(sender.acknowledged.total() for sender in (*http, kafka))
        known = availability([each for sender in http for each in [*sender.attempts]], self._windows)
        counts = (minute, acknowledged, known.requests, known.requests - known.answered)
        figures = (*counts, *self._memory[-1], self._bucket.requests().total())
        _say(f"| {' | '.join(f'{figure:,.0f}' for figure in figures)} |")

    def _until_ready(self) -> None:
        wait_until(lambda: all(gateway.ready() for gateway in self._gateways), "all gateways are ready")

    def _logged(self) -> Numbers:
        """The numbers in the topic, as a gateway gives them."""
        with Client(self._gateways[0].url) as client:
            tables = (each for index in range(PARTITIONS) for each in client.read_tables(TOPIC, index))
            return _numbers(value for each in tables for value in each.column(VALUE).to_pylist())


def _until_read(acknowledged: Sequence[Numbers], read: Sequence[Numbers]) -> None:
    """Wait for the group; whatever it has not read by then is missed."""
    clock = SystemClock()
    end = clock.monotonic() + CAUGHT_UP_WITHIN_S
    while difference(acknowledged, read).lost and clock.monotonic() < end:
        clock.pause(_LOOK_AGAIN_S)


def _numbers(values: Iterator[bytes]) -> Numbers:
    found = Numbers()
    for value in values:
        found.note_value(value)
    return found


def _delta_values(path: Path) -> Iterator[bytes]:
    for file in DeltaTable(str(path)).file_uris():
        yield from pq.read_table(file, columns=[VALUE]).column(VALUE).to_pylist()


def _merges(log: Path) -> int:
    """How many merges of the topic `lakelog maintain` tells of."""
    lines = log.read_text(errors="replace").splitlines()
    return sum(line.startswith(f"segment_compaction {TOPIC}-") and "failed" not in line for line in lines)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
