"""When a gateway takes a partition that another one has claimed, and when it leaves it to that one."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from api.gateway import Gateway
from api.process.cluster_secret import peer_secrets
from api.process.server import open_gateway
from coordinator.brokers.peer_secret import PeerSecrets
from coordinator.brokers.peers import TARGET
from ingest.settings import Settings
from ingest.writer import Acks
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.cluster.topic import Topic
from log_tables.errors import NotLeader, OutcomeUnknown
from log_tables.store.store import open_store
from tests.kit.gateway import RunningGateway, start_gateway
from tests.kit.partitions import entry
from tests.kit.support import wait_until

NOWHERE = "http://127.0.0.1:9"
"""Where nobody listens."""

PROOFS: dict[str, str] = {}
"""What a gateway that was registered here answers to its name."""


class _Service(BaseHTTPRequestHandler):
    """Something that answers for a gateway, and can do nothing."""

    knows = True
    """Whether it proves that it is the one that is meant; else it repeats what it was sent."""

    def do_GET(self) -> None:
        self.send_response(204)
        self._say_who()
        self.end_headers()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(500)
        self._say_who()
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"what")

    def _say_who(self) -> None:
        named = self.headers[TARGET]
        self.send_header(TARGET, PROOFS.get(named, "") if self.knows else named)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class _Stranger(_Service):
    knows = False


@contextmanager
def service(kind: type[_Service] = _Service) -> Iterator[str]:
    """The URL of one."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def register(cluster: Cluster, url: str) -> BrokerRecord:
    """A gateway at `url` that has the peer secret of the root."""
    secrets = PeerSecrets(peer_secrets(Settings(), cluster.store, cluster.clock), cluster.cluster_id)
    record = cluster.metadata_log.register_broker(url, peer_keys=secrets.fingerprints)
    target = secrets.target(record.incarnation, record.peer_keys)
    assert target is not None
    PROOFS[target.name] = target.proof
    return record


def claimed_by(root: Path, url: str) -> tuple[Cluster, BrokerRecord]:
    """A root with a topic "t", and a gateway at `url` that has claimed it and does nothing more."""
    cluster = Cluster.open(open_store(root), url=url)
    record = register(cluster, url)
    cluster.claim(create_topic(cluster, "t"), 0, record.id)
    return cluster, record


def run(root: Path, scenario: Callable[[Gateway, Topic], Awaitable[None]]) -> None:
    """Run `scenario` with a gateway on `root`, but for its server."""

    async def main() -> None:
        settings = Settings(data=str(root), leader_timeout_ms=100, refresh_interval_ms=60_000)
        gateway = open_gateway(settings, "http://here")
        await gateway.writer.start()
        await gateway.brokers.start()
        try:
            await scenario(gateway, gateway.cluster.topic("t"))
        finally:
            await gateway.writer.close()
            await gateway.brokers.close()
            await gateway.peers.close()

    asyncio.run(main())


async def until_silent(gateway: Gateway, broker: int) -> None:
    await asyncio.to_thread(wait_until, lambda: gateway.brokers.is_silent(broker), "it is silent")


def epoch(topic: Topic) -> int:
    return topic.partition(0).refresh(wait=True).leader_epoch


def test_who_is_silent_and_cannot_be_reached_is_replaced(tmp_path: Path) -> None:
    _, gone = claimed_by(tmp_path, NOWHERE)

    async def scenario(gateway: Gateway, topic: Topic) -> None:
        await until_silent(gateway, gone.id)
        with pytest.raises(NotLeader):
            await gateway.leadership.become_leader(topic, 0)
        assert await gateway.leadership.find_leader(topic, 0) == gone, "nobody has tried to reach it"
        gateway.leadership.note_unreachable(gone.id)
        assert await gateway.leadership.find_leader(topic, 0) is None
        await gateway.leadership.become_leader(topic, 0)
        assert (epoch(topic), topic.partition(0).snapshot.leader_broker) == (2, gateway.brokers.id)

    run(tmp_path, scenario)


@pytest.mark.parametrize("asked", [False, True], ids=["here", "asked"])
def test_who_is_silent_and_answers_goes_on_leading(tmp_path: Path, asked: bool) -> None:
    with service() as url:
        _, other = claimed_by(tmp_path, url)

        async def scenario(gateway: Gateway, topic: Topic) -> None:
            await until_silent(gateway, other.id)
            gateway.leadership.note_unreachable(other.id)
            with pytest.raises(NotLeader):
                await gateway.leadership.become_leader(topic, 0, forwarded=asked)
            assert epoch(topic) == 1
            assert await gateway.leadership.find_leader(topic, 0) == other, "it can be reached again"

        run(tmp_path, scenario)


