"""A gateway process under measurement: start, warm, read its CPU and memory, stop."""

import json
import os
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from log_tables.clock import SystemClock, timer

_TICKS = os.sysconf("SC_CLK_TCK")


class Gateway:
    """`lakelog serve` on a free loopback port, with `options` as its flags."""

    def __init__(self, data: Path, *options: str) -> None:
        self.data = data
        self._options = options
        self.url = ""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "lakelog", "serve", "--data", str(self.data), "--port", "0"]
        self._process = subprocess.Popen([*command, *self._options], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            found = re.search(r"http://[\d.]+:\d+", line)
            if found:
                self.url = found[0]
                return self
        raise RuntimeError("the gateway ended before it was ready")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> float:
        """Stop it in order; the seconds until its process has ended. Nothing to do if it has ended."""
        begin = timer()
        self._process.terminate()
        self._process.wait(60)
        return timer() - begin

    def kill(self) -> None:
        """End it at once, as a power cut would end the process."""
        self._process.kill()
        self._process.wait()

    @property
    def cpu_seconds(self) -> float:
        """CPU that the process and its workers have used so far."""
        return sum(map(cpu_seconds_of, _with_children(self._process.pid)))

    @property
    def peak_mb(self) -> float:
        """The most memory that was ever resident, in MB."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024 / 1e6

    @property
    def resident_mb(self) -> float:
        """The memory that is resident now, in MB."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024 / 1e6

    def create_topic(self, name: str, partitions: int, **configs: str) -> None:
        """Settings are named with underscores: `segment_bytes`."""
        cluster = self._call("GET", "/v3/clusters")["data"][0]["cluster_id"]
        settings = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        body = {"topic_name": name, "partitions_count": partitions, "configs": settings}
        self._call("POST", f"/v3/clusters/{cluster}/topics", body)

    def end_offset(self, name: str, partitions: int) -> int:
        """How many records the topic holds."""
        paths = (f"/topics/{name}/partitions/{index}/offsets" for index in range(partitions))
        return sum(int(self._call("GET", path)["end_offset"]) for path in paths)

    def leads(self, name: str) -> dict[str, list[int]]:
        """The partitions of the topic that each live gateway says it leads, by URL."""
        cluster = self._call("GET", "/v3/clusters")["data"][0]["cluster_id"]
        found = self._call("GET", f"/v3/clusters/{cluster}/brokers")["data"]
        return {each["url"]: each["leads"].get(name, []) for each in found if each["alive"]}

    def metric(self, name: str, **labels: str) -> float:
        """The value of a metric with these labels; 0 where there is none yet."""
        shown = ",".join(f'{key}="{value}"' for key, value in labels.items())
        with urllib.request.urlopen(f"{self.url}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[1]) for line in lines if line.startswith(f"{name}{{{shown}}} "))

    def _call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request) as answer:
            found: dict[str, Any] = json.load(answer)
            return found


@contextmanager
def gateways(root: Path, count: int, *options: str, workers: int = 1) -> Iterator[list[Gateway]]:
    """Start so many gateways on one root, each with so many workers, and wait until all know one another."""
    options = options if workers == 1 else (*options, "--workers", str(workers))
    with ExitStack() as stack:
        started = [stack.enter_context(Gateway(root, *options)) for _ in range(count)]
        wait_until_known(started, count * workers)
        yield started


@contextmanager
def kafka_gateway(root: Path, *options: str) -> Iterator[tuple[str, Gateway]]:
    """A gateway on `root`, with the address of its Kafka listener."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Gateway(root, "--kafka-port", str(port), *options) as gateway:
        yield f"127.0.0.1:{port}", gateway


@contextmanager
def running(command: Sequence[str], directory: Path) -> Iterator[int]:
    """A program, by its process id; what it says goes to a file in `directory`. SIGTERM ends it."""
    with (directory / "said.txt").open("ab") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
        try:
            yield process.pid
        finally:
            process.terminate()
            process.wait()


def wait_until_known(started: list[Gateway], count: int) -> None:
    """Return when each of them knows that `count` gateways live."""
    wait_until(lambda: all(len(each.leads("")) == count for each in started), f"{count} gateways live")


def wait_until(condition: Callable[[], bool], what: str, within_s: float = 60) -> None:
    """Raises RuntimeError after `within_s` seconds."""
    clock = SystemClock()
    end = clock.monotonic() + within_s
    while not condition():
        if clock.monotonic() > end:
            raise RuntimeError(f"not within {within_s:g} s: {what}")
        clock.pause(0.02)


def _with_children(pid: int) -> list[int]:
    """`pid`, and every process that it or one of its own has started."""
    parents = {
        int(path.name): int(fields[1]) for path in Path("/proc").glob("[0-9]*") if (fields := _stat(path))
    }
    found = [pid]
    for parent in found:  # grows meanwhile
        found += [child for child, its in parents.items() if its == parent]
    return found


def cpu_seconds_of(pid: int) -> float:
    """CPU that the process has used so far."""
    fields = _stat(Path(f"/proc/{pid}"))
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _stat(process: Path) -> list[str]:
    """The fields of `/proc/<pid>/stat` from the state on; empty if the process has ended."""
    try:
        return (process / "stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []
