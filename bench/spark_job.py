"""A measurement in a fresh process with its own Spark: its parameters, and how it is run."""

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.spark_load import TOPIC


@dataclass(frozen=True, slots=True)
class Job:
    """`verb` and `engine` are those of the worker; `directory` is for what Spark writes.

    `source` is the root, or for Kafka the broker's address. `columns` and `jars` are Spark's lists; `files`
    is how many segments a partition holds, by which Delta's batches are limited. A job that writes takes the
    Parquet files in `rows` and, with lakelog, sends them through `gateway`.
    """

    verb: str
    engine: str
    source: str
    directory: str
    records: int = 0
    partitions: int = 1
    files: int = 1
    columns: str = ""
    jars: str = ""
    topic: str = TOPIC
    rows: str = ""
    gateway: str = ""

    def dump(self) -> str:
        return json.dumps(asdict(self))


class Worker:
    """A process of `module` that measures one job; if it fails, RuntimeError has the end of its log."""

    def __init__(self, job: Job, module: str = "bench.spark_worker") -> None:
        self._job, self._module = job, module
        self._directory = Path(job.directory)

    def __enter__(self) -> Self:
        self._directory.mkdir()
        with (self._directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module, self._job.dump()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.terminate()
        self._process.communicate()

    def ready(self) -> None:
        """Wait until it can be loaded."""
        self._line("READY")

    def figures(self) -> dict[str, Any]:
        """Tell it that the load is over, and wait for what it measured."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.stdin = None
        figures: dict[str, Any] = json.loads(self._line("FIGURES"))
        return figures

    def _line(self, word: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(word):
                return line.removeprefix(word)
        told = (self._directory / "log").read_text(errors="replace")[-3000:]
        raise RuntimeError(f"{self._job.engine} failed at {self._job.verb}:\n{told}")
