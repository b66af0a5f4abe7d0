"""The systemd units: systemd reads them without a complaint, they may do little, and their commands run."""

import re
import shutil
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ingest.settings import Settings
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.deployed import DEPLOY, LAKELOG, answers, ended, environment_of, running
from tests.kit.support import free_port, wait_until

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
INSTALLED = "/opt/lakelog/bin/lakelog"
EXPOSURE_MAX = 2.0
"""Of ten: systemd calls less than that safe."""

Unit = dict[str, list[str]]


def read(path: Path) -> Unit:
    """The lines of [Service], each name with its values."""
    found: Unit = {}
    section = path.read_text().partition("[Service]")[2].partition("[Install]")[0]
    for name, value in re.findall(r"^(\w+)=(.*)$", section, re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


def analyze(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze: install systemd, whose units these are")
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, check=False)


def test_the_units_are_here() -> None:
    ours = ["lakelog-maintenance", "lakelog-mirror", "lakelog-replicate", "lakelog"]
    assert [unit.stem for unit in UNITS] == ["apicurio", *ours]


@pytest.mark.parametrize(
    "unit", [unit for unit in UNITS if unit.stem != "apicurio"], ids=lambda unit: unit.stem
)
def test_a_unit_waits_for_the_mount_of_its_root(unit: Path) -> None:
    (data,) = re.findall(r'^data = "(.+)"$', (DEPLOY / "systemd" / "lakelog.toml").read_text(), re.MULTILINE)
    assert f"\nRequiresMountsFor={data}" in unit.read_text().partition("[Service]")[0]


def test_systemd_reads_the_units_without_a_complaint(tmp_path: Path) -> None:
    program = tmp_path / "lakelog"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for unit in UNITS:
        text = unit.read_text().replace(INSTALLED, str(program)).replace("/usr/bin/java", str(program))
        (tmp_path / unit.name).write_text(text)
    done = analyze("verify", "--man=no", *(tmp_path / unit.name for unit in UNITS))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_may_do_little(unit: Path) -> None:
    found = re.search(r"exposure level for \S+: ([\d.]+)", analyze("security", "--offline=true", unit).stdout)
    assert found is not None
    assert float(found[1]) < EXPOSURE_MAX


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_stop_reaches_the_first_process_alone_and_has_time(unit: Path) -> None:
    service = read(unit)
    assert service["KillMode"] == ["mixed"]
    assert int(service["TimeoutStopSec"][0]) >= 60
    assert service["User"] == [unit.stem.partition("-")[0]]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_is_started_again_however_often_it_fails(unit: Path) -> None:
    assert "\nStartLimitIntervalSec=0\n" in unit.read_text().partition("[Service]")[0]
    assert read(unit)["Restart"] == ["on-failure"]


class Machine:
    """A machine on which the units are installed, below `directory`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port, self.metrics_port = free_port(), free_port()
        (directory / "etc").mkdir()
        (directory / "state").mkdir()
        text = self.here((DEPLOY / "systemd" / "lakelog.toml").read_text())
        (directory / "etc" / "lakelog.toml").write_text(text)

    def here(self, text: str) -> str:
        """A file of the units with this machine's paths and ports."""
        for path, place in (("/etc/lakelog", "etc"), ("/var/lib/lakelog", "state"), ("/mnt", "mnt")):
            text = text.replace(path, str(self.directory / place))
        return text.replace("8082", str(self.port)).replace("9091", str(self.metrics_port))

    def start(self, name: str) -> "AbstractContextManager[subprocess.Popen[str]]":
        """A unit: its ExecStart, in its working directory, with its environment."""
        service = read(DEPLOY / "systemd" / f"{name}.service")
        for command in service.get("ExecStartPre", []):
            subprocess.run(self.words(command), **self.place(service), check=True)
        (command,) = service["ExecStart"]
        return running(self.words(command), **self.place(service), stdout=subprocess.PIPE)

    def words(self, command: str) -> list[str]:
        program, *words = self.here(command).split()
        assert program == INSTALLED
        return [*LAKELOG, *words]

    def place(self, service: Unit) -> dict[str, Any]:
        """Where a command of a unit runs, and its environment."""
        variables = dict(self.here(each).split("=", 1) for each in service["Environment"])
        return {"cwd": self.here(service["WorkingDirectory"][0]), "env": environment_of(variables)}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_both_commands_run_and_end_in_order(machine: Machine) -> None:
    with machine.start("lakelog") as gateway:
        wait_until(lambda: answers(f"http://127.0.0.1:{machine.port}/ready"), "the gateway is ready")
        with machine.start("lakelog-maintenance") as maintenance:
            wait_until(
                lambda: answers(f"http://127.0.0.1:{machine.metrics_port}/metrics"), "the maintenance answers"
            )
            assert maintenance.stdout is not None
            assert " changed in " in maintenance.stdout.readline()
            assert ended(maintenance) == 0
        assert ended(gateway) == 0
    assert (machine.directory / "state" / "root").is_dir()


def test_a_maintenance_without_a_root_ends_so_that_it_is_started_again(machine: Machine) -> None:
    with machine.start("lakelog-maintenance") as maintenance:
        assert maintenance.wait() != 0
    assert "RestartPreventExitStatus" not in read(DEPLOY / "systemd" / "lakelog-maintenance.service")
    assert read(DEPLOY / "systemd" / "lakelog.service")["RestartPreventExitStatus"] == ["2"]


def test_a_root_that_is_gone_after_the_first_start_is_not_made_again(machine: Machine) -> None:
    root = machine.directory / "state" / "root"
    with machine.start("lakelog") as gateway:
        wait_until(lambda: answers(f"http://127.0.0.1:{machine.port}/ready"), "the gateway is ready")
        assert ended(gateway) == 0
    root.rename(machine.directory / "elsewhere")
    root.mkdir()  # a mount point without its mount
    with pytest.raises(subprocess.CalledProcessError) as refused:
        machine.start("lakelog")
    assert refused.value.returncode == 1
    service = read(DEPLOY / "systemd" / "lakelog.service")
    serving = subprocess.run(machine.words(service["ExecStart"][0]), **machine.place(service), check=False)
    assert serving.returncode == 1  # not 2: with the mount back, systemd's next attempt succeeds
    assert not [*root.iterdir()]


def test_a_standby_that_was_begun_is_followed_and_none_is_begun_in_its_place(machine: Machine) -> None:
    service = read(DEPLOY / "systemd" / "lakelog-replicate.service")
    standby = machine.directory / "mnt" / "standby" / "lakelog"
    with machine.start("lakelog") as gateway:
        wait_until(lambda: answers(f"http://127.0.0.1:{machine.port}/ready"), "the gateway is ready")
        with machine.start("lakelog-replicate") as early:
            assert early.wait() != 0
        assert not standby.exists()
        begin = [word for word in machine.words(service["ExecStart"][0]) if word != "--must-exist"]
        subprocess.run([*begin, "--once"], **machine.place(service), check=True)
        follow = f"http://127.0.0.1:{machine.port}/standbys"
        with machine.start("lakelog-replicate") as replication:
            wait_until(
                lambda: any(each["processes"] for each in httpx.get(follow).json()), "the standby is followed"
            )
            assert ended(replication) == 0
        assert ended(gateway) == 0
    assert check(open_store(str(standby))).problems == []


def test_the_settings_that_the_file_shows_are_settings() -> None:
    """Settings in comments count, too."""
    text = (DEPLOY / "systemd" / "lakelog.toml").read_text()
    names = re.findall(r"^(?:# )?(\w+) = ", text, re.MULTILINE)
    assert set(names) - {"region"} <= set(Settings.model_fields)
