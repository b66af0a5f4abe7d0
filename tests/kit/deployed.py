"""Runs the files of deploy/ without a container engine: each container is a process at its own loopback
address. Also the tools that check these files.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from dockerfile_parse import DockerfileParser
from typer.testing import CliRunner

from lakelog.cli import app
from log_tables.clock import SystemClock
from tests.kit.support import ROOT, S3_SERVER, exit_code, wait_until

DEPLOY = ROOT / "deploy"
TOOLS = ROOT / ".tools"
PROGRAMS = (TOOLS / "bin", TOOLS / "prometheus" / "usr" / "bin")
DOCKERFILE = DEPLOY / "image" / "Dockerfile"
HEALTH = DEPLOY / "image" / "health.py"
LAKELOG = [sys.executable, "-m", "lakelog"]
PEER_SECRET = "0123456789abcdef" * 4

_VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")


def tool(name: str) -> str:
    """The path of a tool that `make setup` brings. The test is skipped, visibly, without it."""
    for directory in PROGRAMS:
        if (directory / name).exists():
            return str(directory / name)
    pytest.skip(f"no {name}: `make setup` says why")


def dockerfile() -> DockerfileParser:
    return DockerfileParser(fileobj=DOCKERFILE.open("rb"))


def image_environment() -> dict[str, str]:
    """The variables of lakelog's that the image sets."""
    return {name: text for name, text in dockerfile().envs.items() if name.startswith("LAKELOG_")}


def environment_of(given: Mapping[str, str]) -> dict[str, str]:
    """The variables of a process here, with those of a container instead of ours."""
    own = {name: text for name, text in os.environ.items() if not name.startswith(("LAKELOG_", "AWS_"))}
    return {**own, "PYTHONPATH": str(ROOT), **given}


def answers(url: str, below: int = 300) -> bool:
    """Whether a server answers at `url` with a status below `below`."""
    try:
        return httpx.get(url).status_code < below
    except httpx.TransportError:
        return False


@contextmanager
def running(command: Sequence[str], **given: Any) -> "Iterator[subprocess.Popen[str]]":
    """A process that is ended after the block, also if the test fails."""
    process = subprocess.Popen(command, text=True, **given)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ended(process: "subprocess.Popen[str]") -> int:
    """Ask it to stop as an operator's tool does; returns the exit code."""
    process.send_signal(signal.SIGTERM)
    return exit_code(process)


