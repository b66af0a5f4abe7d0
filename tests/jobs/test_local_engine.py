"""The workers of the local engine: what they load, that they start again, and that they end with their
parent.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.engine import Failure
from jobs.local_engine import LocalEngine
from tests.kit.processes import alive, children, command
from tests.kit.support import ROOT, wait_until

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="no /proc: it shows whose child is whose"
)

WORKER = "jobs.local_worker"


def loaded(_: int) -> list[str]:
    """The packages that this process has imported."""
    return sorted({name.partition(".")[0] for name in sys.modules})


def first_time(file: str) -> bool:
    """Dies where `file` is not there yet."""
    if not Path(file).exists():
        Path(file).touch()
        os._exit(1)
    return True


def say(what: str) -> str:
    os.write(1, what.encode())
    return what


def ignored(_: int) -> list[signal.Signals]:
    return [number for number in signal.Signals if signal.getsignal(number) is signal.SIG_IGN]


def end_itself(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def niceness(_: int) -> int:
    return os.nice(0)


def process_id(_: int) -> int:
    return os.getpid()


def stay(directory: str) -> None:
    """For ever; a file named after the process says that it works."""
    Path(directory, str(os.getpid())).touch()
    threading.Event().wait()


@pytest.fixture
def local(process: None) -> Iterator[LocalEngine]:
    made = LocalEngine(2)
    yield made
    made.end_run()


def workers(parent: int) -> list[int]:
    return [pid for pid in children(parent) if WORKER in command(pid)]


def test_a_worker_loads_no_more_than_the_log(local: LocalEngine) -> None:
    (names,) = local.spread(loaded, [0])
    assert not isinstance(names, Failure)
    assert {"log_tables", "jobs"} <= set(names)
    assert not {"api", "ingest", "lakelog", "pydantic", "pyspark", "py4j", "typer", "fastapi"} & set(names)


def test_an_item_whose_worker_died_is_tried_once_more_alone(local: LocalEngine, tmp_path: Path) -> None:
    assert local.spread(first_time, [str(tmp_path / "a"), str(tmp_path / "b")]) == [True, True]


def test_an_item_that_ends_its_worker_fails_with_how_that_ended(local: LocalEngine) -> None:
    (ended,) = local.spread(os._exit, [3])
    said = "the worker process ended with exit code 3; what it printed to standard error says why"
    assert ended == Failure(said)
    (killed,) = local.spread(end_itself, [signal.SIGKILL])
    assert "killed, as it is when memory runs out" in str(killed)


def test_workers_stand_back_as_far_as_is_said_and_come_forward_again(local: LocalEngine) -> None:
    here = os.nice(0)
    for back in (3, 0, 5):
        local.niceness = back
        assert local.spread(niceness, [0]) == [here + back]


def test_what_a_task_prints_is_no_answer(local: LocalEngine, capfd: pytest.CaptureFixture[str]) -> None:
    assert local.spread(say, ["hello", "again"]) == ["hello", "again"]
    assert capfd.readouterr().out == ""


def test_signals_are_for_the_parent(local: LocalEngine) -> None:
    (found,) = local.spread(ignored, [0])
    assert not isinstance(found, Failure)
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGHUP} <= set(found)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_in_the_midst_of_their_work_with_their_parent(
    tmp_path: Path, number: signal.Signals
) -> None:
    """And with them go the files of a shuffle."""
    busy, scratch = tmp_path / "busy", tmp_path / "scratch"
    busy.mkdir()
    scratch.mkdir()
    program = (
        "from jobs.local_engine import LocalEngine; from tests.jobs.test_local_engine import stay; "
        f"LocalEngine(2).spread(stay, [{str(busy)!r}] * 3)"
    )
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, env=environment) as parent:
        wait_until(lambda: len([*busy.iterdir()]) == 2, "both workers work")
        family = workers(parent.pid)
        assert len(family) == 2
        assert len([*scratch.iterdir()]) == 1
        parent.send_signal(number)
        parent.wait()
    wait_until(lambda: not any(map(alive, family)), "the workers end")
    assert [*scratch.iterdir()] == []


def test_workers_stay_for_a_run_and_no_longer(local: LocalEngine) -> None:
    first = local.spread(process_id, [0])
    assert local.spread(process_id, [1, 2])[0] in (*first, *workers(os.getpid()))
    assert first[0] in workers(os.getpid())
    local.end_run()
    assert workers(os.getpid()) == []
    assert local.spread(process_id, [0]) != first
