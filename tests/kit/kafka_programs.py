"""Programs that are clients of Kafka: kcat, the tools of Apache Kafka, ours in Go."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO

import pytest

from lakelog.spark.java import java_home
from tests.kit.support import ROOT, WAIT_S

JARS = ROOT / ".tools" / "kafka"
GO_CLIENTS = ROOT / ".tools" / "bin"
TOOLS = "org.apache.kafka.tools"

QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")


def kcat(*arguments: str, given: str | bytes = b"") -> bytes:
    """Run Debian's kcat with `given` to read; returns what it prints. Fails where kcat does."""
    if shutil.which("kcat") is None:
        pytest.skip("no kcat: `make setup` installs it where it runs as root on Debian")
    return _output(["kcat", *arguments], given)


def kafka_tool(
    name: str, *arguments: str, given: str | bytes = b"", properties: Mapping[str, str] = {}
) -> str:
    """Run a tool of Apache Kafka, a class by its name; returns what it prints. Fails where the tool does."""
    return _output(tool_command(name, *arguments, properties=properties), given).decode()


def refused_tool(name: str, *arguments: str) -> str:
    """Run a tool of Apache Kafka that fails, by itself and soon; returns all that it says."""
    done = _run(tool_command(name, *arguments), b"")
    said = (done.stdout + done.stderr).decode()
    assert done.returncode, f"{name} {arguments} did not fail: {said}"
    return said


def tool_command(
    name: str, *arguments: str, properties: Mapping[str, str] = {}, options: Sequence[str] = ()
) -> list[str]:
    """The command of a tool of Apache Kafka: a class of the package of most tools, or by its full name.
    `properties` and `options` are those of its JVM.
    """
    if not JARS.exists():
        pytest.skip("no jars of Kafka: `make setup` fetches them")
    java, full = java_home() / "bin" / "java", name if "kafka." in name else f"{TOOLS}.{name}"
    given = [f"-D{key}={value}" for key, value in properties.items()]
    return [str(java), *QUICK_JVM, *options, *given, "-cp", f"{JARS}/*", full, *arguments]


def start_tool(
    name: str, *arguments: str, output: IO[bytes], options: Sequence[str] = ()
) -> "subprocess.Popen[bytes]":
    """Start a tool of Apache Kafka that runs until it is ended, in a JVM with these options."""
    command = tool_command(name, *arguments, options=options)
    return subprocess.Popen(command, stdout=output, env=without_java_options())


def go_client(name: str, *arguments: str) -> str:
    """Run one of our programs in Go; returns what it prints. Fails where the program does."""
    program = GO_CLIENTS / f"kafka-{name}"
    if not program.exists():
        pytest.skip(f"no {program.name}: `make setup` builds it where Go is installed")
    return _output([str(program), *arguments], b"").decode()


def _run(command: list[str], given: str | bytes) -> "subprocess.CompletedProcess[bytes]":
    data = given.encode() if isinstance(given, str) else given
    return subprocess.run(
        command, input=data, capture_output=True, timeout=WAIT_S, env=without_java_options(), check=False
    )


def _output(command: list[str], given: str | bytes) -> bytes:
    done = _run(command, given)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout!r}\n{done.stderr.decode()}"
    return done.stdout


def without_java_options() -> dict[str, str]:
    """The environment of this process, without the options that are meant for Spark's JVM."""
    return {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}