class Composed:
    """The services of deploy/compose/compose.yaml as processes, with their files below `directory`."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self.directory = directory
        command = [tool("compose-spec"), "-no-interpolation", "-format", "json", "compose.yaml"]
        read = subprocess.run(command, cwd=DEPLOY / "compose", capture_output=True, text=True, check=False)
        assert read.returncode == 0, read.stderr
        text = _VARIABLE.sub(lambda found: _interpolated(found, environment), read.stdout)
        self.services: dict[str, dict[str, Any]] = json.loads(text)["services"]
        network = int(SystemClock().random_hex(4), 16)
        hosts = (f"127.{1 + network % 250}.{network // 250 % 250}.{n + 1}" for n in range(250))
        self.hosts = dict(zip(self.services, hosts, strict=False))
        self.running: dict[str, subprocess.Popen[str]] = {}
        self._named = re.compile(rf"\b({'|'.join(self.services)})(?=:\d)")

    def environment(self, name: str) -> dict[str, str]:
        """The variables of a service, those of the image among them."""
        service = self.services[name]
        own = {key: self.here(name, text) for key, text in service.get("environment", {}).items()}
        if not service["image"].startswith("lakelog:"):
            return environment_of(own)
        image = {key: self.here(name, text) for key, text in image_environment().items()}
        return environment_of({**image, **own})

    def here(self, name: str, text: str) -> str:
        """`text` of a service with addresses and paths of this machine."""
        text = self._named.sub(lambda found: self.hosts[found[1]], text)
        text = re.sub(r"0\.0\.0\.0|^(?=:\d)", self.hosts[name], text)
        for volume in self.services[name].get("volumes", []):
            text = re.sub(rf"(?<![\w/]){volume['target']}(?![\w.])", str(self.volume(volume)), text)
        return text

    def volume(self, volume: Mapping[str, str]) -> Path:
        """The directory that stands for a volume. A mounted file is below the folder of its name."""
        if volume["type"] == "volume":
            place = self.directory / volume["source"]
            place.mkdir(exist_ok=True)
            return place
        return self.directory / volume["target"].strip("/")

    def mount(self, name: str, key: str) -> None:
        """Write the files that a service mounts, as it is to read them here, and `key` as Prometheus's."""
        for volume in self.services[name]["volumes"]:
            if volume["type"] == "bind":
                place = self.volume(volume)
                place.parent.mkdir(parents=True, exist_ok=True)
                source = Path(volume["source"])
                text = key if source.suffix == ".key" else source.read_text()
                place.write_text(self.here(name, text).replace("interval: 15s", "interval: 1s"))

    def command(self, name: str, *words: str) -> list[str]:
        """The command of a service, or another one in its container."""
        service = self.services[name]
        asked = words or service.get("command") or ()
        if entry := service.get("entrypoint"):
            program = [sys.executable, *entry[1:]]
        elif service["image"].startswith("lakelog:"):
            program = LAKELOG
        elif service["image"].startswith("versity/versitygw:"):
            program = [str(S3_SERVER)]
        else:
            program = [tool("prometheus"), f"--web.listen-address={self.hosts[name]}:9090"]
        return [self.here(name, word) for word in (*program, *asked)]

    def run(self, name: str, *words: str) -> str:
        """`docker compose run`: the command of the service, or another one; returns what it printed.

        A command of lakelog's runs in this process, which has loaded all that it needs.
        """
        command, environment = self.command(name, *words), self.environment(name)
        if command[: len(LAKELOG)] == LAKELOG:
            done = CliRunner().invoke(app, command[len(LAKELOG) :], env=environment)
            assert done.exit_code == 0, f"{name} {words}: {done.output}"
            return done.stdout
        ran = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, cwd=self.directory
        )
        assert ran.returncode == 0, f"{name} {words}: {ran.stderr}"
        return ran.stdout

    def up(self, *names: str) -> None:
        """Start services, and wait until they are healthy."""
        for name in names:
            with (self.directory / f"{name}.log").open("w") as log:
                self.running[name] = subprocess.Popen(
                    self.command(name),
                    env=self.environment(name),
                    stdout=log,
                    stderr=log,
                    text=True,
                    cwd=self.directory,
                )
        for name in names:
            process, log_file = self.running[name], self.directory / f"{name}.log"
            wait_until(lambda p=process, n=name: p.poll() is not None or self.answers(n), f"{name} answers")  # type: ignore[misc]
            assert process.poll() is None, log_file.read_text()
            wait_until(lambda n=name: self.healthy(n), f"{name} is healthy")  # type: ignore[misc]

    def healthy(self, name: str) -> bool:
        """Run the health check of a container; True if it passes, or if there is none."""
        service = self.services[name]
        if check := service.get("healthcheck"):
            words = [sys.executable, *check["test"][2:]]
            words = [word.replace("127.0.0.1", self.hosts[name]) for word in words]
        elif service["image"].startswith("lakelog:"):
            words = [sys.executable, str(HEALTH)]
        else:
            return True  # its image has no check
        done = subprocess.run(words, env=self.environment(name), capture_output=True, check=False)
        return done.returncode == 0

    def answers(self, name: str) -> bool:
        """Whether a server answers at the port of a service."""
        port = {"store": 7070, "maintenance": 9090, "prometheus": 9090}.get(name, 8082)
        return answers(f"http://{self.hosts[name]}:{port}/", below=500)

    def down(self) -> dict[str, int]:
        """Stop all services in the opposite order; returns their exit codes."""
        return {name: ended(self.running.pop(name)) for name in reversed([*self.running])}


def _interpolated(found: "re.Match[str]", environment: Mapping[str, str]) -> str:
    value = environment.get(found[1], found[3] if found[2] == "-" else None)
    assert value is not None, f"{found[1]}: {found[3]}"
    return value


def metric_names(expressions: Sequence[str]) -> set[str]:
    """The metrics that PromQL expressions name."""
    return {name for each in expressions for name in re.findall(r"\b(?:lakelog|process)_\w+", each)}
