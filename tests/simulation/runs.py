"""Runs of many seeds: what failed, made small, and whether a seed is its run."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context

from tests.simulation.faults import Fault, smallest
from tests.simulation.world import Plan, RunOutcome, World

TWICE_EVERY = 100
"""Of so many seeds one runs twice, and has to have the same events."""


def run(plan: Plan, keeps_log: bool = False) -> RunOutcome:
    """One run of `plan`."""
    return World(plan, keeps_log).run()


def run_seed(seed: int, steps: int, profile: str = "") -> RunOutcome:
    """The run of a seed. It has a problem too if it is another one when it is run again, as some are."""
    plan = Plan.of(seed, steps, profile)
    found = run(plan)
    if seed % TWICE_EVERY == 0:
        again = run(plan)
        if again.digest != found.digest:
            found.problems.append(difference(plan))
    return found


def difference(plan: Plan) -> str:
    """Where two runs of a plan part."""
    one, other = run(plan, keeps_log=True).log, run(plan, keeps_log=True).log
    for number, (first, second) in enumerate(zip(one, other, strict=False)):
        if first != second:
            return f"two runs of one seed part at event {number}: {first!r} and {second!r}"
    return f"two runs of one seed have {len(one)} and {len(other)} events"


def small(plan: Plan) -> Plan:
    """`plan` with as few faults as it takes to fail, in any way."""

    def fails(faults: Sequence[Fault]) -> bool:
        return bool(run(replace(plan, faults=tuple(faults))).problems)

    return replace(plan, faults=tuple(smallest(plan.faults, fails)))


def report(found: RunOutcome) -> str:
    """All that is known of a run that failed: how to repeat it, and with how few faults."""
    plan = small(found.plan)
    again = run(plan, keeps_log=True)
    log = [*again.log]
    chosen = f" --profile {plan.profile}" if plan.is_chosen else ""
    faults = f"{len(found.plan.faults)} faults, profile {plan.profile}"
    return "\n".join(
        [
            f"seed {plan.seed} fails after {found.steps} steps ({faults}); repeat it:",
            f"    python -m tests.simulation --seed {plan.seed} --steps {plan.steps}{chosen}",
            *(f"  {problem}" for problem in found.problems),
            f"The last {min(len(log), 60)} of {len(log)} events of a run with {len(plan.faults)} faults:",
            *(f"  {fault}" for fault in plan.faults),
            *log[-60:],
            *(f"  {problem}" for problem in again.problems),
        ]
    )


def runs(seeds: Iterable[int], steps: int, profile: str, workers: int) -> Iterator[RunOutcome]:
    """The runs of `seeds`, as they end, in so many processes."""
    if workers == 1:
        yield from map(partial(run_seed, steps=steps, profile=profile), seeds)
        return
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        yield from pool.map(partial(run_seed, steps=steps, profile=profile), seeds, chunksize=4)


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
