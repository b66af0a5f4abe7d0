"""Processes in one thread, each with an event loop and threads, a step of one after a step of another.

What runs is a greenlet: it goes on until it reaches a point (`Scheduler.point`), waits for another, or ends.
Which one is next, and what happens at a point, is drawn from one seed. When nothing can run the time jumps to
the next timer. So a run is its seed. What stands between two points is atomic here, which it is not on a
machine.
"""

import heapq
from asyncio.events import _set_running_loop
from collections import deque
from collections.abc import Callable
from hashlib import blake2b

from greenlet import getcurrent, greenlet

from tests.simulation.chance import Chance

EPOCH_US = 1_700_000_000_000_000

LOG_KEPT = 400
"""The newest events, which the report of a failure shows."""


class Ended(BaseException):
    """The process, or the world, of this thread is over: nothing that it does has an effect."""


class Deadlock(AssertionError):
    """Somebody waits, and nothing will ever happen."""


class Thread:
    """A thread of `process`: the loop's, or one that runs `work`."""

    __slots__ = ("_green", "due", "name", "process", "waits", "woken")

    def __init__(self, process: "Process", name: str, work: Callable[[], object]) -> None:
        self.process, self.name = process, name
        self._green: greenlet = greenlet(work, process.scheduler.hub)
        self.waits, self.woken = False, False
        self.due: Timer | None = None

    @property
    def ended(self) -> bool:
        return bool(self._green.dead)

    def switch(self) -> None:
        self._green.switch()

    def end(self) -> None:
        """End it now: what it does meanwhile has no effect."""
        try:
            self._green.throw(Ended)
        except BaseException:  # noqa: BLE001 -- the world is over
            return


class Timer:
    """Something that is due at a time."""

    __slots__ = ("cancelled", "process", "then")

    def __init__(self, process: "Process | None", then: Callable[[], object]) -> None:
        self.process, self.then, self.cancelled = process, then, False


class Process:
    """A process, of which several may be on one machine. It dies at once, between two steps."""

    def __init__(self, scheduler: "Scheduler", name: str) -> None:
        from tests.simulation.clock import SimulatedClock
        from tests.simulation.event_loop import SimulatedLoop

        self.scheduler, self.name = scheduler, name
        self.dead = False
        self.stands_until_us = 0
        self.threads: dict[Thread, None] = {}
        self.clock = SimulatedClock(scheduler, name)
        self.loop = SimulatedLoop(self)
        self.loop_thread = Thread(self, f"{name}/loop", self.loop.serve)
        self.threads[self.loop_thread] = None
        self.loop_thread.waits = True
        self.died: list[Callable[[], None]] = []

    def start_thread(self, name: str, work: Callable[[], object]) -> Thread:
        """Run `work` in a thread of this process."""
        scheduler = self.scheduler

        def run() -> None:
            try:
                work()
            except Ended:
                return
            except BaseException as error:  # noqa: BLE001 -- told to whoever judges
                scheduler.failed(f"{self.name}/{name}", error)

        thread = Thread(self, f"{self.name}/{name}", run)
        self.threads[thread] = None
        scheduler.make_runnable(thread)
        return thread

    def kill(self) -> None:
        """End the process as `kill -9` does."""
        if self.dead:
            return
        self.dead = True
        self.scheduler.note("dies", self.name)
        for thread in self.threads:
            self.scheduler.forget(thread)
        for told in self.died:
            told()

    def stand_still(self, seconds: float) -> None:
        """Let nothing of this process run for so long, as if it had been stopped."""
        self.stands_until_us = self.scheduler.now_us + round(seconds * 1e6)
        self.scheduler.note("stands", f"{self.name} {seconds:.3f}")
        self.scheduler.at(self.stands_until_us, None, lambda: None)


