"""Each planted fault is found by the run that says so, and not where it is not planted."""

import pytest

from tests.simulation.planted import FAULTS, Planted, run, search
from tests.simulation.world import World

FOUND_S = 600.0
"""Within this time a search from seed 0 on finds each."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(fault: Planted) -> None:
    found = run(fault, fault.seed)
    assert any(fault.judge in each for each in found.problems), (
        f"seed {fault.seed} says {found.problems or 'nothing'}; give it the one that the long version of "
        "this test finds"
    )


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_nothing_is_found_where_it_is_not_planted(fault: Planted) -> None:
    assert not World(fault.plan(fault.seed)).run().problems


@pytest.mark.torture
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_search_finds_it_in_time(fault: Planted) -> None:
    found = search(fault, FOUND_S)
    assert found is not None
    print(f"seed {found.plan.seed}, {found.steps:,} steps: {found.problems[0]}")  # noqa: T201 -- for the table
