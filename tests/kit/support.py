"""Waiting for conditions, free ports, and an S3 server, for tests that start processes."""

import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Protocol

from log_tables.clock import SystemClock, timer

ROOT = Path(__file__).resolve().parents[2]
S3_SERVER = ROOT / ".tools" / "bin" / "versitygw"
KAFKA_SPARK_JARS = ROOT / ".tools" / "spark-kafka"
SPARK_CLASSES = ROOT / ".tools" / "spark.jsa"
"""What a JVM need not load and check again, from scripts/tools.py; without it Spark starts more slowly."""

WAIT_S = 180.0
"""How long a condition may take on a busy machine; nothing is measured by it."""

_LOOK_AGAIN_S = 0.01


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
    """Return as soon as `condition` holds; fail with `what` when it has not within `timeout_s`."""
    end, never = timer() + timeout_s, Event()
    while not condition():
        assert timer() < end, f"after {timeout_s:g} s still not: {what}"
        never.wait(_LOOK_AGAIN_S)


class Ending(Protocol):
    """A process that ends, as a `subprocess.Popen` is one."""

    args: Any

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, number: int, /) -> None: ...

    def kill(self) -> None: ...


def exit_code(process: Ending, timeout_s: float = WAIT_S) -> int:
    """Wait for the end of `process`; with `PYTHONFAULTHANDLER` one that stays prints its threads."""
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout_s / 10)
        process.kill()
        raise AssertionError(f"after {timeout_s:g} s still running: {process.args!r}") from None


def free_port() -> int:
    """A TCP port of the loopback address that nothing listens on now, below those that the kernel gives to
    connections: it stays free until it is used.
    """
    while True:
        port = 10_000 + int(SystemClock().random_hex(8), 16) % 20_000
        with socket.socket() as taken, suppress(OSError):
            taken.bind(("127.0.0.1", port))
            return port


def listens(port: int) -> bool:
    """Whether something listens at `port` of the loopback address."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass(frozen=True)
class S3Server:
    """A running S3 server over a directory whose folders are its buckets."""

    endpoint: str
    directory: Path
    access_key: str
    secret_key: str
    process: "subprocess.Popen[bytes]"
    region: str = "us-east-1"

    def bucket(self, name: str) -> str:
        """Make a bucket; returns its URL."""
        (self.directory / name).mkdir()
        return f"s3://{name}"

    @property
    def options(self) -> dict[str, str]:
        """The options with which `open_store` reaches this server."""
        return {
            "aws_endpoint": self.endpoint,
            "aws_access_key_id": self.access_key,
            "aws_secret_access_key": self.secret_key,
            "aws_region": self.region,
            "aws_allow_http": "true",
        }


@contextmanager
def s3_server(directory: Path, port: int | None = None, *flags: str) -> Iterator[S3Server]:
    """Run versitygw over `directory`, on a free port if none is given, and end it at the end."""
    port, access_key, secret_key = port or free_port(), "lakelog", "lakelog-secret"
    keys = ("--access", access_key, "--secret", secret_key)
    flags = ("--port", f"127.0.0.1:{port}", "--quiet", *flags)
    command = [str(S3_SERVER), *keys, *flags, "posix", str(directory)]
    with (directory.parent / f"{directory.name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until(lambda: process.poll() is not None or listens(port), "the S3 server listens")
        assert process.poll() is None, f"the S3 server ended with exit code {process.returncode}: {log.name}"
        yield S3Server(f"http://127.0.0.1:{port}", directory, access_key, secret_key, process)
    finally:
        process.terminate()
        exit_code(process)
