"""Ctrl-C ends a Spark job in order; a job whose session was lost says so."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.kit.support import ROOT

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def left() -> Any:
    """The JSON that the program `tests.kit.interrupted` prints."""
    command = [sys.executable, "-m", "tests.kit.interrupted"]
    ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, start_new_session=True)
    return json.loads(ended.stdout)


def test_ctrl_c_lets_the_job_that_runs_finish(left: dict[str, object]) -> None:
    assert (left["done"], left["stopping"]) == ([0, 10, 20], True)


@pytest.mark.skipif(sys.platform != "linux", reason="only there it is of a thread")
def test_the_processes_of_spark_stand_back_and_their_parent_does_not(left: dict[str, Any]) -> None:
    here = os.nice(0)
    assert left["niceness"] == [here, here + left["asked"]]


def test_a_stopped_session_is_not_taken_for_items_that_fail(left: dict[str, object]) -> None:
    assert left["gone"] == "the Spark session of this process was stopped; start it again"
