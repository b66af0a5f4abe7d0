"""Get what the programs of tests/system/programs stand on, each at the version that its lock file has: jars,
modules of npm, and programs in Go and Rust. Only `make torture` has them. It is harmless to repeat.

Without Go, npm or Cargo their programs are missing; the tests of these say so and are skipped.
"""

import hashlib
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from scripts.tools import TOOLS, kafka_jars

SOURCES = Path(__file__).resolve().parent.parent / "tests" / "system" / "programs"
BINARIES = TOOLS / "programs-bin"


def main() -> None:
    """Get what is missing, or has other sources now."""
    for listed in sorted(SOURCES.glob("java/*-jars.txt")):
        kafka_jars(TOOLS / listed.name.removesuffix("-jars.txt"), listed)
    apicurio()
    BINARIES.mkdir(exist_ok=True)
    made("go", "go", go)
    made("node", "npm", node)
    made("rust", "cargo", rust)


def apicurio() -> None:
    """Unpack the registry, which comes as one archive, once."""
    archives, directory = TOOLS / "apicurio-archive", TOOLS / "apicurio"
    kafka_jars(archives, SOURCES / "java" / "apicurio-archive.txt")
    [archive] = archives.iterdir()
    stamp = directory / archive.name
    if stamp.exists():
        return
    shutil.rmtree(directory, ignore_errors=True)
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    stamp.touch()


def made(language: str, needs: str, make: Callable[[Path], None]) -> None:
    """Make what a folder of programs needs; again when a file there has changed."""
    sources = SOURCES / language
    files = sorted(each for each in sources.rglob("*") if each.is_file())
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in files)).hexdigest()
    stamp = BINARIES / f".{language}"
    if stamp.exists() and stamp.read_text() == digest:
        return
    if shutil.which(needs) is None:
        print(f"no {needs} here: no programs of {sources} for the tests", flush=True)
        return
    print(f"making the programs of {sources}", flush=True)
    try:
        make(sources)
    except subprocess.CalledProcessError as error:
        print(f"{error.stderr}{sources} could not be made: no such programs for the tests", flush=True)
        return
    stamp.write_text(digest)


def go(sources: Path) -> None:
    """Build a program of each folder."""
    run(["go", "build", "-ldflags=-s -w", "-o", f"{BINARIES}/", "./..."], sources)


def node(sources: Path) -> None:
    """Fetch the modules that the lock file has."""
    directory = TOOLS / "programs-node"
    directory.mkdir(exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(sources / name, directory)
    run(["npm", "ci", "--ignore-scripts", "--silent"], directory)


def rust(sources: Path) -> None:
    """Build the program; what lies between is some hundred megabytes, and removed."""
    directory = TOOLS / "programs-rust"
    run(["cargo", "build", "--release", "--locked"], sources, CARGO_TARGET_DIR=str(directory))
    shutil.copy(directory / "release" / "rskafka-copier", BINARIES)
    shutil.rmtree(directory)


def run(command: Sequence[str], directory: Path, **own: str) -> None:
    """Raises CalledProcessError."""
    environment: Mapping[str, str] = {**os.environ, **own}
    subprocess.run(command, cwd=directory, env=environment, check=True, capture_output=True, text=True)


if __name__ == "__main__":
    main()