class Scheduler:
    """The one who chooses what runs next; `now_us` is the time since its beginning, in microseconds."""

    def __init__(self, seed: int, keeps_log: bool = False) -> None:
        self.seed, self.random = seed, Chance(seed)
        self.hub = getcurrent()
        self.now_us = 0
        self.steps = 0
        self.processes: list[Process] = []
        self.current: Thread | None = None
        self.over = False
        self.failures: list[tuple[str, BaseException]] = []
        self.switches = 0.5
        """How often a thread that could go on at a point lets another one run."""
        self.log: deque[str] = deque(maxlen=None if keeps_log else LOG_KEPT)
        self._digest = blake2b(digest_size=16)
        self._runnable: list[Thread] = []
        self._timers: list[tuple[int, int, Timer]] = []
        self._numbers = 0

    # Who runs.

    def process(self, name: str) -> Process:
        made = Process(self, name)
        self.processes.append(made)
        return made

    def run(self, until: Callable[[], bool], steps: int | None = None) -> bool:
        """Let everybody run until `until` holds; False when `steps` were done before. Raises Deadlock when
        nothing can happen any more.
        """
        assert getcurrent() is self.hub
        last = None if steps is None else self.steps + steps
        while not until():
            if last is not None and self.steps >= last:
                return False
            self._step()
        return True

    def _step(self) -> None:
        thread = self._chosen()
        while thread is None:
            self._jump()
            thread = self._chosen()
        self.steps += 1
        self._run(thread)

    def _chosen(self) -> Thread | None:
        able = self._runnable
        if not able:
            return None
        now = self.now_us
        index = int(self.random.random() * len(able))
        thread = able[index]
        if thread.process.stands_until_us > now:
            awake = [each for each in able if each.process.stands_until_us <= now]
            if not awake:
                return None
            thread = awake[int(self.random.random() * len(awake))]
            index = able.index(thread)
        able[index] = able[-1]
        able.pop()
        return thread

    def _run(self, thread: Thread) -> None:
        self.current, process = thread, thread.process
        serves = thread is process.loop_thread
        if serves:
            _set_running_loop(process.loop)
        try:
            thread.switch()
        finally:
            if serves:
                _set_running_loop(None)
            self.current = None
        if thread.ended:
            process.threads.pop(thread, None)

    def _jump(self) -> None:
        """Let the time pass until something is due."""
        while self._timers:
            when, _, timer = heapq.heappop(self._timers)
            if timer.cancelled or (timer.process is not None and timer.process.dead):
                continue
            standing = timer.process.stands_until_us if timer.process is not None else 0
            if standing > when:
                self._push(standing, timer)
                continue
            self.now_us = max(self.now_us, when)
            timer.then()
            return
        raise Deadlock("nothing will ever happen")

    # What a thread does with its scheduler.

    def point(self, what: str) -> None:
        """A place where another thread may run. Raises Ended in a process that is over."""
        thread = self.current
        if self.over:
            raise Ended
        if thread is None or getcurrent() is self.hub:
            return
        self.note(thread.name, what)
        if self.random.random() < self.switches:
            self._runnable.append(thread)
            self._leave()

    def wait(self, until_us: int | None = None) -> bool:
        """Wait until somebody calls `wake` for this thread; False when `until_us` came before."""
        thread = self.current
        if self.over:
            raise Ended
        if thread is None or getcurrent() is self.hub:
            raise Deadlock("the world itself cannot wait")
        thread.waits, thread.woken = True, False
        if until_us is not None:
            thread.due = self.at(until_us, thread.process, lambda: self._wake(thread, False))
        self._leave()
        return thread.woken

    def _leave(self) -> None:
        self.hub.switch()
        if self.over:
            raise Ended

    def wake(self, thread: Thread) -> None:
        """Let a thread that waits go on."""
        self._wake(thread, True)

    def _wake(self, thread: Thread, woken: bool) -> None:
        if thread.waits and not thread.process.dead:
            thread.waits, thread.woken = False, woken
            if thread.due is not None:
                thread.due.cancelled = True
                thread.due = None
            self._runnable.append(thread)

    def make_runnable(self, thread: Thread) -> None:
        if not thread.process.dead:
            self._runnable.append(thread)

    def forget(self, thread: Thread) -> None:
        """Let it never run again."""
        thread.waits = False
        if thread in self._runnable:
            self._runnable.remove(thread)

    def pause(self, seconds: float) -> None:
        """Let `seconds` pass for the thread that runs."""
        if self.current is None:
            self.now_us += round(seconds * 1e6)
        else:
            self.wait(self.now_us + max(1, round(seconds * 1e6)))

    # Time.

    def at(self, when_us: int, process: Process | None, then: Callable[[], object]) -> Timer:
        """Call `then` at a time, unless `process` is dead by then."""
        timer = Timer(process, then)
        self._push(when_us, timer)
        return timer

    def _push(self, when_us: int, timer: Timer) -> None:
        self._numbers += 1
        heapq.heappush(self._timers, (when_us, self._numbers, timer))

    def sleep(self, seconds: float) -> None:
        """Let the machine be suspended for so long: nothing runs, and `monotonic` stands still."""
        self.note("world", f"sleeps {seconds:.0f} s")
        slept_us = round(seconds * 1e6)
        self.now_us += slept_us
        self._timers = [(when + slept_us, number, timer) for when, number, timer in self._timers]
        for process in self.processes:
            process.stands_until_us += slept_us
            process.clock.slept_us += slept_us

    def stop(self, seconds: float) -> None:
        """Let nothing run for so long: what was due meanwhile is due then."""
        self.note("world", f"is stopped for {seconds:.0f} s")
        self.now_us += round(seconds * 1e6)

    # What happened.

    def note(self, who: str, what: str) -> None:
        """Note an event: two runs of one seed have the same ones."""
        line = f"{self.now_us} {who} {what}"
        self._digest.update(line.encode())
        self.log.append(line)

    def failed(self, who: str, error: BaseException) -> None:
        """Note that something ended as nothing may."""
        if self.over:
            return  # what is amid something ends anyhow
        self.note(who, f"fails: {type(error).__name__}: {error}")
        self.failures.append((who, error))

    @property
    def digest(self) -> str:
        """A digest of all events so far."""
        return self._digest.hexdigest()

    def chance(self, of: float) -> bool:
        return self.random.random() < of

    def close(self) -> None:
        """End all threads."""
        self.over = True
        for process in self.processes:
            process.dead = True
            for thread in [*process.threads]:
                if not thread.ended:
                    thread.end()
            process.loop.end()
        self.processes.clear()
        self._timers.clear()
        self._runnable.clear()
