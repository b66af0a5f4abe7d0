"""Programs that others wrote, at the Kafka listener: how one is started, fed, killed and compared.

Their sources are in tests/system/programs, in a folder for each language; scripts/programs.py fetches what
they stand on.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from lakelog.spark.java import java_home
from tests.kit.kafka import Read, librdkafka_reader, read_of
from tests.kit.kafka_programs import QUICK_JVM, without_java_options
from tests.kit.support import ROOT, WAIT_S, exit_code, wait_until

SOURCES = ROOT / "tests" / "system" / "programs"
TOOLS = ROOT / ".tools"
PYTHON = TOOLS / "programs" / "bin" / "python"
BINARIES = TOOLS / "programs-bin"
NODE_MODULES = TOOLS / "programs-node" / "node_modules"

_SAID_BYTES = 4_000


class Program:
    """A running program, which is killed at the end; it works in `directory` and its words are in `log`."""

    def __init__(self, command: Sequence[str], directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._command, self._directory = [*command], directory
        self.log = directory / "said.txt"
        self.start()

    def start(self) -> None:
        """Start it, again where it was."""
        with self.log.open("ab") as said:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._directory,
                env={**without_java_options(), "NODE_PATH": str(NODE_MODULES), "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition; fails with what the program said last where it ends before, or never."""
        try:
            wait_until(lambda: self._process.poll() is not None or condition(), what)
            assert self._process.poll() is None, f"ended with {self._process.returncode} before: {what}"
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._command}:\n{self.said()[-_SAID_BYTES:]}") from None

    def said(self) -> str:
        """All that it has printed."""
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """End it at once, with the processes that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """End it in order."""
        self._process.terminate()
        exit_code(self._process)

    def __enter__(self) -> "Program":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.kill()


def java_program(name: str, jars: Sequence[str], *arguments: str) -> list[str]:
    """The command of a Java program of ours, which is compiled, with the jars of these folders of .tools."""
    on = [java_class_path(*jars), _compiled(name, java_class_path(*jars)).name]
    return java_command(":".join(on), name, *arguments)


def java_command(class_path: str, main: str, *arguments: str) -> list[str]:
    """The command of a class."""
    return [str(java_home() / "bin" / "java"), *QUICK_JVM, "-cp", class_path, main, *arguments]


def java_class_path(*jars: str) -> str:
    """All jars in these folders of .tools; skips the test where one is missing."""
    return ":".join(f"{needed(TOOLS / folder)}/*" for folder in jars)


@cache
def _compiled(name: str, class_path: str) -> "TemporaryDirectory[str]":
    """A directory of classes, which is removed when this process ends."""
    compiler, made = needed(java_home() / "bin" / "javac"), TemporaryDirectory()
    source = str(SOURCES / "java" / f"{name}.java")
    command = [str(compiler), "-nowarn", "-cp", class_path, "-d", made.name, source]
    done = subprocess.run(command, env=without_java_options(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return made


def needed(path: Path) -> Path:
    """A part of a program; skips the test where it is missing."""
    if not path.exists():
        pytest.skip(f"no {path.name}: `make torture` fetches what programs need, and a JDK compiles Java")
    return path


class Target:
    """The records of a topic, as they come."""

    def __init__(self, consumer: Consumer, topic: str, partitions: int) -> None:
        self._consumer = consumer
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self.found: list[Read] = []

    def look(self) -> list[Read]:
        """Poll; returns all that has come until now."""
        while (message := self._consumer.poll(0.05)) is not None:
            error = message.error()
            if error is None:
                self.found.append(read_of(message))
            elif not error.retriable() and error.fatal():
                raise KafkaException(error)
        return self.found

    def values(self) -> list[bytes]:
        """The values that have come until now, without those that are null."""
        return [each.value for each in self.look() if each.value is not None]

    def latest(self) -> dict[bytes | None, bytes | None]:
        """The last value of each key until now."""
        return {each.key: each.value for each in self.look()}


@contextmanager
def target(bootstrap: str, topic: str, partitions: int = 2) -> Iterator[Target]:
    """Read a topic while a program writes it."""
    quick = {"reconnect.backoff.max.ms": 200, "enable.partition.eof": False}
    consumer = librdkafka_reader(bootstrap, **quick)
    try:
        yield Target(consumer, topic, partitions)
    finally:
        consumer.close()


def caught_up(bootstrap: str, group: str, topic: str, partitions: int = 2) -> bool:
    """Whether a group has committed the end of each partition of a topic."""
    consumer = librdkafka_reader(bootstrap, **{"group.id": group})
    try:
        asked = [TopicPartition(topic, number) for number in range(partitions)]
        committed = [max(each.offset, 0) for each in consumer.committed(asked, WAIT_S)]
        return committed == [consumer.get_watermark_offsets(each, WAIT_S)[1] for each in asked]
    finally:
        consumer.close()
