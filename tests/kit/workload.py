"""Clients at work together, in threads and processes, and what there is when they have ended."""

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import httpx
import msgspec

from log_tables.clock import SystemClock
from tests.kit.asking import Gateways
from tests.kit.clients import CLIENTS, Client, Task, placed, transact
from tests.kit.history import At, History, Operation, Outcome, Part, Write, load
from tests.kit.history_checker import Finding, Log, check
from tests.kit.lives_clients import LIVES_CLIENTS, Truncater
from tests.kit.support import ROOT, wait_until


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
        self._copies: dict[str, set[At]] = {}
        self._processes: list[tuple[Task, subprocess.Popen[bytes]]] = []

    def start(self, *tasks: Task) -> None:
        """Run clients in threads."""
        for task in tasks:
            self._note(task)
            stop = self._stops[_side(task)]
            kind = {**CLIENTS, **LIVES_CLIENTS}[task.kind]
            gateways = Gateways(self._urls, alternating=self._alternating, timeout_s=kind.timeout_s)
            client = kind(task, gateways, self.history, stop)
            thread = threading.Thread(target=self._run, args=(client,), name=task.name)
            self._clients.append(client)
            self._threads.append(thread)
            thread.start()

    def start_process(self, task: Task) -> "subprocess.Popen[bytes]":
        """Run a client in a process, which the caller may kill; give its task a name of its own."""
        self._note(task)
        file = self._directory / f"{task.name}.history"
        self._files.append(file)
        command = [sys.executable, "-m", "tests.kit.clients", msgspec.json.encode(task).decode(), str(file)]
        process = subprocess.Popen([*command, *self._urls], cwd=ROOT)
        self._processes.append((task, process))
        return process

    def _note(self, task: Task) -> None:
        if task.kind == "copy":
            self._copies.setdefault(task.group, set()).update(task.to)

    def _run(self, client: Client) -> None:
        try:
            client.run()
        except BaseException as error:  # noqa: BLE001 -- it is raised where the workload is waited for
            self._errors.append(error)

    def operations(self) -> list[Operation]:
        """The operations of all clients until now."""
        return self.history.operations() + load(file for file in self._files if file.exists())

    def refused(self) -> Counter[str]:
        """How often clients in threads were refused at first, by error code or kind of silence."""
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

        wait_until(enough, f"{more} more acknowledged {kind.__name__} of {name or 'all'}")

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
        self._check()

    def _stop(self, side: str) -> None:
        self._stops[side].set()
        for client, thread in zip(self._clients, self._threads, strict=True):
            if _side(client.task) == side:
                thread.join()
        for task, process in self._processes:
            if _side(task) == side:
                process.kill()
                process.wait()

    def findings(self, topics: Mapping[str, int], groups: Sequence[str] = ()) -> list[Finding]:
        """Findings about `topics`, each with its number of partitions, as the first gateway shows them.

        Call it when all clients have ended; it waits until committed transactions are applied.
        """
        for group, to in self._copies.items():
            self._settle(group, sorted(to))
        with httpx.Client(base_url=self._urls[0], timeout=30) as client:
            log = read_log(client, topics, groups, self._aside())
        return check([op for op in self.operations() if concerns(op, topics, groups)], log)

    def _aside(self) -> dict[At, dict[int, str]]:
        """The records that clients read before they deleted them."""
        return {client.task.at: client.aside for client in self._clients if isinstance(client, Truncater)}

    def _settle(self, group: str, to: Sequence[At]) -> None:
        """Send another transaction of a group, and wait for its records: then all before it are applied."""
        gateways, clock = Gateways(self._urls), SystemClock()

        def settled() -> bool:
            name = f"{group}-end-{clock.unique_id()}"
            write = Write(name, tuple(Part(at, (f"{name}-{at}",)) for at in to), group=group)
            with self.history.doing(write) as doing:
                answer = transact(gateways, f"/consumers/{group}", write, name)
                if not answer.ok:
                    if answer.outcome is Outcome.FAILED:
                        doing.failed()
                    return False
                where = placed(write, answer)
                doing.ok(where)
            return None not in where.offsets

        wait_until(settled, f"the transactions of {group} are applied")


def _side(task: Task) -> str:
    return "readers" if task.kind.split()[0] in ("fetch", "read", "copy") else "writers"


def _of(op: Operation, name: str) -> bool:
    return not name or str(getattr(op.asked, "producer", getattr(op.asked, "group", ""))).startswith(name)


def concerns(op: Operation, topics: Collection[str], groups: Collection[str]) -> bool:
    """Whether an operation is about these topics, and, if a group made it, about these groups."""
    asked = op.asked
    at = asked.parts[0].at if isinstance(asked, Write) and asked.parts else getattr(asked, "at", None)
    return (at is None or at.topic in topics) and getattr(asked, "group", "") in ("", *groups)


def read_log(
    client: httpx.Client,
    topics: Mapping[str, int],
    groups: Sequence[str] = (),
    aside: Mapping[At, Mapping[int, str]] = MappingProxyType({}),
) -> Log:
    """The records of `topics` and the committed offsets of `groups`, read while nothing changes.

    Offsets must have no gap. `aside` has the records that were deleted.
    """
    ats = [At(topic, index) for topic, count in topics.items() for index in range(count)]
    while True:
        before = {group: committed(client, group) for group in groups}
        log = Log({at: _whole(client, at, aside.get(at, {})) for at in ats}, before)
        if before == {group: committed(client, group) for group in groups}:
            return log


def _whole(client: httpx.Client, at: At, aside: Mapping[int, str]) -> dict[int, str]:
    start, held = read_partition(client, at)
    return {offset: aside[offset] for offset in range(start)} | held


def read_partition(client: httpx.Client, at: At) -> tuple[int, dict[int, str]]:
    """The log start of a partition, and what it holds from there on."""
    path = f"/topics/{at.topic}/partitions/{at.partition}/records"
    found: dict[int, str] = {}
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    start = following = int(answer.headers["Log-Start-Offset"])
    while following < int(answer.headers["High-Watermark"]):
        answer = client.get(path, params={"offset": following})
        assert answer.status_code == 200, answer.text
        for record in answer.json():
            assert record["offset"] == following, at
            found[following], following = record["value"], following + 1
    return start, found


def committed(client: httpx.Client, group: str) -> dict[At, int]:
    """The committed offsets of a group."""
    answer = client.get(f"/consumers/{group}/offsets")
    if answer.status_code == 404:
        return {}
    assert answer.status_code == 200, answer.text
    return {At(each["topic"], each["partition"]): each["offset"] for each in answer.json()["offsets"]}


def lag(url: str, group: str, topic: str, partitions: int) -> int:
    """How many records of a topic a group has not committed."""
    with httpx.Client(base_url=url, timeout=30) as client:
        places, behind = committed(client, group), 0
        for index in range(partitions):
            answer = client.get(f"/topics/{topic}/partitions/{index}/offsets")
            assert answer.status_code == 200, answer.text
            behind += answer.json()["end_offset"] - places.get(At(topic, index), 0)
        return behind
