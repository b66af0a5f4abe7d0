"""Run simulated worlds: `python -m tests.simulation --minutes 10`, or `--seed N` to repeat one."""

import argparse
import os
from itertools import count, takewhile

from log_tables.clock import timer
from tests.simulation.faults import PROFILES
from tests.simulation.runs import report, run_seed, runs, say

SAY_EVERY_S = 30.0


def main() -> int:
    """The exit status: 1 when a world has failed."""
    asked = _arguments()
    if asked.seed is not None:
        found = run_seed(asked.seed, asked.steps, asked.profile)
        say(report(found) if found.problems else f"seed {asked.seed}: {found.steps} steps, {found.digest}")
        return 1 if found.problems else 0
    began = last = timer()
    seeds = count(asked.start) if asked.minutes else range(asked.start, asked.start + asked.seeds)
    within = takewhile(lambda _: not asked.minutes or timer() - began < 60 * asked.minutes, seeds)
    worlds, steps, failed = 0, 0, []
    for found in runs(within, asked.steps, asked.profile, asked.workers):
        worlds, steps = worlds + 1, steps + found.steps
        if found.problems:
            failed.append(found.plan.seed)
            say(report(found))
        if timer() - last > SAY_EVERY_S:
            last = timer()
            say(f"{worlds} worlds, {steps:,} steps, {len(failed)} failed")
    say(f"{worlds} worlds, {steps:,} steps in {timer() - began:.0f} s, failed: {failed or 'none'}")
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one, and say all of it if it fails")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=300, help="how many")
    parser.add_argument("--minutes", type=float, default=0, help="go on for so long instead")
    parser.add_argument("--steps", type=int, default=2_000, help="of each world, before it heals")
    parser.add_argument("--profile", default="", choices=["", "any", *PROFILES], help="the faults")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
