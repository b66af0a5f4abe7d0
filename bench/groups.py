"""Consumer groups: each function is one cell and returns the figures of one run by name."""

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle, pairwise
from pathlib import Path

from bench import load
from bench.cells import PARTITIONS, Figures, fill, scratch
from bench.gateway import Gateway
from bench.member import Member
from log_tables.clock import timer
from log_tables.layout import CONSUMER_OFFSETS, log_directory, partition_directory, topic_directory

TOPIC = "bench"
GROUPS = 1_000
COMMITTED_PARTITIONS = 10
WARM_S = 3.0


def json_consumption(_seconds: int) -> Figures:
    """4 members of one group, a topic of 4 partitions with 1 M records of 100 bytes, JSON."""
    return _consumption("json", 1_000_000, lambda member: len(member.poll(100)))


def arrow_consumption(_seconds: int) -> Figures:
    """As `json_consumption`, but as Arrow, and with 4 M records."""
    return _consumption("arrow", 4_000_000, lambda member: member.poll_arrow(100))


def _consumption(form: str, records: int, poll: Callable[[Member], int]) -> Figures:
    with scratch() as directory:
        root = directory / "data"
        with Gateway(root) as gateway:
            gateway.create_topic(TOPIC, PARTITIONS)
        fill(root, records)
        with Gateway(root) as gateway:
            members = [Member(gateway.url, "readers", f"reader-{index}") for index in range(4)]
            for member in members:
                member.create(form)
                member.subscribe(TOPIC)
            counts = [0] * len(members)

            def read(index: int) -> None:
                while sum(counts) < records:
                    counts[index] += poll(members[index])

            begin = timer()
            _together(read, range(len(members)))
            elapsed = timer() - begin
        if sum(counts) != records:
            raise RuntimeError(f"{sum(counts)} of {records} records came")
        return {"records/s": records / elapsed}


