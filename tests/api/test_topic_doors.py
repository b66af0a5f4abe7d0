"""Every door that changes topics: its answers and its events are what they were when they were recorded.

`python -m tests.kit.topic_doors tests/api/topic_doors.json` records them again.
"""

import json
from pathlib import Path

import pytest

from tests.kit.topic_doors import Outcome, outcomes

RECORDED = json.loads(Path(__file__).with_name("topic_doors.json").read_text())


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Outcome]]:
    return outcomes(tmp_path_factory.mktemp("doors"))


@pytest.mark.parametrize("door", RECORDED)
def test_requests_are_answered_and_audited_as_recorded(found: dict[str, list[Outcome]], door: str) -> None:
    for now, before in zip(found[door], RECORDED[door], strict=True):
        assert now == before


def test_every_door_is_recorded(found: dict[str, list[Outcome]]) -> None:
    assert [*found] == [*RECORDED]
