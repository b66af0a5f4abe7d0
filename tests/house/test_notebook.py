"""The notebook of docs/, at a real gateway."""

from pathlib import Path

import pytest

from tests.kit.notebook import executed, outputs, stored


@pytest.mark.usefixtures("process")
def test_the_notebook_gives_what_it_shows(tmp_path: Path) -> None:
    """`python -m tests.kit.notebook` shows what it gives now."""
    shown = [*outputs(stored())]
    assert [*outputs(executed(tmp_path))] == shown
    assert [kind for kind, _ in shown].count("image/png") == 2