def test_who_answers_for_another_is_not_believed(tmp_path: Path) -> None:
    with service(_Stranger) as url:
        _, other = claimed_by(tmp_path, url)

        async def scenario(gateway: Gateway, topic: Topic) -> None:
            with pytest.raises(OutcomeUnknown):
                await gateway.peers.append(other, topic, 0, [entry(b"a")], Acks.ALL)
            with pytest.raises(OutcomeUnknown):
                await gateway.peers.forward(other, "GET", "/consumers/g/offsets", {}, b"")
            await until_silent(gateway, other.id)
            gateway.leadership.note_unreachable(other.id)
            await gateway.leadership.become_leader(topic, 0)
            assert epoch(topic) == 2

        run(tmp_path, scenario)


def test_who_has_come_just_now_is_asked_for(tmp_path: Path) -> None:
    cluster, _ = claimed_by(tmp_path, NOWHERE)

    async def scenario(gateway: Gateway, topic: Topic) -> None:
        fresh = register(cluster, "http://127.0.0.1:10")
        cluster.claim(cluster.topic("t"), 0, fresh.id)
        await gateway.leadership.refresh_leader(topic, 0)
        assert gateway.cluster.metadata_log.brokers.get(fresh.id) is None, "it is not known here yet"
        assert await gateway.leadership.find_leader(topic, 0) == fresh

    run(tmp_path, scenario)


def test_who_has_left_is_replaced_at_once(tmp_path: Path) -> None:
    cluster, gone = claimed_by(tmp_path, NOWHERE)
    cluster.metadata_log.remove_broker(gone)

    async def scenario(gateway: Gateway, topic: Topic) -> None:
        assert await gateway.leadership.find_leader(topic, 0) is None
        await gateway.leadership.become_leader(topic, 0)
        assert epoch(topic) == 2

    run(tmp_path, scenario)


def test_a_gateway_stops_whatever_the_others_answer(tmp_path: Path) -> None:
    with service() as url:
        gateway = start_gateway(tmp_path, linger_ms=0, leader_timeout_ms=60_000)
        gateway.create_topic("t", partitions=2)
        assert [gateway.produce("t", 1, partition=p).status_code for p in (0, 1)] == [200, 200]
        register(Cluster.open(open_store(tmp_path)), url)
        wait_until(
            lambda: len(gateway.client.get("/brokers").json()["brokers"]) == 2, "it knows of the other"
        )
        assert gateway.stop() == 0


def test_what_is_sent_with_acks_0_to_any_gateway_stays_in_order(tmp_path: Path) -> None:
    one, two = (start_gateway(tmp_path, linger_ms=0) for _ in range(2))
    try:
        one.create_topic("t")
        assert one.produce("t", [-1, ""]).status_code == 200
        for number in range(40):
            gateway = one if number % 4 < 2 else two
            padding = "x" * (500_000 if number % 2 == 0 else 1)
            assert gateway.produce("t", [number, padding], partition=0, acks="0").status_code == 200
            if number % 4 in (1, 3):  # the next one may go another way
                wait_until(lambda: len(read(one)) > number + 1, "it is there")  # noqa: B023
        assert read(one) == [*range(-1, 40)]
    finally:
        one.stop()
        two.stop()


@pytest.mark.parametrize("acks", ["1", "all"])
def test_what_follows_acks_0_comes_after_it(tmp_path: Path, acks: str) -> None:
    one, two = (start_gateway(tmp_path, linger_ms=0) for _ in range(2))
    try:
        one.create_topic("t")
        assert one.produce("t", [0, ""]).status_code == 200
        for number in range(1, 21, 2):
            for gateway in (one, two)[:: 1 if number % 4 == 1 else -1]:
                padding = "x" * 500_000
                assert gateway.produce("t", [number, padding], partition=0, acks="0").status_code == 200
                assert gateway.produce("t", [number + 1, ""], partition=0, acks=acks).status_code == 200
        wait_until(lambda: len(read(one)) == 41, "all is there")
        assert read(one) == [0, *(each for number in range(1, 21, 2) for each in (number, number + 1) * 2)]
    finally:
        one.stop()
        two.stop()


def read(gateway: RunningGateway) -> list[int]:
    """The numbers in the log."""
    found: list[int] = []
    while True:
        query = {"offset": len(found)}
        answer = gateway.client.get("/topics/t/partitions/0/records", params=query)
        assert answer.status_code == 200, answer.text
        if not answer.json():
            return found
        found += [record["value"][0] for record in answer.json()]
