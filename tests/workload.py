"""Clients at work together, in threads and processes, and what there is when they have ended."""

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx
import msgspec

from tests.clients import CLIENTS, Client, Gateways, Task
from tests.history import At, History, Operation, Write, load
from tests.history_checker import Finding, Log, check
from tests.support import ROOT, wait_until


class Workload:
    """Clients of the gateways at `urls`; those in processes of their own write to files in `directory`."""

    def __init__(self, urls: Sequence[str], directory: Path, *, alternating: bool = False) -> None:
        self._urls, self._directory, self._alternating = list(urls), directory, alternating
        self.history = History()
        self._stops = {"writers": threading.Event(), "readers": threading.Event()}
        self._clients: list[Client] = []
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []
        self._files: list[Path] = []
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *tasks: Task) -> None:
        """Run clients in threads."""
        for task in tasks:
            stop = self._stops["writers" if task.kind.startswith("produce") else "readers"]
            gateways = Gateways(self._urls, alternating=self._alternating)
            client = CLIENTS[task.kind](task, gateways, self.history, stop)
            thread = threading.Thread(target=self._run, args=(client,), name=task.name)
            self._clients.append(client)
            self._threads.append(thread)
            thread.start()

    def start_process(self, task: Task) -> "subprocess.Popen[bytes]":
        """Run a client in a process, which the caller may kill; give its task a name of its own."""
        file = self._directory / f"{task.name}.history"
        self._files.append(file)
        command = [sys.executable, "-m", "tests.clients", msgspec.json.encode(task).decode(), str(file)]
        self.processes.append(subprocess.Popen([*command, *self._urls], cwd=ROOT))
        return self.processes[-1]

    def _run(self, client: Client) -> None:
        try:
            client.run()
        except BaseException as error:  # noqa: BLE001 -- it is raised where the workload is waited for
            self._errors.append(error)

    def operations(self) -> list[Operation]:
        """What all clients did until now."""
        return self.history.operations() + load(file for file in self._files if file.exists())

    def refused(self) -> Counter[str]:
        """What clients in threads were not given at once, by error code or kind of silence."""
        return sum((client.gateways.refused for client in self._clients), Counter[str]())

    def wait_for(self, more: int, kind: type = Write, name: str = "") -> None:
        """Return when `more` operations of a kind are acknowledged than now: in partitions, groups or by
        producers whose name begins with `name`, of the clients in threads.
        """
        self._check()
        start = len(self.history.operations())

        def enough() -> bool:
            self._check()
            since = self.history.operations()[start:]
            return sum(op.ok and isinstance(op.asked, kind) and _of(op, name) for op in since) >= more

        wait_until(enough, f"{more} more acknowledged {kind.__name__} of {name or 'all'}", 120)

    def _check(self) -> None:
        if self._errors:
            raise self._errors[0]

    def end_writers(self) -> None:
        """Producers end first, so that groups can reach the end."""
        self._stop("writers")

    def end(self) -> None:
        """End all clients; raises what one of them has failed with."""
        self._stop("writers")
        self._stop("readers")
        for process in self.processes:
            process.kill()
            process.wait()
        self._check()

    def _stop(self, which: str) -> None:
        self._stops[which].set()
        for client, thread in zip(self._clients, self._threads, strict=True):
            if (which == "writers") == client.task.kind.startswith("produce"):
                thread.join()

    def findings(self, topics: Mapping[str, int], groups: Sequence[str] = ()) -> list[Finding]:
        """What is wrong with `topics` (each with its number of partitions), as the first gateway has them."""
        return check(self.operations(), read_log(self._urls[0], topics, groups))


def _of(op: Operation, name: str) -> bool:
    return not name or str(getattr(op.asked, "producer", getattr(op.asked, "group", ""))).startswith(name)


def read_log(url: str, topics: Mapping[str, int], groups: Sequence[str] = ()) -> Log:
    """What the partitions of `topics` hold, and where `groups` go on. Offsets must have no gap."""
    ats = [At(topic, index) for topic, count in topics.items() for index in range(count)]
    with httpx.Client(base_url=url, timeout=30) as client:
        return Log(
            {at: _read_partition(client, at) for at in ats},
            {group: committed(url, group) for group in groups},
        )


def _read_partition(client: httpx.Client, at: At) -> dict[int, str]:
    found: dict[int, str] = {}
    while True:
        path = f"/topics/{at.topic}/partitions/{at.partition}/records"
        answer = client.get(path, params={"offset": len(found)})
        assert answer.status_code == 200, answer.text
        for record in answer.json():
            assert record["offset"] == len(found), at
            found[record["offset"]] = record["value"]
        if len(found) == int(answer.headers["High-Watermark"]):
            return found


def committed(url: str, group: str) -> dict[At, int]:
    """Where a group goes on."""
    answer = httpx.get(f"{url}/consumers/{group}/offsets", timeout=30)
    if answer.status_code == 404:
        return {}
    assert answer.status_code == 200, answer.text
    return {At(each["topic"], each["partition"]): each["offset"] for each in answer.json()["offsets"]}


def lag(url: str, group: str, topic: str, partitions: int) -> int:
    """How many records of a topic a group has not committed."""
    places, behind = committed(url, group), 0
    for index in range(partitions):
        answer = httpx.get(f"{url}/topics/{topic}/partitions/{index}/offsets", timeout=30)
        assert answer.status_code == 200, answer.text
        behind += answer.json()["end_offset"] - places.get(At(topic, index), 0)
    return behind
