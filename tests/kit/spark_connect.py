"""Spark Connect servers, started by the command of docs/spark-connect.md, and clients of them.

A process has sessions of one server or a Spark of its own, and other tests have that in this one. So what a
client does is a function that another process calls.
"""

import os
import shlex
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

from lakelog.spark.java import java_home
from lakelog.spark.session import LISTS, python_for_workers
from tests.kit.support import ROOT, exit_code, free_port, listens, wait_until

PAGE = ROOT / "docs" / "spark-connect.md"
P = ParamSpec("P")
T = TypeVar("T")

_SMALL = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


def documented() -> list[str]:
    """The words of the command on the page that starts a server."""
    text = PAGE.read_text()
    begin = text.index(".venv/bin/spark-submit --class")
    return shlex.split(text[begin : text.index("```", begin)].replace("\\\n", " "))


@contextmanager
def connect_server(directory: Path, bare_python: Path | None = None) -> Iterator[str]:
    """The URL of a server that works in `directory`: that of the page, but for its port and size.

    With a `bare_python` its workers have no lakelog, and it has no Delta.
    """
    port = free_port()
    program, kind, name, *given, last = documented()
    settings = {**_SMALL, "spark.connect.grpc.binding.address": "127.0.0.1"}
    environment = {**_environment(), "PYSPARK_PYTHON": python_for_workers("local")}
    if bare_python is None:
        # Without them Ivy looks for each among the repositories of a network.
        settings["spark.jars.excludes"] = ",".join(LISTS["spark.jars.excludes"])
    else:
        given = []
        environment |= {"PYSPARK_PYTHON": str(bare_python), "PYTHONPATH": ""}
    settings["spark.connect.grpc.binding.port"] = str(port)
    options = [word for setting in settings.items() for word in ("--conf", "=".join(setting))]
    command = [str(Path(sys.executable).with_name(Path(program).name)), kind, name, *given, *options, last]
    with (directory / "server.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=directory, env=environment, stdout=log, stderr=log)
    try:
        wait_until(lambda: process.poll() is not None or listens(port), "the Spark Connect server listens")
        assert process.poll() is None, Path(log.name).read_text()[-4000:]
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        exit_code(process)


def _environment() -> Mapping[str, str]:
    """Where Spark's programs find Java, and Python finds this repository."""
    ours = {"JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)}
    return {**os.environ, **ours}


def run_pipeline(url: str, spec: Path) -> str:
    """Run what is new of a pipeline, as its user does; returns what that prints."""
    program = Path(sys.executable).with_name("spark-pipelines")
    environment = {**_environment(), "PYSPARK_PYTHON": python_for_workers("local")}
    command = [str(program), "run", "--remote", url, "--spec", str(spec)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


def bare_environment(directory: Path) -> Path:
    """A Python in `directory` that has all packages of this one but lakelog."""
    venv.create(directory, symlinks=True)
    (site,) = directory.glob("lib/python*/site-packages")
    # A folder that a .pth file names lends its packages but no .pth file of its own, which this repository is
    # installed by.
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    return directory / "bin" / "python"


class ConnectClient:
    """Another process, which calls functions as a client of Spark Connect."""

    def __init__(self, process: ProcessPoolExecutor) -> None:
        self._process = process

    def call(self, function: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Give what `function`, one of a module, returns there; raise what it raises."""
        return self._process.submit(function, *given, **named).result()


@contextmanager
def connect_client() -> Iterator[ConnectClient]:
    """A process that ends at the end."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        yield ConnectClient(process)