def tail(seconds: int) -> Figures:
    """The time from a record's acknowledgement until a waiting member has it: 100 records/s, default
    settings.
    """
    with scratch() as directory, Gateway(directory / "data") as gateway:
        gateway.create_topic(TOPIC, 1)
        member, sender = (Member(gateway.url, "readers", name) for name in ("reader", "sender"))
        member.create(**{"auto.offset.reset": "latest"})
        member.subscribe(TOPIC)
        member.poll(0)
        seen: dict[int, float] = {}
        acknowledged: dict[int, float] = {}
        stop = threading.Event()

        def send() -> None:
            body, due = load.json_body(1), timer()
            while not stop.wait(max(0.0, due - timer())):
                answer = sender.call("POST", f"/topics/{TOPIC}/partitions/0", body)
                acknowledged[json.loads(answer)["offsets"][0]["offset"]] = timer()
                due += 0.01

        thread = threading.Thread(target=send)
        thread.start()
        end = timer() + seconds
        while timer() < end:
            for row in member.poll(1_000):
                seen.setdefault(row.offset, timer())
        stop.set()
        thread.join()
    delays = sorted((seen[offset] - at) * 1e3 for offset, at in acknowledged.items() if offset in seen)
    return {"p50 ms": delays[len(delays) // 2], "p99 ms": delays[int(len(delays) * 0.99)]}


def commits(seconds: int) -> Figures:
    """1,000 groups that commit in turn, 10 partitions a request, 64 connections in a closed loop."""
    with _many_groups() as (gateway, _):
        places = [{"topic": TOPIC, "partition": index, "offset": 0} for index in range(COMMITTED_PARTITIONS)]
        body = json.dumps({"offsets": places}).encode()
        counts, end = [0] * 64, 0.0

        def commit(lane: int) -> None:
            members = [Member(gateway.url, f"group-{index}", "reader") for index in range(lane, GROUPS, 64)]
            for member in cycle(members):
                if timer() > end:
                    return
                member.commit(body)
                counts[lane] += 1

        end = timer() + WARM_S
        _together(commit, range(64))  # what the partition may commit at once after a rest is used up
        counts[:] = [0] * 64
        before, begin = _versions(gateway.data), timer()
        end = begin + seconds
        _together(commit, range(64))
        elapsed = timer() - begin
        return {
            "entries/s": sum(counts) * COMMITTED_PARTITIONS / elapsed,
            "Delta commits/s": (_versions(gateway.data) - before) / elapsed,
        }


def restart(_seconds: int) -> Figures:
    """A gateway with 1,000 groups is killed: from its start anew to records for one group, and for each."""
    with _many_groups() as (gateway, root):
        gateway.kill()
        begin = timer()
        with Gateway(root) as again:
            ready = timer() - begin

            def poll(index: int) -> float:
                if not Member(again.url, f"group-{index}", "reader").poll(0):
                    raise RuntimeError(f"group-{index} was given nothing")
                return timer() - begin

            with ThreadPoolExecutor(16) as pool:
                first, *others = pool.map(poll, range(GROUPS))
            return {"ready s": ready, "first group s": first, "all groups s": max(others)}


@contextmanager
def _many_groups() -> Iterator[tuple[Gateway, Path]]:
    """A gateway with GROUPS groups of one member, who owns COMMITTED_PARTITIONS partitions."""
    with scratch() as directory, Gateway(directory / "data") as gateway:
        gateway.create_topic(TOPIC, COMMITTED_PARTITIONS)
        producer = Member(gateway.url, "none", "none")
        for index in range(COMMITTED_PARTITIONS):
            producer.call("POST", f"/topics/{TOPIC}/partitions/{index}", load.json_body(1))

        def join(index: int) -> None:
            member = Member(gateway.url, f"group-{index}", "reader")
            member.create()
            member.subscribe(TOPIC)
            member.poll(0)

        _together(join, range(GROUPS), at_once=64)
        yield gateway, directory / "data"


def _versions(root: Path) -> int:
    """How many commits `__consumer_offsets` has had."""
    directory = root / log_directory(partition_directory(topic_directory(CONSUMER_OFFSETS), 0))
    return max(int(path.stem) for path in directory.glob("*.json"))


def rebalance(_seconds: int) -> Figures:
    """10 consumers share 900 partitions, an eleventh comes; 45 of them get 4 records/s each meanwhile."""
    with scratch() as directory, Gateway(directory / "data") as gateway:
        gateway.create_topic(TOPIC, 900)
        return _Rebalance(gateway.url).measure()


class _Rebalance:
    def __init__(self, url: str) -> None:
        self._url, self._stop = url, threading.Event()
        self._given: defaultdict[int, list[float]] = defaultdict(list)
        self._owned: dict[int, set[int]] = {}
        self._fed = range(0, 900, 20)

    def measure(self) -> Figures:
        pool = ThreadPoolExecutor(16)
        work = [pool.submit(self._consume, index) for index in range(10)]
        work += [pool.submit(self._feed, self._fed[lane::4]) for lane in range(4)]
        try:
            self._until(lambda: len(self._owned) == 10 and self._shares() == [90] * 10, work)
            self._rest(3.0)
            before, begin = {i: set(o) for i, o in self._owned.items()}, timer()
            work.append(pool.submit(self._consume, 10))
            self._until(lambda: len(self._owned) == 11 and min(self._shares()) >= 81, work)
            elapsed = timer() - begin
            self._rest(3.0)
        finally:
            self._stop.set()
            pool.shutdown()
        for done in work:
            done.result()
        stayed = {at for index, owned in before.items() for at in owned & self._owned[index]}
        moved = 900 - len(stayed)
        return {
            "complete ms": elapsed * 1e3,
            "moved": moved,
            "longest gap of one that stays ms": self._gap(stayed, begin - 0.5, begin + elapsed + 1.0),
            "longest gap before ms": self._gap(stayed, begin - 2.5, begin - 0.5),
        }

    def _shares(self) -> list[int]:
        shares = sorted(len(owned) for owned in self._owned.values())
        return shares if sum(shares) == 900 else [0]

    def _consume(self, index: int) -> None:
        member = Member(self._url, "readers", f"reader-{index}")
        member.create()
        member.subscribe(TOPIC)
        while not self._stop.is_set():
            for row in member.poll(500):
                self._given[row.partition].append(timer())
            self._owned[index] = member.assignment()

    def _feed(self, partitions: Sequence[int]) -> None:
        sender, body, due = Member(self._url, "none", "none"), load.json_body(1), timer()
        while not self._stop.wait(max(0.0, due - timer())):
            for index in partitions:
                sender.call("POST", f"/topics/{TOPIC}/partitions/{index}?acks=1", body)
            due += 0.25

    def _gap(self, stayed: set[int], begin: float, end: float) -> float:
        gaps = [0.0]
        for index in stayed.intersection(self._fed):
            times = [at for at in self._given[index] if begin <= at <= end]
            gaps += [after - before for before, after in pairwise(times)]
        return max(gaps) * 1e3

    def _until(self, condition: Callable[[], bool], work: list[Future[None]]) -> None:
        end = timer() + 60
        while not condition():
            for done in work:
                if done.done():
                    done.result()
            if timer() > end:
                raise RuntimeError(f"after 60 s the shares are {self._shares()}")
            self._rest(0.002)

    def _rest(self, seconds: float) -> None:
        self._stop.wait(seconds)


def _together(work: Callable[[int], None], numbers: range, at_once: int | None = None) -> None:
    """Do `work` for each number, `at_once` in threads of their own; raises what one of them raises."""
    with ThreadPoolExecutor(at_once or len(numbers)) as pool:
        list(pool.map(work, numbers))
