"""Kafka Connect in distributed mode, and MirrorMaker 2, at the Kafka listener: lines go from file to topic to
file, and records from cluster to cluster and back, through kills of gateways and workers.
"""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.connect import JARS, Worker, properties
from tests.kit.kafka import KafkaGateway, kafka_gateway, librdkafka_producer, read_all
from tests.kit.kafka_programs import kafka_tool
from tests.kit.programs import Program, caught_up, java_class_path, java_command
from tests.kit.support import WAIT_S, free_port

pytestmark = pytest.mark.torture

COUNT = 500
ONE: dict[str, object] = {"tasks.max": 1}
FILE = "org.apache.kafka.connect.file.FileStream"


def lines(name: str) -> list[str]:
    return [f"{name} {number}" for number in range(COUNT)]


def test_lines_go_through_a_topic_from_file_to_file(tmp_path: Path) -> None:
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    source.touch()

    def write(name: str) -> None:
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in lines(name))

    def written() -> list[str]:
        return sink.read_text().splitlines() if sink.exists() else []

    with ExitStack() as open_:
        gateway = open_.enter_context(kafka_gateway(tmp_path / "root"))
        gateway.create_topic("lines", 1)
        first = open_.enter_context(Worker(gateway, tmp_path / "first"))
        first.put(
            "source",
            {**ONE, "connector.class": f"{FILE}SourceConnector", "file": str(source), "topic": "lines"},
        )
        first.put(
            "sink", {**ONE, "connector.class": f"{FILE}SinkConnector", "file": str(sink), "topics": "lines"}
        )
        write("quiet")
        first.program.until(lambda: written() == lines("quiet"), "the lines are in the other file, once")
        gateway.kill()
        write("gateway")
        gateway.start()
        both = [*lines("quiet"), *lines("gateway")]
        first.program.until(
            lambda: [*dict.fromkeys(written())] == both, "so they are after a kill of the gateway"
        )
        second = open_.enter_context(Worker(gateway, tmp_path / "second"))
        second.runs("source")
        second.runs("sink")
        first.program.kill()
        write("worker")
        everything = [*both, *lines("worker")]
        second.program.until(
            lambda: [*dict.fromkeys(written())] == everything, "so they are by the other worker"
        )
        found = [(each.value or b"").decode() for each in read_all(gateway.bootstrap, "lines")]
    assert [*dict.fromkeys(found)] == everything


def test_lines_come_once_through_kills_where_the_worker_has_transactions(tmp_path: Path) -> None:
    source, written, rounds = tmp_path / "source.txt", list[str](), ("quiet", "gateway", "worker") * 2
    source.touch()

    def write(added: Sequence[str]) -> None:
        written.extend(added)
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in added)

    def found(gateway: KafkaGateway) -> list[str]:
        return [(each.value or b"").decode() for each in read_all(gateway.bootstrap, "lines")]

    def more_than(count: int) -> bool:
        return len(found(gateway)) > count

    def complete() -> bool:
        """The connector keeps lines that it has read back until there is another one."""
        if more_than(len(written) - 1):
            return True
        write([f"last {len(written)}"])
        return False

    with ExitStack() as open_:
        gateway = open_.enter_context(closing(KafkaGateway(tmp_path / "root", http_port=free_port())))
        gateway.create_topic("lines", 1)
        worker = open_.enter_context(Worker(gateway, tmp_path / "worker", once=True))
        config = {"connector.class": f"{FILE}SourceConnector", "file": str(source), "topic": "lines"}
        worker.put("source", {**ONE, **config, "batch.size": 20, "exactly.once.support": "required"})
        for number, name in enumerate(rounds):
            known = len(written)
            write(lines(f"{number} {name}"))
            worker.program.until(partial(more_than, known), "some of the lines are in the topic")
            if name != "quiet":
                victim = worker.program if name == "worker" else gateway
                victim.kill()
                victim.start()
        worker.program.until(complete, "all lines are in the topic")
        assert found(gateway) == written
    assert check(open_store(tmp_path / "root")).problems == []


