"""The processes that a gateway runs beside it, by `lakelog serve --maintain` and `--mirror`: they go where
their gateway goes.
"""

import subprocess
from pathlib import Path

import pytest

from ingest.settings import load_settings
from lakelog.cli.beside import RESTARTS, next_pause_s
from lakelog.cli.maintainer import maintainer
from log_tables.clock import Backoff
from tests.kit.gateway import RunningGateway, start_gateway
from tests.kit.maintenance import Root, errors
from tests.kit.maintenance import run as run_all
from tests.kit.processes import alive, command, descendants
from tests.kit.support import wait_until


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


no_proc = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="no /proc: it shows whose child is whose"
)


def scheduler_of(gateway: RunningGateway) -> int:
    """The process that runs maintenance beside it."""

    def found() -> list[int]:
        return [pid for pid in descendants(gateway.process.pid) if " maintain " in command(pid)]

    wait_until(lambda: bool(found()), "the gateway has started its scheduler")
    return found()[0]


@no_proc
def test_a_gateway_starts_its_scheduler_again_and_takes_it_along(root: Root) -> None:
    settings: dict[str, object] = {"maintain_interval_ms": 1_000, "log_level": "warning"}
    settings |= {"maintain_engine": "local", "maintain_local_max_bytes": "1 KiB"}
    gateway = start_gateway(root.directory / "here", "--maintain", **settings)
    first = scheduler_of(gateway)
    words, variables = command(first), Path(f"/proc/{first}/environ").read_text().split("\0")
    cluster_id = gateway.cluster.rsplit("/", 1)[1]
    assert {"LAKELOG_MUST_EXIST=true", f"LAKELOG_CLUSTER_ID={cluster_id}"} <= {*variables}
    assert "log_level=warning" in words
    assert "--engine local " in words
    assert "maintain_local_max_bytes=1024 " in words
    subprocess.run(["kill", "-9", str(first)], check=True)
    wait_until(lambda: not alive(first), "it is gone")
    second = scheduler_of(gateway)
    assert gateway.stop() == 0
    assert not alive(second)


@pytest.mark.parametrize(
    ("before_s", "ran_s", "expected"),
    [
        (0, 1, RESTARTS.first_s),
        (RESTARTS.first_s, 1, 2 * RESTARTS.first_s),
        (RESTARTS.max_s - 1, 1, RESTARTS.max_s),
        (RESTARTS.max_s, RESTARTS.max_s, RESTARTS.max_s),
        (RESTARTS.max_s, RESTARTS.max_s + 1, RESTARTS.first_s),
    ],
)
def test_a_scheduler_that_ends_again_and_again_is_left_alone_for_longer(
    before_s: float, ran_s: float, expected: float
) -> None:
    assert next_pause_s(RESTARTS, before_s, ran_s) == expected


@pytest.mark.usefixtures("process")
def test_a_scheduler_that_cannot_run_is_tried_more_and_more_seldom(
    root: Root, caplog: pytest.LogCaptureFixture
) -> None:
    settings = load_settings(data=str(root.directory / "here"), remote_root="nowhere://")
    with maintainer(settings, Backoff(0.01, max_s=60.0)):
        wait_until(lambda: len(caplog.messages) >= 3, "it has ended three times")
    ended = "maintenance ended with exit code 2; it is started again in"
    assert caplog.messages[:3] == [f"{ended} {pause_s} s" for pause_s in ("0.01", "0.02", "0.04")]


@no_proc
def test_a_scheduler_goes_when_its_gateway_was_killed(root: Root) -> None:
    gateway = start_gateway(root.directory / "here", "--maintain", maintain_interval_ms=1_000)
    scheduler = scheduler_of(gateway)
    family = [scheduler, *descendants(scheduler)]
    gateway.kill()
    wait_until(lambda: not any(map(alive, family)), "the scheduler ends")
    assert errors(run_all(root.opened())) == {}


@no_proc
def test_a_mirror_runs_beside_its_gateway_and_goes_with_it(root: Root) -> None:
    gateway = start_gateway(root.directory / "here", "--mirror")

    def found() -> list[int]:
        return [pid for pid in descendants(gateway.process.pid) if " mirror run " in command(pid)]

    wait_until(lambda: bool(found()), "the gateway has started it")
    (mirror,) = found()
    gateway.kill()
    wait_until(lambda: not alive(mirror), "it ends")
