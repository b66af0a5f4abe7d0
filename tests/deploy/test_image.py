"""The image: its Dockerfile is linted, and the file system that it makes runs a gateway here as a container
does: alone in it, read-only, as a user without rights, as the first process. There is no Docker to build it.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.kit.deployed import DEPLOY, DOCKERFILE, answers, dockerfile, environment_of, running
from tests.kit.processes import children
from tests.kit.support import ROOT, free_port, wait_until

IMAGE_MAX_BYTES = 400_000_000
CONTAINER = """\
set -e
mount --bind "$1" "$1"
mount -o remount,bind,ro "$1"
mount --bind "$2" "$1/var/lib/lakelog"
mount -t tmpfs tmpfs "$1/tmp"
mount -t proc proc "$1/proc"
mount --bind /dev "$1/dev"
root="$1" user="$3"
shift 3
exec chroot --userspec="$user" "$root" "$@"
"""
"""What Docker does of it: the image read-only, volumes, a process table of its own, a user."""


def instructions() -> list[tuple[str, str]]:
    """The instructions of the last stage."""
    found = [(each["instruction"], each["value"]) for each in dockerfile().structure]
    last = max(place for place, (name, _) in enumerate(found) if name == "FROM")
    return found[last:]


def test_hadolint_has_nothing_to_say_against_the_dockerfile() -> None:
    program = Path(sys.executable).with_name("hadolint")
    if not program.exists():
        pytest.skip("no hadolint: there is one for Linux on x86-64")
    done = subprocess.run([program, DOCKERFILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_is_made_of_one_tree_and_runs_as_a_user_that_is_not_root() -> None:
    last = dict(instructions())
    assert last["FROM"] == "scratch"
    assert last["COPY"] == "--from=build /image /"
    assert last["USER"] == "10001:10001"
    assert json.loads(last["ENTRYPOINT"]) == ["lakelog"]
    assert json.loads(last["CMD"]) == ["serve"]


def test_what_the_dockerfile_copies_is_let_in() -> None:
    let_in = (DEPLOY / "image" / "Dockerfile.dockerignore").read_text().split()
    packages = {marker.parent.name for marker in ROOT.glob("*/py.typed")}
    built = {"pyproject.toml", "scripts/long_description.py", "README.md", "LICENSE"}
    needed = packages | built | {"deploy/image", "requirements/image.txt"}
    assert {name.removeprefix("!") for name in let_in if name.startswith("!")} == needed
    assert [name for name in needed if not (ROOT / name).exists()] == []


def test_the_lock_of_the_image_has_the_versions_that_are_tested() -> None:
    def pinned(name: str) -> set[str]:
        lines = (ROOT / "requirements" / name).read_text().splitlines()
        return {line.removesuffix(" \\") for line in lines if "==" in line and not line.startswith(" ")}

    assert {each.split(";")[0].strip() for each in pinned("image.txt")} <= {
        each.split(";")[0].strip() for each in pinned("dev.txt")
    }
    assert not any(each.startswith(("pyspark", "delta-spark")) for each in pinned("image.txt"))


@dataclass
class Image:
    """The file system of the image, and what its Dockerfile says of it."""

    root: Path
    data: Path

    def command(self, *words: str) -> list[str]:
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        user = dict(instructions())["USER"]
        return [*unshare, "sh", "-c", CONTAINER, "sh", str(self.root), str(self.data), user, *words]

    def environment(self, **given: str) -> dict[str, str]:
        """The environment of the image, and the PATH of this machine, which has the tools that make a
        container.
        """
        envs = {**dockerfile().envs, **given}
        envs["PATH"] += f":{os.environ['PATH']}"
        return {**envs, "LAKELOG_HOST": "127.0.0.1"}

    def run(self, *words: str, **given: str) -> str:
        done = subprocess.run(
            self.command(*words), env=self.environment(**given), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def image(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """The tree that the first stage makes: of the locked packages and the wheel, by the same program."""
    missing = [name for name in ("unshare", "chroot", "mount", "strip", "ldd") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"only root makes a container, with {missing or 'all tools here'}")
    directory = tmp_path_factory.mktemp("image")
    uv = str(Path(sys.executable).with_name("uv"))
    python = directory / "venv" / "bin" / "python"
    install = [uv, "pip", "install", "--quiet", "--native-tls", "--python", str(python)]
    commands = [
        [uv, "venv", "--quiet", "--python", sys.executable, str(directory / "venv")],
        [*install, "--require-hashes", "--requirement", str(ROOT / "requirements" / "image.txt")],
        [*install, "--no-deps", str(wheel)],
        [str(python), str(DEPLOY / "image" / "file_system.py"), str(directory / "image")],
    ]
    for command in commands:
        done = subprocess.run(
            command, env=environment_of({"PYTHONPATH": ""}), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    data = directory / "data"
    data.mkdir(mode=0o700)
    os.chown(data, 10_001, 10_001)
    for name in ("dev", "proc"):
        (directory / "image" / name).mkdir()
    yield Image(directory / "image", data)
    shutil.rmtree(directory)


@pytest.mark.torture
def test_the_image_is_small(image: Image) -> None:
    """The size includes this machine's Python; the Dockerfile's has other versions of system libraries."""
    paths = (path for path in image.root.rglob("*") if path.is_file() and not path.is_symlink())
    size_bytes = sum(path.stat().st_size for path in paths)
    assert size_bytes <= IMAGE_MAX_BYTES
    assert not list(image.root.rglob("pyspark"))


@pytest.mark.torture
def test_a_gateway_runs_in_it_and_stops_in_order(image: Image) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    words = [*json.loads(dict(instructions())["ENTRYPOINT"]), *json.loads(dict(instructions())["CMD"])]
    check = json.loads(dict(instructions())["HEALTHCHECK"].partition("CMD ")[2])

    environment = image.environment(LAKELOG_PORT=str(port))
    with running(image.command(*words), env=environment) as container:
        wait_until(lambda: container.poll() is not None or answers(f"{url}/ready"), "the gateway is ready")
        (gateway,) = children(container.pid)
        assert Path(f"/proc/{gateway}").stat().st_uid == 10_001
        image.run(*check, LAKELOG_PORT=str(port))
        body = {"records": [{"value": {"carrier": "UA"}}]}
        headers = {"Content-Type": "application/vnd.kafka.json.v2+json"}
        cluster = httpx.get(f"{url}/v3/clusters").json()["data"][0]["cluster_id"]
        httpx.post(f"{url}/v3/clusters/{cluster}/topics", json={"topic_name": "flights"})
        assert httpx.post(f"{url}/topics/flights", json=body, headers=headers).status_code == 200
        os.kill(gateway, 15)
        assert container.wait() == 0
    assert "UA" in image.run("lakelog", "sql", "SELECT carrier FROM flights_json")
    image.run("lakelog", "maintain", "--once", "--engine", "local")
    assert image.run("lakelog", "fsck").strip()