def mirror(directory: Path, east: KafkaGateway, west: KafkaGateway, *, once: bool) -> list[str]:
    """The command of MirrorMaker 2 between two clusters, in both directions."""
    config: dict[str, object] = {
        "clusters": "east, west",
        "east.bootstrap.servers": east.bootstrap,
        "west.bootstrap.servers": west.bootstrap,
        "east->west.enabled": "true",
        "west->east.enabled": "true",
        "topics": "orders",
        "groups": "readers",
        "replication.factor": 1,
        "offset.storage.replication.factor": 1,
        "status.storage.replication.factor": 1,
        "config.storage.replication.factor": 1,
        "checkpoints.topic.replication.factor": 1,
        "heartbeats.topic.replication.factor": 1,
        "offset-syncs.topic.replication.factor": 1,
        "refresh.topics.interval.seconds": 2,
        "refresh.groups.interval.seconds": 2,
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": 1,
        "emit.checkpoints.interval.seconds": 1,
        "offset.flush.interval.ms": 500,
        "offset.lag.max": 0,
        "dedicated.mode.enable.internal.rest": str(once).lower(),
        "listeners": f"http://127.0.0.1:{free_port()}",
        "east.exactly.once.source.support": "enabled" if once else "disabled",
        "west.exactly.once.source.support": "enabled" if once else "disabled",
        "sync.topic.acls.enabled": "false",
    }
    file = properties(directory / "mirror.properties", config)
    return java_command(java_class_path(*JARS), "org.apache.kafka.connect.mirror.MirrorMaker", file)


def feed(gateway: KafkaGateway, name: str) -> None:
    """Write records with keys to the orders of a cluster."""
    producer = librdkafka_producer(gateway.bootstrap, **{"enable.idempotence": True})
    for line in lines(name):
        producer.produce("orders", line, line[-1])
    assert producer.flush(WAIT_S) == 0


def rows(gateway: KafkaGateway, topic: str, *, once: bool) -> list[tuple[object, ...]]:
    """The records of a topic by partition and offset. Unless each is to be there `once`, those that are there
    twice count once.
    """
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    if topic not in admin.list_topics(timeout=WAIT_S).topics:
        return []
    found = read_all(gateway.bootstrap, topic, 2)
    every: list[tuple[object, ...]] = [(each.partition, each.key, each.value) for each in found]
    return every if once else [*dict.fromkeys(every)]


def read_as(group: str, gateway: KafkaGateway) -> None:
    """Commit the end of the orders of a cluster, as a group that has read them all."""
    kafka_tool(
        "consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", gateway.bootstrap, "--group", group, "--topic", "orders"),
        *("--reset-offsets", "--to-latest", "--execute"),
    )


@pytest.mark.parametrize("once", [False, True], ids=["at least once", "exactly once"])
def test_two_clusters_mirror_each_other(tmp_path: Path, once: bool) -> None:
    with ExitStack() as open_:
        east, west = (
            open_.enter_context(
                closing(KafkaGateway(tmp_path / name, {"linger_ms": 0}, http_port=free_port()))
            )
            for name in ("east", "west")
        )
        for gateway, name in ((east, "east"), (west, "west")):
            gateway.create_topic("orders", 2)
            feed(gateway, name)
        program = open_.enter_context(Program(mirror(tmp_path, east, west, once=once), tmp_path / "mirror"))

        def mirrored() -> bool:
            return rows(west, "east.orders", once=once) == rows(east, "orders", once=True) and (
                rows(east, "west.orders", once=once) == rows(west, "orders", once=True)
            )

        program.until(mirrored, "each cluster has the orders of the other one")
        assert len(read_all(west.bootstrap, "east.orders", 2)) == COUNT
        west.kill()
        feed(east, "west is down")
        west.start()
        feed(west, "west is up again")
        program.until(mirrored, "so they do after a kill of one of them")
        program.kill()
        feed(east, "nobody mirrors")
        feed(west, "nobody mirrors")
        program.start()
        program.until(mirrored, "so they do after a kill of the mirror")
        if once:
            return  # of groups it knows nothing then: it needs the offsets of what it writes, which are -1
        read_as("readers", east)
        done = partial(caught_up, west.bootstrap, "readers", "east.orders")
        program.until(done, "the group that has read all in one cluster has read all in the other one")
