"""The unkind load: records with keys, from one to 500 in a request, to few and to many partitions.

A request with keys touches many partitions, and one with a single record costs about as much as one with
hundreds. The peer does the same work: it hands each record with its key to librdkafka.
"""

from dataclasses import dataclass

from bench import load
from bench.cells import Figures, body_file, scratch
from bench.contest import Contest, contest
from bench.gateway import Gateway
from bench.load import Measured
from bench.peers import Peers

WARM_S = 2


@dataclass(frozen=True, slots=True)
class Case:
    """How many records a request has, and to how many partitions over how many connections they go."""

    records: int
    partitions: int
    connections: int

    def __str__(self) -> str:
        return f"{self.records} a request, {self.partitions} partitions, {self.connections} connections"

    def figures(self, measured: Measured) -> Figures:
        return {
            "records/s": measured.requests * self.records / measured.seconds,
            "p50 ms": measured.p50_ms,
            "p99 ms": measured.p99_ms,
        }

    def contest(self) -> Contest:
        """Ours beside a thin gateway before Kafka."""
        return contest(self.ours, {"FastAPI + librdkafka before Kafka": self._peer})

    def ours(self, seconds: int) -> Figures:
        with scratch() as directory, Gateway(directory / "data") as gateway:
            gateway.create_topic("keyed", self.partitions)
            body = body_file(directory, load.keyed_bodies(self.records))
            url = f"{gateway.url}/topics/keyed"
            load.post(url, body, load.JSON, self.connections, WARM_S, in_turn=True)
            before, held = gateway.cpu_seconds, gateway.end_offset("keyed", self.partitions)
            measured = load.post(url, body, load.JSON, self.connections, seconds, in_turn=True)
            cpu = gateway.cpu_seconds - before
            kept = gateway.end_offset("keyed", self.partitions) - held
            if kept < measured.requests * self.records:
                acknowledged = measured.requests * self.records
                raise RuntimeError(f"{acknowledged} records were acknowledged, {kept} are there")
            return {
                **self.figures(measured),
                "CPU µs a request": cpu / measured.requests * 1e6,
                "peak MB": gateway.peak_mb,
            }

    def _peer(self, peers: Peers, seconds: int) -> Figures:
        topic = f"keyed{self.partitions}"
        with scratch() as directory, peers.http_gateway() as url:
            target = f"{url}/topics/{peers.topic(topic, self.partitions)}"
            body = body_file(directory, load.keyed_bodies(self.records))
            load.post(target, body, load.JSON, self.connections, WARM_S, in_turn=True)
            return self.figures(load.post(target, body, load.JSON, self.connections, seconds, in_turn=True))


CASES = (
    Case(1, 4, 64),
    Case(1, 16, 64),
    Case(1, 4, 256),
    Case(1, 16, 256),
    Case(10, 4, 64),
    Case(500, 4, 16),
    Case(500, 16, 16),
    Case(500, 64, 16),
)

CURVE = (1, 4, 16, 64, 256)


def curve(seconds: int) -> Figures:
    """Records a second with keys, 500 a request over 16 connections, by the number of partitions."""
    found: Figures = {}
    for partitions in CURVE:
        one = Case(500, partitions, 16).ours(seconds)
        found[f"{partitions} partitions, records/s"] = one["records/s"]
    return found
