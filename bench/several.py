"""Several gateways on one root: what two do together, what forwarding costs, how long a death is felt."""

import resource
import statistics
from contextlib import ExitStack
from pathlib import Path

from bench import load
from bench.cells import PARTITIONS, Figures, scratch
from bench.contest import OURS, Results, Scale
from bench.gateway import Gateway, gateways, wait_until, wait_until_known
from bench.member import Member
from bench.peers import Peers
from log_tables.clock import SystemClock, timer

TOPIC = "bench"
KILLS = 3
ONE = "one gateway"
_UNPACED = ("--set", "linger_ms=0", "--set", "commits_per_second_max=0", "--set", "commits_cores_max=0")
_GENERATORS = 2
"""wrk processes, with half of the connections each: against one gateway too."""

_WARM_REQUESTS = 100
_REST_S = 0.01
"""After a record with acks=1, so that its commit does not delay the next."""


def json_gateways(_peers: Peers | None, scale: Scale) -> Results:
    """500 records a request, 16 connections, half of them to each of two gateways; then all to one."""
    return _json(scale, 2)


def arrow_gateways(_peers: Peers | None, scale: Scale) -> Results:
    """As `json_gateways`, but with 10,000 Arrow records a request, and 8 connections."""
    return _arrow(scale, 2)


def json_workers(_peers: Peers | None, scale: Scale) -> Results:
    """`lakelog serve --workers 2`, where the kernel shares the 16 connections out; then one gateway."""
    return _json(scale, 1, workers=2)


def arrow_workers(_peers: Peers | None, scale: Scale) -> Results:
    """As `json_workers`, but with 10,000 Arrow records a request, and 8 connections."""
    return _arrow(scale, 1, workers=2)


def _json(scale: Scale, count: int, workers: int = 1) -> Results:
    load_ = _Load(load.json_body(500), load.JSON, 500, 16, scale.seconds)
    return {OURS: load_.measure(count, workers), ONE: load_.measure(1, 1)}


def _arrow(scale: Scale, count: int, workers: int = 1) -> Results:
    load_ = _Load(load.arrow_body(10_000), load.ARROW, 10_000, 8, scale.seconds)
    return {OURS: load_.measure(count, workers), ONE: load_.measure(1, 1)}


class _Load:
    def __init__(self, body: bytes, media_type: str, records: int, connections: int, seconds: int) -> None:
        self._body, self._media_type, self._records = body, media_type, records
        self._connections, self._seconds = connections, seconds

    def measure(self, count: int, workers: int) -> Figures:
        with scratch() as directory, gateways(directory / "data", count, workers=workers) as started:
            started[0].create_topic(TOPIC, PARTITIONS)
            body = directory / "body"
            body.write_bytes(self._body)
            self._post(started, body, 1)
            held, cpu, own = _held(started), _cpu(started), _own_cpu()
            measured = self._post(started, body, self._seconds)
            cpu, own = _cpu(started) - cpu, _own_cpu() - own
            kept = _held(started) - held
        if kept < measured.requests * self._records:
            raise RuntimeError(
                f"{measured.requests * self._records} records were acknowledged, {kept} are there"
            )
        return {
            "records/s": measured.requests * self._records / measured.seconds,
            "p99 ms": measured.p99_ms,
            "CPU s per MB of values": cpu / (kept * 100 / 1e6),
            "cores used": cpu / measured.seconds,
            "cores used by wrk": own / measured.seconds,
        }

    def _post(self, started: list[Gateway], body: Path, seconds: int) -> load.Measured:
        urls = [f"{started[i % len(started)].url}/topics/{TOPIC}" for i in range(_GENERATORS)]
        return load.post_to(urls, body, self._media_type, self._connections, seconds)


def _held(started: list[Gateway]) -> int:
    return started[0].end_offset(TOPIC, PARTITIONS)


def _cpu(started: list[Gateway]) -> float:
    return sum(gateway.cpu_seconds for gateway in started)


def _own_cpu() -> float:
    """Processor seconds of the children that have ended: these are load generators, as the gateways still
    run.
    """
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def forward(seconds: int) -> Figures:
    """One record at a time, in turn to the leader and to the other gateway; no linger, no bound."""
    with scratch() as directory, gateways(directory / "data", 2, *_UNPACED) as started:
        started[0].create_topic(TOPIC, 1)
        Member(started[0].url, "none", "none").call("POST", f"/topics/{TOPIC}", load.json_body(1))
        wait_until(lambda: any(started[0].leads(TOPIC).values()), "the leader is known")
        leads = started[0].leads(TOPIC)
        leader, other = sorted(started, key=lambda gateway: not leads[gateway.url])
        return {
            **_forwarded(leader, other, "all", seconds, 0),
            **_forwarded(leader, other, "1", seconds, _REST_S),
        }


def _forwarded(leader: Gateway, other: Gateway, acks: str, seconds: int, rest_s: float) -> Figures:
    senders = [Member(gateway.url, "none", "none") for gateway in (leader, other)]
    path, body, clock = f"/topics/{TOPIC}/partitions/0?acks={acks}", load.json_body(1), SystemClock()
    took: list[list[float]] = [[] for _ in senders]

    def send() -> None:
        for sender, times in zip(senders, took, strict=True):
            begin = timer()
            sender.call("POST", path, body)
            times.append((timer() - begin) * 1e3)
            clock.pause(rest_s)

    for _ in range(_WARM_REQUESTS):
        send()
    took[:] = [[] for _ in senders]
    end = timer() + seconds
    while timer() < end:
        send()
    direct, forwarded = (statistics.quantiles(times, n=100) for times in took)
    return {
        f"acks={acks}, to the leader: p50 ms": direct[49],
        f"acks={acks}, to the leader: p99 ms": direct[98],
        f"acks={acks}, forwarded: p50 ms": forwarded[49],
        f"acks={acks}, forwarded: p99 ms": forwarded[98],
        f"acks={acks}, what forwarding adds: p50 ms": forwarded[49] - direct[49],
    }


def failover(_seconds: int) -> Figures:
    """The time from `kill -9` of a leader until the other gateway acknowledges a record; 3 kills."""
    with scratch() as directory, ExitStack() as stack:
        root = directory / "data"
        doomed, other = (stack.enter_context(Gateway(root)) for _ in range(2))
        doomed.create_topic(TOPIC, 2)
        took = []
        for _ in range(KILLS):
            took.append(_outage(doomed, other, _settled(doomed, other)))
            doomed, other = other, stack.enter_context(Gateway(root))
        if other.end_offset(TOPIC, 2) < 6 * KILLS:
            raise RuntimeError("a record that was acknowledged is lost")
    return {"median s": statistics.median(took), "longest s": max(took)}


def _settled(first: Gateway, second: Gateway) -> int:
    """Wait until each leads one of the two partitions and has forwarded to the other: the one of `first`."""
    both = {first.url, second.url}
    for gateway in (first, second):
        wait_until_known([gateway], 2)
        sender = Member(gateway.url, "none", "none")
        for index in range(2):
            sender.call("POST", f"/topics/{TOPIC}/partitions/{index}", load.json_body(1))
    for gateway in (first, second):
        wait_until(
            lambda: {url for url, leads in gateway.leads(TOPIC).items() if len(leads) == 1} == both,  # noqa: B023
            "each leads one partition",
        )
    (index,) = second.leads(TOPIC)[first.url]
    return index


def _outage(doomed: Gateway, other: Gateway, index: int) -> float:
    """Seconds from the kill of `doomed`, which leads the partition, to the answer of `other`."""
    sender, clock, body = Member(other.url, "none", "none"), SystemClock(), load.json_body(1)
    path = f"/topics/{TOPIC}/partitions/{index}"
    sender.call("POST", path, body)
    begin = timer()
    doomed.kill()
    while True:
        try:
            sender.call("POST", path, body)
            return timer() - begin
        except RuntimeError:  # it was refused, for now
            if timer() - begin > 60:
                raise
            clock.pause(_REST_S)
