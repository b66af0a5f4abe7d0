"""The clocks of a simulated process: those of its world, which may be set, and stand still."""

from tests.simulation.chance import Chance
from tests.simulation.scheduler import EPOCH_US, Scheduler


class SimulatedClock:
    """The clock of one machine, and what is random there (log_tables/clock.py)."""

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self._scheduler = scheduler
        self._random = Chance(f"{scheduler.seed}/{name}")
        self.jumped_us = self.slept_us = 0

    def jump(self, ms: int) -> None:
        """Set the wall clock forward or (negative) back."""
        self.jumped_us += ms * 1_000

    def now_us(self) -> int:
        return EPOCH_US + self._scheduler.now_us + self.jumped_us

    def now_ms(self) -> int:
        return self.now_us() // 1_000

    def monotonic(self) -> float:
        return (self._scheduler.now_us - self.slept_us) / 1e6

    def boottime(self) -> float:
        return self._scheduler.now_us / 1e6

    def processor_s(self) -> float:
        return 0.0

    def unique_id(self) -> str:
        return self.random_hex(32)

    def random_hex(self, digits: int) -> str:
        return f"{self._random.getrandbits(digits * 4):0{digits}x}"

    def random(self) -> float:
        return self._random.random()

    def pause(self, seconds: float) -> None:
        self._scheduler.pause(seconds)
