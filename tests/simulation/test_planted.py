"""Each planted fault is found, by the seed that is noted or a few after it."""

import pytest

from tests.kit.support import ROOT
from tests.simulation.planted import FAULTS, NoLongerApplies, Planted, planted, run, search
from tests.simulation.runs import say

TRIED = 40
"""Seeds from the noted one on."""

FOUND_S = 600.0
"""Within this time a search from seed 0 on finds each."""

each = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)


@each
def test_a_planted_fault_is_found(fault: Planted) -> None:
    """Which seed finds it changes with each call of the store that our code makes; that some do, stays."""
    seeds = range(fault.seed, fault.seed + TRIED)
    assert any(run(fault, seed).problems for seed in seeds), (
        f"no seed of {seeds} finds it; the first that does is {_sought(fault)}"
    )


@pytest.mark.torture
@each
def test_a_search_finds_it_in_time(fault: Planted) -> None:
    found = _sought(fault)
    say(found)
    assert found.startswith("seed"), fault.name


def test_a_fault_that_no_longer_applies_says_which_one_it_is() -> None:
    module, function, name = FAULTS[0].module, FAULTS[0].function, "one that was here"
    for gone in (
        Planted(name, module, function, "what is there no longer", "", "", 0, 0),
        Planted(name, module, "no_function", FAULTS[0].before, FAULTS[0].after, "", 0, 0),
        Planted(name, module, "LocalStore.get", FAULTS[0].before, FAULTS[0].after, "", 0, 0),
    ):
        with pytest.raises(NoLongerApplies, match=name), planted(gone):
            pass


def test_the_page_has_each_of_them() -> None:
    page = (ROOT / "docs" / "testing.md").read_text().partition("\n## Planted faults\n")[2]
    rows = [line.strip("| ").split(" | ") for line in page.partition("\n## ")[0].splitlines() if "|" in line]
    assert rows[2:] == [
        [fault.name, fault.judge, fault.worlds, f"{fault.seed}", f"{fault.steps:,}"] for fault in FAULTS
    ]


def _sought(fault: Planted) -> str:
    found = search(fault, FOUND_S)
    if found is None:
        return f"no seed within {FOUND_S:.0f} s"
    return f"seed {found.plan.seed} after {found.steps:,} steps: {found.problems[0]}"
