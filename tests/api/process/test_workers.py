"""`lakelog serve --workers`: several gateways behind one port, which start, die and end together."""

import os
import signal
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from api.process.workers import socket_directory
from tests.kit.gateway import NEVER_MS, RunningGateway, start_gateway
from tests.kit.processes import alive, children, command, send
from tests.kit.several import LONG_S, Load, brokers, leaders
from tests.kit.support import exit_code, wait_until

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc: it shows processes")


def workers(gateway: RunningGateway) -> set[int]:
    """The process ids of the workers; another child of theirs is multiprocessing's resource tracker."""
    return {pid for pid in children(gateway.process.pid) if "spawn_main" in command(pid) and alive(pid)}


def sockets(gateway: RunningGateway) -> set[Path]:
    """The Unix sockets at which the workers listen."""
    inodes = {
        os.readlink(file)[len("socket:[") : -1]
        for pid in workers(gateway)
        for file in Path(f"/proc/{pid}/fd").iterdir()
        if os.readlink(file).startswith("socket:[")
    }
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    return {Path(line[7]) for line in lines if len(line) > 7 and line[6] in inodes and "lakelog-" in line[7]}


@contextmanager
def running_workers(root: Path, **settings: object) -> Iterator[RunningGateway]:
    """Two workers that never take each other for dead, on a busy machine, too; none is left at the end."""
    gateway = start_gateway(root, "--workers", "2", **{"leader_timeout_ms": NEVER_MS, **settings})
    started = workers(gateway)
    try:
        yield gateway
    finally:
        started |= workers(gateway)
        gateway.stop()
        left = [pid for pid in started if alive(pid)]
        send(signal.SIGKILL, left)
        assert left == []


def alive_brokers(url: str) -> dict[int, str]:
    """The URL of each live broker, by number."""
    return {each["broker"]: each["url"] for each in brokers(url) if each["alive"]}


def test_workers_are_gateways_behind_one_port(tmp_path: Path) -> None:
    with running_workers(tmp_path, linger_ms=0) as gateway:
        wait_until(lambda: len(alive_brokers(gateway.url)) == 2, "both are known", LONG_S)
        gateway.create_topic("t", 4)
        for index in range(4):
            assert gateway.produce("t", index, partition=index).status_code == 200
        wait_until(
            lambda: sorted(Counter(leaders(gateway.url, "t")).values()) == [2, 2], "each leads two", LONG_S
        )
        urls = [*alive_brokers(gateway.url).values()]
        assert len({gateway.url, *urls}) == 3
        for url in (gateway.url, *urls):
            for index in range(4):
                records = httpx.get(f"{url}/topics/t/partitions/{index}/records?offset=0", timeout=LONG_S)
                assert [record["value"] for record in records.json()] == [index]


def test_new_connections_are_shared_out(tmp_path: Path) -> None:
    with running_workers(tmp_path, linger_ms=0) as gateway:
        wait_until(lambda: len(alive_brokers(gateway.url)) == 2, "both are known", LONG_S)
        gateway.create_topic("t", 2)

        def both_have_served() -> bool:
            with httpx.Client(base_url=gateway.url, timeout=LONG_S) as connection:
                assert replace(gateway, client=connection).produce("t", 1).status_code == 200
            return all('lakelog_produce_records_total{topic="t"}' in each for each in metrics(gateway))

        wait_until(both_have_served, "both workers have answered at the shared port", LONG_S)


def metrics(gateway: RunningGateway) -> list[str]:
    """The text of `/metrics`, from each worker."""
    urls = alive_brokers(gateway.url).values()
    return [httpx.get(f"{url}/metrics", timeout=LONG_S).text for url in urls]


def test_one_line_says_that_all_are_ready_and_sigterm_ends_all(tmp_path: Path) -> None:
    gateway = start_gateway(tmp_path, "--workers", "2")
    started = workers(gateway)
    assert len(started) == 2
    assert gateway.stop() == 0
    assert gateway.process.stdout is not None
    assert gateway.process.stdout.read() == ""
    assert not [pid for pid in started if alive(pid)]


def test_sigterm_to_every_process_ends_all_in_order(tmp_path: Path) -> None:
    gateway = start_gateway(tmp_path, "--workers", "2", linger_ms=60_000)
    gateway.create_topic("t")
    assert gateway.produce("t", "taken, not yet durable", partition=0, acks="1").status_code == 200
    send(signal.SIGTERM, [gateway.process.pid, *workers(gateway)])
    assert exit_code(gateway.process) == 0
    with running_workers(tmp_path) as again:
        assert len(again.client.get("/topics/t/partitions/0/records", params={"offset": 0}).json()) == 1


