"""Who brings the faults into a world, and takes them away."""

import errno
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from tests.simulation.faults import Fault
from tests.simulation.scheduler import Process

if TYPE_CHECKING:
    from tests.simulation.bucket import BucketWeather
    from tests.simulation.network import Weather
    from tests.simulation.world import World

HOURS_MAX = 12.0

_STORE_CALLS = frozenset({"create", "open", "fsync", "link", "replace", "unlink", "scandir", "mkdir"})


class Nemesis:
    """The faults of one world."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._scheduler = world.scheduler
        self._down: set[int] = set()
        self.is_over = False

    def begin(self, fault: Fault) -> None:
        """Let it happen."""
        self._scheduler.note("nemesis", str(fault))
        getattr(self, f"_{fault.kind.name.lower()}")(fault)

    def end(self) -> None:
        """All faults stop, and who is down starts again."""
        self.is_over = True
        self._scheduler.note("nemesis", "ends")
        world = self._world
        world.network.weather.clear()
        world.network.cuts.clear()
        world.disk.calm()
        world.bucket.calm()
        for number in range(len(world.gateways)):
            self._restart(number)
        for process in self._scheduler.processes:
            process.stands_until_us = min(process.stands_until_us, self._scheduler.now_us)

    def _after(self, fault: Fault, then: Callable[[], object]) -> None:
        """Call `then` when the fault is over."""
        seconds = fault.steps / 200
        self._scheduler.at(self._scheduler.now_us + round(seconds * 1e6), None, then)

    def _restart(self, number: int) -> None:
        gateway = self._world.gateways[number]
        if gateway.process.dead:
            self._world.start_gateway(number)

    def _restart_later(self, fault: Fault, number: int) -> None:
        self._after(fault, lambda: None if self.is_over else self._restart(number))

    # Gateways.

    def _kill(self, fault: Fault) -> None:
        self._world.gateways[fault.target].process.kill()
        self._restart_later(fault, fault.target)

    def _stop(self, fault: Fault) -> None:
        gateway = self._world.gateways[fault.target]
        if not gateway.process.dead:
            gateway.stop()
        self._restart_later(fault, fault.target)

    def _stand(self, fault: Fault) -> None:
        self._world.gateways[fault.target].process.stand_still(fault.steps / 200)

    def _jump(self, fault: Fault) -> None:
        hours = (fault.amount - 0.5) * 48
        self._world.gateways[fault.target].process.clock.jump(round(hours * 3_600_000))

    def _kill_client(self, fault: Fault) -> None:
        living = [
            process
            for process, client in self._world.clients
            if not process.dead and client.task.kind != "make again"  # its last act must be known
        ]
        if len(living) > 1:
            living[fault.target % len(living)].kill()

    # Whoever else works, and all together.

    def _actors(self) -> list[Process]:
        return [process for actor in self._world.actors for process in actor.processes()]

    def _one(self, fault: Fault) -> Iterator[Process]:
        """One of them, where there are any."""
        found = self._actors()
        yield from found[int(fault.amount * len(found)) :][:1]

    def _kill_actor(self, fault: Fault) -> None:
        for process in self._one(fault):
            process.kill()

    def _stand_actor(self, fault: Fault) -> None:
        for process in self._one(fault):
            process.stand_still(fault.steps / 200)

    def _hours(self, fault: Fault) -> None:
        """Some hours, and for one of them all some seconds more."""
        seconds = 3600 * HOURS_MAX**fault.amount
        if fault.steps % 2:
            self._scheduler.sleep(seconds)
        else:
            self._scheduler.stop(seconds)
        if fault.steps % 3 == 0:
            found = [*(gateway.process for gateway in self._world.gateways), *self._actors()]
            found[fault.steps // 3 % len(found)].stand_still(fault.steps / 200)

    # The network.

    def _pair(self, fault: Fault) -> tuple[str, str]:
        processes = [each.process.name for each in self._world.gateways]
        processes += [process.name for process, _ in self._world.clients if not process.dead]
        one = processes[fault.target]
        others = [each for each in processes if each != one] or [one]
        return one, others[int(fault.amount * len(others))]

    def _cut(self, fault: Fault) -> None:
        one, other = self._pair(fault)
        self._cut_off(fault, {(one, other), (other, one)})

    def _cut_one_way(self, fault: Fault) -> None:
        self._cut_off(fault, {self._pair(fault)})

    def _cut_off(self, fault: Fault, pairs: set[tuple[str, str]]) -> None:
        cuts = self._world.network.cuts
        cuts |= pairs
        self._after(fault, lambda: cuts.difference_update(pairs))

    def _weather(self, fault: Fault, name: str, most: float) -> None:
        self._be(self._world.network.weather, fault, name, most)

    def _be(self, weather: "Weather | BucketWeather", fault: Fault, name: str, most: float) -> None:
        setattr(weather, name, most * fault.amount)
        self._after(fault, lambda: setattr(weather, name, 0.0))

    def _lose_requests(self, fault: Fault) -> None:
        self._weather(fault, "lost_request", 0.3)

    def _lose_answers(self, fault: Fault) -> None:
        self._weather(fault, "lost_answer", 0.3)

    def _double(self, fault: Fault) -> None:
        self._weather(fault, "doubled", 0.5)

    def _slow_network(self, fault: Fault) -> None:
        self._weather(fault, "slow", 0.5)

    # The store.

    def _slow_store(self, fault: Fault) -> None:
        disk, chance = self._world.disk, self._scheduler.random
        disk.delay = lambda _call: chance.random() * fault.amount if chance.random() < 0.2 else 0.0
        self._after(fault, disk.calm)
        self._bucket(fault, "slow_s", 1.0)

    def _bucket(self, fault: Fault, name: str, most: float) -> None:
        self._be(self._world.bucket.weather, fault, name, most)

    def _store_errors(self, fault: Fault) -> None:
        self._fail(fault, _STORE_CALLS, 0.02 + 0.2 * fault.amount)
        self._bucket(fault, "refused", 0.3)

    def _fsync_errors(self, fault: Fault) -> None:
        self._fail(fault, frozenset({"fsync"}), 0.1 + 0.5 * fault.amount)

    def _fail(self, fault: Fault, calls: Collection[str], share: float) -> None:
        disk, chance = self._world.disk, self._scheduler.random

        def fails(call: str, _path: str, _process: object) -> int:
            return errno.EIO if call in calls and chance.random() < share else 0

        disk.fault = fails
        self._after(fault, disk.calm)

    def _lost_answer(self, fault: Fault) -> None:
        disk, chance = self._world.disk, self._scheduler.random
        disk.lost = lambda call: call in ("link", "fsync", "unlink") and chance.random() < 0.1
        self._after(fault, disk.calm)
        self._bucket(fault, "lost_answer", 0.5)

    def _lost_call(self, fault: Fault) -> None:
        self._bucket(fault, "lost_call", 0.3)

    def _late_call(self, fault: Fault) -> None:
        self._bucket(fault, "late", 0.7)

    def _wrong_answer(self, fault: Fault) -> None:
        self._bucket(fault, "wrong", 1.0)

    def _full(self, fault: Fault) -> None:
        disk = self._world.disk
        disk.capacity = disk.used + round(20_000 * fault.amount)
        self._after(fault, disk.calm)

    def _power(self, fault: Fault) -> None:
        world = self._world
        for gateway in world.gateways:
            gateway.process.kill()
        for process in self._actors():
            process.kill()
        world.disk.cut(self._scheduler.random)
        for number in range(len(world.gateways)):
            self._restart_later(fault, number)
