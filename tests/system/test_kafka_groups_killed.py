"""`kill -9` of gateways, and of members of a group of Kafka's different clients: every record is read, the
group's offsets never go back, and nobody waits for ever.
"""

import os
import signal
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from log_tables.clock import ManualClock
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.gateway import LEADER_TIMEOUT_MS
from tests.kit.kafka import KafkaGateway, librdkafka_producer
from tests.kit.kafka_member import HEARTBEAT_MS, SESSION_MS, KafkaMember
from tests.kit.support import wait_until

TOPIC, GROUP, COUNT = "t", "g", 300

RANGE = ("librdkafka", "kafka-python", "aiokafka")
MIXED = ("librdkafka", "kafka-python", "librdkafka-consumer", "librdkafka-consumer")
CONSUMER = ("librdkafka-consumer", "librdkafka-consumer", "java-consumer", "java-consumer")
COOPERATIVE = ("librdkafka-cooperative", "librdkafka-cooperative", "java-cooperative", "java-cooperative")


@dataclass
class Scene:
    """Two gateways, a member of each client, and all that was seen of them."""

    directory: Path
    clients: tuple[str, ...]
    stack: ExitStack
    gateways: list[KafkaGateway] = field(default_factory=list)
    members: list[KafkaMember] = field(default_factory=list)
    gone: list[KafkaMember] = field(default_factory=list)
    offsets: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.partitions = max(6, len(self.clients))
        self.ends.update(dict.fromkeys(range(self.partitions), 0))

    def begin(self) -> None:
        settings: dict[str, object] = {
            "linger_ms": 0,
            "leader_timeout_ms": LEADER_TIMEOUT_MS,
            "group_initial_rebalance_delay_ms": 0,
            "group_min_session_timeout_ms": 1_000,
            "group_consumer_session_timeout_ms": SESSION_MS,
            "group_consumer_heartbeat_interval_ms": HEARTBEAT_MS,
        }
        for _ in range(2):
            self.gateways.append(
                self.stack.enter_context(closing(KafkaGateway(self.directory / "root", settings)))
            )
        self.gateways[0].create_topic(TOPIC, self.partitions)
        self.bootstrap = ",".join(each.bootstrap for each in self.gateways)
        for client in self.clients:
            self.members.append(self.member(client))
        # It is no member: it only asks for the offsets.
        self.looker = Consumer({"bootstrap.servers": self.bootstrap, "group.id": GROUP})
        self.stack.callback(self.looker.close)

    def member(self, client: str) -> KafkaMember:
        made = KafkaMember(client, self.bootstrap, TOPIC, GROUP, self.directory)
        return self.stack.enter_context(closing(made))

    def send(self, count: int = COUNT) -> None:
        """Send records to all partitions, and wait until they are acknowledged."""
        producer = librdkafka_producer(self.bootstrap, **{"enable.idempotence": True})
        for number in range(count):
            producer.produce(TOPIC, b"%d" % number, partition=number % self.partitions)
            self.ends[number % self.partitions] += 1
        assert producer.flush(30) == 0

    def look(self) -> bool:
        """Note the group's offsets, and compare them with those before; returns whether all is committed."""
        at_least = self.claimed()
        asked = [TopicPartition(TOPIC, number) for number in range(self.partitions)]
        try:
            found = self.looker.committed(asked, 5)
        except KafkaException:
            return False
        for at in found:
            if at.error is None:
                offset = max(0, at.offset)
                assert offset >= self.offsets.get(at.partition, 0), "an offset has gone back"
                assert offset >= at_least.get(at.partition, 0), "a commit that was acknowledged is lost"
                self.offsets[at.partition] = offset
        return self.offsets == self.ends

    def claimed(self) -> dict[int, int]:
        """The highest offsets that any member was told to be committed."""
        found: dict[int, int] = {}
        for each in (*self.members, *self.gone):
            for partition, offset in each.committed().items():
                found[partition] = max(offset, found.get(partition, 0))
        return found

    def progress(self, more: int) -> None:
        """Wait until so many more records are committed, or all."""
        goal = sum(self.offsets.values()) + more
        wait_until(lambda: self.look() or sum(self.offsets.values()) >= goal, f"{more} more are committed")

    def kill_gateway(self, number: int) -> None:
        victim = self.gateways[number % 2]
        victim.kill()
        self.progress(50)
        victim.start()

    def kill_member(self, number: int) -> None:
        victim = self.members.pop(number % len(self.members))
        victim.close()
        self.gone.append(victim)
        self.members.append(self.member(victim.client))

    def halt_member(self, number: int) -> None:
        """Halt a member until the group has shut it out, which it does not notice."""
        victim = self.members[number % len(self.members)]
        os.kill(victim.process.pid, signal.SIGSTOP)
        try:
            wait_until(self.look, "the others take over what it read")
        finally:
            os.kill(victim.process.pid, signal.SIGCONT)

    def check(self) -> None:
        """Each member reads something again, and nothing was left out."""
        before = {id(each): len(each.read()) for each in self.members}

        def all_read() -> bool:
            self.send(self.partitions)
            wait_until(self.look, "everything is committed")
            ended = [each.client for each in self.members if each.process.poll() is not None]
            assert ended == [], "their processes have ended"
            return all(len(each.read()) > before[id(each)] for each in self.members)

        wait_until(all_read, "each member has a share")
        read = set[tuple[int, int]]().union(*(each.read() for each in (*self.members, *self.gone)))
        everything = {(at, offset) for at, end in self.ends.items() for offset in range(end)}
        assert read == everything


def survive(directory: Path, clients: tuple[str, ...], strikes: list[str], draw: ManualClock) -> None:
    with ExitStack() as stack:
        scene = Scene(directory, clients, stack)
        scene.begin()
        scene.send()
        scene.progress(1)
        kinds = {
            "gateway": scene.kill_gateway,
            "member": scene.kill_member,
            "halt": scene.halt_member,
        }
        for strike in strikes:
            scene.send()
            scene.progress(int(draw.random() * COUNT))
            kinds[strike](int(draw.random() * len(clients)))
        wait_until(scene.look, "everything is committed")
        scene.check()
    assert check(open_store(directory / "root")).problems == []


@pytest.mark.parametrize("clients", [RANGE, MIXED], ids=["range", "mixed"])
def test_a_group_of_different_clients_survives_kills(
    tmp_path: Path, seed: int, clients: tuple[str, ...]
) -> None:
    survive(tmp_path, clients, ["gateway", "member", "halt"], ManualClock(seed=seed))


@pytest.mark.torture
@pytest.mark.parametrize(
    "clients",
    [(*RANGE, "java"), COOPERATIVE, CONSUMER, (*COOPERATIVE[1:3], *CONSUMER[1:3])],
    ids=["range", "cooperative", "consumer", "migrating"],
)
def test_a_group_of_different_clients_survives_many_kills(
    tmp_path: Path, seed: int, clients: tuple[str, ...]
) -> None:
    draw = ManualClock(seed=seed)
    kinds = ("gateway", "gateway", "member", "halt")
    survive(tmp_path, clients, [kinds[int(draw.random() * 4)] for _ in range(20)], draw)


@pytest.mark.torture
@pytest.mark.parametrize("client", ["librdkafka", "librdkafka-consumer"])
def test_a_group_of_twenty_survives_kills(tmp_path: Path, seed: int, client: str) -> None:
    draw = ManualClock(seed=seed)
    kinds = ("gateway", "gateway", "gateway", "member", "halt")
    survive(tmp_path, (client,) * 20, [kinds[int(draw.random() * 5)] for _ in range(10)], draw)