def test_a_port_is_not_shared_with_others_by_mistake(tmp_path: Path) -> None:
    with running_workers(tmp_path) as gateway:
        port = gateway.url.rsplit(":", 1)[1]
        command = [sys.executable, "-m", "lakelog", "serve", "--data", str(tmp_path), "--workers", "2"]
        refused = subprocess.run([*command, "--port", port], capture_output=True, text=True, check=False)
        assert refused.returncode == 1
        assert f"127.0.0.1:{port} is taken by a lakelog gateway" in refused.stderr


def test_ctrl_c_once_ends_all_in_order(tmp_path: Path) -> None:
    gateway = start_gateway(tmp_path, "--workers", "2", linger_ms=60_000)
    gateway.create_topic("t")
    assert gateway.produce("t", "taken, not yet durable", partition=0, acks="1").status_code == 200
    started = workers(gateway)
    os.kill(gateway.process.pid, signal.SIGINT)
    assert exit_code(gateway.process) == 0
    assert not [pid for pid in started if alive(pid)]
    with running_workers(tmp_path) as again:
        assert len(again.client.get("/topics/t/partitions/0/records", params={"offset": 0}).json()) == 1


def test_ctrl_c_while_they_start_ends_them_without_a_word(tmp_path: Path) -> None:
    """A terminal sends it to every process of the group."""
    starting = [
        sys.executable,
        "-m",
        "lakelog",
        "serve",
        "--port",
        "0",
        "--data",
        str(tmp_path),
        "--workers",
        "2",
    ]
    with subprocess.Popen(starting, text=True, stderr=subprocess.PIPE, process_group=0) as process:

        def started() -> list[int]:
            return [pid for pid in children(process.pid) if "spawn_main" in command(pid)]

        wait_until(lambda: len(started()) == 2, "both are starting")
        os.killpg(process.pid, signal.SIGINT)
        code = exit_code(process)
        assert process.stderr is not None
        said = [line for line in process.stderr if "made a new one" not in line]  # the root
        assert (code, said) == (0, [])


def test_a_worker_that_is_killed_comes_back_in_its_place(tmp_path: Path) -> None:
    with running_workers(tmp_path, linger_ms=0) as gateway:
        wait_until(lambda: len(alive_brokers(gateway.url)) == 2, "both are known", LONG_S)
        before, started = alive_brokers(gateway.url), workers(gateway)
        killed = min(started)
        send(signal.SIGKILL, [killed])
        wait_until(lambda: len(workers(gateway) - {killed}) == 2, "it is started again", LONG_S)

        def back() -> bool:
            answers = [httpx.get(f"{url}/ready", timeout=LONG_S).status_code for url in before.values()]
            return answers == [200, 200]

        wait_until(lambda: _answers(back), "both answer", LONG_S)
        assert alive_brokers(gateway.url) == before
        gateway.create_topic("t", 2)
        assert [gateway.produce("t", 1, partition=index).status_code for index in range(2)] == [200, 200]


def _answers(ask: Callable[[], bool]) -> bool:
    try:
        return ask()
    except httpx.TransportError:
        return False


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    gateway = start_gateway(tmp_path, "--workers", "2")
    started = workers(gateway)
    [directory] = {path.parent for path in sockets(gateway)}
    gateway.kill()
    wait_until(lambda: not any(map(alive, started)), "no worker is left", LONG_S)
    assert not directory.exists()


def test_workers_cannot_all_be_reached_at_one_url(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lakelog", "serve", "--data", str(tmp_path), "--workers", "2"]
    refused = subprocess.run(
        [*command, "--port", "0", "--set", "peer_url=http://here:1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode not in (0, -signal.SIGTERM)
    assert "peer_url='http://here:1'" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not list(tmp_path.iterdir())


def test_workers_meet_in_a_directory_that_is_their_users_and_goes_with_them(tmp_path: Path) -> None:
    with running_workers(tmp_path) as gateway:
        [directory] = {path.parent for path in sockets(gateway)}
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert len([*directory.iterdir()]) == 2
    assert not directory.exists()


def test_where_no_socket_can_be_the_workers_are_told_of_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    for parent, why in ((tmp_path / "missing", "No such file"), (deep, "too long")):
        caplog.clear()
        with socket_directory(parent) as made:
            assert made is None
        assert why in caplog.text
    assert [*deep.iterdir()] == []


def test_a_worker_that_is_killed_under_load_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Half of the records are on their way to the other worker when it dies."""
    with running_workers(tmp_path / "root", leader_timeout_ms=2_000, linger_ms=1) as gateway:
        wait_until(lambda: len(alive_brokers(gateway.url)) == 2, "both are known", LONG_S)
        load = Load(tmp_path, [gateway.url])
        load.start()
        try:
            load.wait_for_all()
            for _ in range(2):
                killed = min(workers(gateway))
                send(signal.SIGKILL, [killed])
                wait_until(lambda: len(workers(gateway) - {killed}) == 2, "it is started again", LONG_S)  # noqa: B023
                load.wait_for_all(2)
            assert load.findings() == []
        finally:
            load.work.end()
