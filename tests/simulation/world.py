"""A cluster in one thread: gateways, clients, a disk and a network, by one seed.

A run has three parts: everybody works while faults come; the faults stop, and everything has to work again
within HEALED_S; then all end, and what is there is judged.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx

from jobs.maintenance import jobs_named
from log_tables.store.store import Store
from tests.kit.asking import Gateways
from tests.kit.clients import CLIENTS, Client, Task, placed, transact
from tests.kit.history import History, Operation, Outcome, Part, Write
from tests.kit.workload import read_log
from tests.simulation.actors import Actor
from tests.simulation.aging import Expired, Tiered
from tests.simulation.bucket import Bucket
from tests.simulation.clock import SimulatedClock
from tests.simulation.columns import Typed
from tests.simulation.copies import RootCopier
from tests.simulation.disk import Disk
from tests.simulation.gateway import SimulatedGateway, kafka_address
from tests.simulation.jobs import Maintainer
from tests.simulation.judges import judge, unfolded
from tests.simulation.kafka_clients import KAFKA_CLIENTS, KafkaGateways
from tests.simulation.keys import Keyed
from tests.simulation.machine import in_place_of_the_machine
from tests.simulation.nemesis import Nemesis
from tests.simulation.network import Network
from tests.simulation.once import Once
from tests.simulation.plan import COPY, NAP_H, PARTITIONS, TOPIC, Plan
from tests.simulation.scenes import HAS_MEMBERS, Grown, Lives, Reset, Scene, Truncated
from tests.simulation.scheduler import Deadlock, Process, Scheduler
from tests.simulation.security import Credential, CredentialTransport, Securer
from tests.simulation.stores import Stores
from tests.simulation.threads import SimulatedEvent

__all__ = ["HEALED_S", "Plan", "RunOutcome", "World"]

HEALED_S = 60.0
"""Within this time of its own a world works again when its faults have stopped."""

HEALED_DELAY_S = 0.1
"""The longest way of a message when all is well again: then little happens while it is waited."""

ENDED_DELAY_S = 0.002
"""And that when all clients have ended: then nobody works while it is waited, but gateways look around."""

NAP_WITHIN_S = 5.0
HOUSEKEEPING_S = 1.0

LOOK_STEPS = 20
"""Between two looks whether something has happened."""

ALWAYS_WORK = (
    *("produce", "produce plainly", "produce once", "produce conditionally"),
    *("kafka produce", "fetch"),
)
"""The kinds of clients that have something to do, whatever others do."""

SCENES: Mapping[str, type[Scene]] = {
    each.topic: each for each in (Truncated, Grown, Lives, Keyed, Typed, Once, Expired, Tiered, Reset)
}
"""By their topics."""

SETTINGS: dict[str, Any] = {"leader_timeout_ms": 3_000, "shutdown_timeout_ms": 10_000}


@dataclass(slots=True)
class RunOutcome:
    """The result of a run."""

    plan: Plan
    digest: str = ""
    steps: int = 0
    seconds: float = 0.0
    operations: int = 0
    problems: list[str] = field(default_factory=list)
    log: Sequence[str] = ()


class World:
    """One run."""

    def __init__(self, plan: Plan, keeps_log: bool = False) -> None:
        self.plan = plan
        self.scheduler = Scheduler(plan.seed, keeps_log)
        self.disk = Disk(self.scheduler, plan.ordered)
        self.bucket = Bucket(self.scheduler)
        self.network = Network(self.scheduler)
        self.network.weather.delay_s = plan.delay_s
        self.clock = SimulatedClock(self.scheduler, "world")
        self.history = History(clock=self.clock)
        self.gateways: list[SimulatedGateway] = []
        self.clients: list[tuple[Process, Client]] = []
        self.actors: list[Actor] = [Maintainer(self, every_s) for every_s in plan.maintainers]
        if plan.naps:
            self.actors.append(Maintainer(self, HOUSEKEEPING_S, jobs_named(("housekeeping",))))
        if plan.copies:
            self.actors.append(RootCopier(self))
        if plan.secured:
            self.actors.append(Securer(self))
        self.scenes = [SCENES[name](self) for name in plan.scenes]
        self.stores = Stores(self)
        self.stop: Any = SimulatedEvent()
        self.settings, self.credential = {**SETTINGS}, Credential()
        self._lives, self._is_ending = 0, False
        self._look_us = 0
        self.healed_s = 0.0
        """When the faults stopped, as `monotonic` of `clock`."""
        self._unfolded = [TOPIC]
        self.nemesis = Nemesis(self)

    # What there is.

    def opened(self, process: Process) -> Store:
        """The root, as a process opens it."""
        return self.stores.main(process.clock)

    def _created(self, process: Process) -> Store:
        """The root, as a gateway opens it."""
        return self.stores.main(process.clock, create=True)

    def start_gateway(self, number: int) -> SimulatedGateway:
        """Start gateway `number`, at its URL of always."""
        self._lives += 1
        process = self.scheduler.process(f"gateway {number} life {self._lives}")
        settings = {**self.settings, **self.stores.settings}
        made = SimulatedGateway(process, self.url(number), self._created, self.network, settings)
        process.died.append(lambda: self._supervise(number, made))
        if number < len(self.gateways):
            self.gateways[number] = made
        else:
            self.gateways.append(made)
        return made

    def _supervise(self, number: int, ended: SimulatedGateway) -> None:
        """Start again what did not come to serve, as systemd does, and whatever ends while all is well."""

        def again() -> None:
            if self.gateways[number] is ended:
                self.start_gateway(number)

        if not ended.has_served or (self.nemesis.is_over and not self._is_ending):
            self.scheduler.at(self.scheduler.now_us + 1_000_000, None, again)

    def url(self, number: int) -> str:
        return f"http://gateway-{number}.test:8082"

    def _start_client(self, task: Task, kinds: Mapping[str, type[Client]] = CLIENTS) -> None:
        process = self.scheduler.process(f"client {task.name}")
        client: Client
        if task.kind in KAFKA_CLIENTS:
            addresses = [kafka_address(self.url(number)) for number in range(self.plan.gateways)]
            asking = KafkaGateways(self.network, process, addresses, self.credential)
            client = KAFKA_CLIENTS[task.kind](task, asking, self.history, self.stop)
        else:
            kind = kinds[task.kind]
            client = kind(task, self._asking(process, kind.timeout_s), self.history, self.stop)
        self.clients.append((process, client))
        process.start_thread("main", client.run)

    def _asking(self, process: Process, timeout_s: float) -> Gateways:
        transport = CredentialTransport(self.network, process, self.credential)
        urls = [self.url(number) for number in range(self.plan.gateways)]
        return Gateways(urls, timeout_s=timeout_s, transport=transport, clock=process.clock)

    def ask(self, work: Callable[[httpx.Client], Any], within_s: float = HEALED_S) -> Any:
        """The result of `work` in a process of its own, asking some gateway. Raises what it raises."""
        process = self.scheduler.process("judge")
        outcome: list[Any] = []
        number = self.scheduler.random.randrange(self.plan.gateways)

        def run() -> None:
            transport = CredentialTransport(self.network, process, self.credential)
            with httpx.Client(base_url=self.url(number), timeout=30, transport=transport) as client:
                try:
                    outcome.append(work(client))
                except Exception as error:  # noqa: BLE001 -- raised for whoever asked
                    outcome.append(error)

        process.start_thread("main", run)
        self._within(within_s, lambda: bool(outcome), "an answer")
        assert outcome, "the world has failed"
        if isinstance(outcome[0], Exception):
            raise outcome[0]
        return outcome[0]

    # The parts of a run.

    def run(self) -> RunOutcome:
        """Run it all."""
        found = RunOutcome(self.plan)
        with in_place_of_the_machine(self):
            try:
                self._begin()
                self._work()
                self._heal()
                self._end()
                judge(self, self.log)
            except (AssertionError, httpx.HTTPError) as error:
                found.problems.append(f"{type(error).__name__}: {error}")
            finally:
                found.problems[:0] = [
                    f"{who}: {type(error).__name__}: {error}" for who, error in self.scheduler.failures
                ]
                found.digest, found.steps = self.scheduler.digest, self.scheduler.steps
                found.seconds = self.scheduler.now_us / 1e6
                found.operations = len(self.history.operations())
                found.log = [*self.scheduler.log]
        return found

    def _begin(self) -> None:
        for number in range(self.plan.gateways):
            self.start_gateway(number)
        self._within(HEALED_S, lambda: all(each.serves for each in self.gateways), "the first start")
        for name in (TOPIC, COPY):
            self._make(name, PARTITIONS, self.plan.configs)
        for task in self.plan.tasks:
            self._start_client(task)
        for scene in self.scenes:
            self.ask(scene.prepare)
            if scene.is_created:
                self._make(scene.topic, scene.begins_with, {**self.plan.configs, **scene.configs})
            for task in scene.tasks:
                self._start_client(task, scene.kinds)
        for actor in self.actors:
            actor.begin()

    def _make(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        listed = [{"name": key, "value": value} for key, value in configs.items()]
        body = {"topic_name": topic, "partitions_count": partitions, "configs": listed}
        answer = self.ask(lambda client: client.post("/topics", json=body))
        assert answer.status_code == 201, answer.text

    def _work(self) -> None:
        began = self.scheduler.steps
        for fault in self.plan.faults:
            self.scheduler.run(self._failed, max(0, began + fault.at - self.scheduler.steps))
            self.nemesis.begin(fault)
        self.scheduler.run(self._failed, max(0, began + self.plan.steps - self.scheduler.steps))

    def _heal(self) -> None:
        """All faults stop: everybody works again."""
        self.nemesis.end()
        self.healed_s = self.clock.monotonic()
        weather = self.network.weather
        weather.delay_s = max(weather.delay_s, HEALED_DELAY_S)
        self.scheduler.note("world", "heals")
        self._serve()
        for hours in self.plan.nights:
            self.scheduler.sleep(hours * 3600)
            if self.plan.naps:
                self._nap()
            self._serve()

    def _nap(self) -> None:
        """Sleep once more amid a job, if one comes to that soon."""
        until = self.scheduler.now_us + round(NAP_WITHIN_S * 1e6)
        for actor in self.actors:
            actor.due.set()
        while not (self._failed() or self.scheduler.now_us > until):
            self.scheduler.run(self._failed, LOOK_STEPS)
            if any(isinstance(actor, Maintainer) and actor.is_amid for actor in self.actors):
                self.scheduler.sleep(NAP_H * 3600)
                return

    def _serve(self) -> None:
        """Wait until everybody has worked."""
        begun = self.clock.monotonic()
        for actor in self.actors:
            actor.rest_s = HEALED_S
            actor.due.set()
        waited = {process: client for process, client in self.clients if not process.dead}
        self.network.rests.end()

        def done() -> bool:
            newest = self.history.operations()[-200:] if waited else ()
            for process, client in [*waited.items()]:
                if _has_worked(client, newest, begun):
                    self.network.rests.allow(process)
                    del waited[process]
            return (
                not waited
                and all(each.serves for each in self.gateways)
                and all(actor.has_worked(begun) for actor in self.actors)
            )

        self._within(HEALED_S, done, lambda: self._waiting(waited.values(), begun))

    def _waiting(self, waited: Iterable[Client], since: float) -> str:
        silent = [client.task.name for client in waited]
        silent += [actor.name for actor in self.actors if not actor.has_worked(since)]
        down = [each.url for each in self.gateways if not each.serves]
        return f"everything works again; {silent} have done nothing since, {down} do not serve"

    def _end(self) -> None:
        """Clients end, transactions are applied, gateways stop in order."""
        self.stop.set()
        self.network.rests.end()
        self._within(HEALED_S, self._have_ended, "the clients end")
        self.network.weather.delay_s = ENDED_DELAY_S
        for task in {task.group: task for task in self.plan.tasks if task.kind == "copy"}.values():
            self.ask(partial(self._settle, task))
        for actor in self.actors:
            actor.end()
        self._within(HEALED_S, lambda: all(actor.ended for actor in self.actors), "the actors end")
        groups = sorted({task.group for task in self.plan.tasks if task.group})
        topics = {TOPIC: PARTITIONS, COPY: PARTITIONS}
        self.log = self.ask(lambda client: read_log(client, topics, groups))
        for scene in self.scenes:
            self.ask(scene.read)
        self._within(HEALED_S, lambda: not any(map(_used, self.gateways)), "all room is given back")
        self._within(HEALED_S, self._is_folded, lambda: f"topics are folded; {self._unfolded} are not")
        self._is_ending = True
        for each in self.gateways:
            each.stop()
        self._within(HEALED_S, lambda: all(each.ended for each in self.gateways), "all gateways stop")
        assert all(each.has_flushed for each in self.gateways), "a gateway stops before all is flushed"

    def _is_folded(self) -> bool:
        """Whether the topics' tables have the files of the partitions; looks once in a second."""
        if self._unfolded and self.scheduler.now_us >= self._look_us:
            self._look_us = self.scheduler.now_us + 1_000_000
            topics = {TOPIC: PARTITIONS, COPY: PARTITIONS}
            topics |= {topic: count for scene in self.scenes for topic, count in scene.folded().items()}
            self._unfolded = unfolded(self.stores.main(), self.clock, topics)
        return not self._unfolded

    def _have_ended(self) -> bool:
        return all(process.dead or not _runs(process) for process, _ in self.clients)

    def _settle(self, task: Task, _: httpx.Client) -> None:
        """Send another transaction of the group, and wait for its records: then all before are applied."""
        current = self.scheduler.current
        assert current is not None
        gateways, group = self._asking(current.process, 5), task.group
        while True:
            name = f"{group}-end-{gateways.clock.unique_id()}"
            write = Write(name, tuple(Part(at, (f"{name}-{at}",)) for at in task.to), group=group)
            with self.history.doing(write) as doing:
                answer = transact(gateways, f"/consumers/{group}", write, name, (HAS_MEMBERS,))
                if answer.ok:
                    where = placed(write, answer)
                    doing.ok(where)
                    if None not in where.offsets:
                        return
                elif answer.outcome is Outcome.FAILED:
                    doing.failed()
            self.scheduler.pause(0.5)

    # Help.

    def _failed(self) -> bool:
        return bool(self.scheduler.failures)

    def _within(self, seconds: float, condition: Callable[[], bool], what: str | Callable[[], str]) -> None:
        """Let the world run until `condition` holds, for so many of its seconds."""
        until = self.scheduler.now_us + round(seconds * 1e6)
        try:
            while not (self._failed() or condition() or self.scheduler.now_us > until):
                self.scheduler.run(self._failed, LOOK_STEPS)
        except Deadlock:
            assert self._failed() or condition(), f"nothing happens any more: {_text(what)}"
        if not self._failed():
            assert condition(), f"not within {seconds:.0f} s: {_text(what)}"


def _used(simulated: SimulatedGateway) -> int:
    assert simulated.gateway is not None
    return simulated.gateway.buffer.used


def _text(what: str | Callable[[], str]) -> str:
    return what if isinstance(what, str) else what()


def _has_worked(client: Client, newest: Iterable[Operation], since: float) -> bool:
    if client.task.kind not in ALWAYS_WORK:
        return True  # the partitions of a topic may all be another member's
    return any(op.begin >= since and op.ok and _is_of(op, client.task) for op in newest)


def _is_of(op: Operation, task: Task) -> bool:
    asked = op.asked
    if isinstance(asked, Write):
        return asked.producer == task.name
    return not isinstance(asked, Write) and task.kind == "fetch" and getattr(asked, "at", None) == task.at


def _runs(process: Process) -> bool:
    return any(not thread.ended for thread in process.threads if thread is not process.loop_thread)
