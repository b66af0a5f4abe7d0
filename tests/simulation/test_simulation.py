"""Seeded worlds: nothing that is promised is broken, and a seed is its run."""

import os
import subprocess
import sys

import pytest

from log_tables.clock import SystemClock
from tests.kit.support import ROOT
from tests.simulation.faults import BUCKET, Fault, Kind, smallest
from tests.simulation.runs import report, run_seed, say

STEPS = 2_000
TOGETHER = 10
FIXED = [*range(0, 240, TOGETHER)]
NEW = [*range(0, 60, TOGETHER)]


@pytest.mark.parametrize("first", FIXED)
def test_worlds_of_fixed_seeds_keep_what_they_promise(first: int) -> None:
    _run_all(first)


@pytest.mark.parametrize("first", NEW)
def test_worlds_of_new_seeds_keep_what_they_promise(first: int) -> None:
    """They are printed, and a failure says how to repeat it."""
    drawn = 1_000_000 + TOGETHER * int(SystemClock().random_hex(8), 16)
    say(f"seeds from {drawn + first} on")
    _run_all(drawn + first)


def _run_all(first: int) -> None:
    for seed in range(first, first + TOGETHER):
        found = run_seed(seed, STEPS)
        assert not found.problems, report(found)


@pytest.mark.parametrize("profile", ["any", BUCKET])
def test_a_seed_is_its_run_in_any_process(profile: str) -> None:
    """The order of sets, the addresses of objects and the names of files differ between them."""
    seed = 7
    found = run_seed(seed, STEPS, profile)
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(seed), "--steps", str(STEPS)]
    command += ["--profile", profile]
    for hash_seed in ("1", "2"):
        said = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=False,
        )
        assert said.stdout == f"seed {seed}: {found.steps} steps, {found.digest}\n", said.stderr


def test_a_failure_is_made_small_by_leaving_out_faults() -> None:
    faults = [Fault(at, Kind.KILL, at % 3, 50, 0.5) for at in range(40)]

    def fails(some: "list[Fault] | tuple[Fault, ...]") -> bool:
        ats = {fault.at for fault in some}
        return {7, 31} <= ats

    assert [fault.at for fault in smallest(faults, fails, most=200)] == [7, 31]  # type: ignore[arg-type]
