"""Faults of a world, and when they come: a list that a seed draws, of which some may be left out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tests.simulation.chance import Chance


class Kind(StrEnum):
    """The kinds of faults. `target` counts gateways."""

    KILL = "kill -9"
    STOP = "an orderly stop"
    STAND = "a process that stands still"
    JUMP = "a wall clock that jumps"
    CUT = "a cut between two processes"
    CUT_ONE_WAY = "a cut in one direction"
    LOSE_REQUESTS = "requests are lost"
    LOSE_ANSWERS = "answers are lost"
    DOUBLE = "requests come twice"
    SLOW_NETWORK = "a slow network"
    SLOW_STORE = "a slow store"
    STORE_ERRORS = "calls of the store fail"
    FSYNC_ERRORS = "fsyncs fail"
    LOST_ANSWER = "the store does a call and does not say so"
    LOST_CALL = "calls of a bucket never arrive"
    LATE_CALL = "calls of a bucket are done after whoever asked has given up"
    WRONG_ANSWER = "a bucket says that an object is there which is the one that was put, or none"
    FULL = "a store that is full"
    POWER = "a power cut"
    KILL_CLIENT = "the death of a client"
    KILL_ACTOR = "the death of maintenance, or of whoever else works"
    STAND_ACTOR = "maintenance, or whoever else works, stands still"
    HOURS = "hours pass in which nobody runs"


@dataclass(frozen=True, slots=True)
class Fault:
    """One of them, from the step `at` on: for so many `steps`, where it ends by itself."""

    at: int
    kind: Kind
    target: int
    steps: int
    amount: float

    def __str__(self) -> str:
        return f"step {self.at}: {self.kind} ({self.target}, {self.steps} steps, {self.amount:.2f})"


OF_DISK = (Kind.FULL, Kind.FSYNC_ERRORS)
OF_BUCKET = (Kind.LOST_CALL, Kind.LATE_CALL, Kind.WRONG_ANSWER)

BUCKET = "bucket"
"""The profile of worlds whose root is always a bucket."""

PROFILES: Mapping[str, Sequence[Kind]] = {
    "calm": (),
    "deaths": (Kind.KILL, Kind.STOP, Kind.KILL_CLIENT),
    "network": (
        Kind.CUT,
        Kind.CUT_ONE_WAY,
        Kind.LOSE_REQUESTS,
        Kind.LOSE_ANSWERS,
        Kind.DOUBLE,
        Kind.SLOW_NETWORK,
    ),
    "store": (Kind.SLOW_STORE, Kind.STORE_ERRORS, Kind.LOST_ANSWER, Kind.FULL, *OF_BUCKET),
    "power": (Kind.POWER, Kind.POWER, Kind.KILL, Kind.STAND, Kind.FSYNC_ERRORS, Kind.SLOW_STORE),
    "clocks": (Kind.STAND, Kind.JUMP, Kind.KILL),
    "jobs": (Kind.HOURS, Kind.HOURS, Kind.KILL_ACTOR, Kind.STAND_ACTOR, Kind.STORE_ERRORS, Kind.LOST_ANSWER),
    "hours": (Kind.HOURS, Kind.KILL, Kind.STAND, Kind.POWER),
    BUCKET: (
        Kind.SLOW_STORE,
        Kind.STORE_ERRORS,
        Kind.LOST_ANSWER,
        *OF_BUCKET,
        Kind.KILL,
        Kind.STAND,
        Kind.KILL_ACTOR,
    ),
}
"""Faults that come together; without a profile a seed draws any."""


def drawn(chance: Chance, kinds: Sequence[Kind], steps: int, gateways: int) -> tuple[Fault, ...]:
    """Some faults of `kinds` in a run of so many steps."""
    if not kinds:
        return ()
    count = chance.randint(1, max(2, steps // 250))
    found = [
        Fault(
            chance.randrange(steps),
            chance.choice(kinds),
            chance.randrange(gateways),
            chance.randint(20, max(21, steps // 4)),
            chance.random(),
        )
        for _ in range(count)
    ]
    return tuple(sorted(found, key=lambda fault: fault.at))


def smallest(
    faults: Sequence[Fault], fails: Callable[[Sequence[Fault]], bool], most: int = 60
) -> Sequence[Fault]:
    """The least of `faults` with which it still `fails` (Zeller, Hildebrandt: ddmin), after up to `most`
    tries.
    """
    size = max(1, len(faults) // 2)
    while faults and most > 0:
        for start in range(0, len(faults), size):
            fewer = [*faults[:start], *faults[start + size :]]
            most -= 1
            if fails(fewer):
                faults = fewer
                break
        else:
            if size == 1:
                break
            size = max(1, size // 2)
            continue
        size = max(1, min(size, len(faults) // 2))
    return faults
