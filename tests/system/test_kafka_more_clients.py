"""Kafka's own clients, unchanged, at the Kafka listener: aiokafka, kafka-python, franz-go, Sarama, and the
tools of Apache Kafka. Those that every run tries are in test_kafka_clients.py.
"""

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

from tests.kit.kafka import KafkaGateway, Read, kafka_gateway, lines_of, produce, read_all
from tests.kit.kafka_programs import go_client, kafka_tool
from tests.kit.support import WAIT_S

pytestmark = pytest.mark.torture

CODECS = [None, "gzip"]
"""Those that the two clients in Python have without more packages."""

COUNT = 1_000
PAIRS = [(key, value) for key in (None, b"", b"k") for value in (None, b"", b"v")][1:]
"""Not both null: that is what the two clients in Python refuse themselves."""

HEADERS: list[tuple[str, bytes]] = [("name", b"value"), ("name", b"")]


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaGateway]:
    with kafka_gateway(tmp_path_factory.mktemp("root")) as gateway:
        yield gateway


def contents(found: list[Read]) -> list[tuple[bytes | None, bytes | None]]:
    return [(each.key, each.value) for each in found]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_aiokafka_reads_what_it_wrote(door: KafkaGateway, codec: str | None, idempotent: bool) -> None:
    topic = door.create_topic(f"aiokafka-{codec}-{idempotent}")

    async def main() -> list[tuple[bytes | None, bytes | None]]:
        producer = AIOKafkaProducer(
            bootstrap_servers=door.bootstrap, compression_type=codec, enable_idempotence=idempotent
        )
        async with producer:
            waits = [await producer.send(topic, value, key, 0, 1_000, HEADERS) for key, value in PAIRS * 50]
            for wait in waits:
                await wait
        consumer = AIOKafkaConsumer(bootstrap_servers=door.bootstrap, auto_offset_reset="earliest")
        async with consumer:
            consumer.assign([AiokafkaPartition(topic, 0)])
            found = [await asyncio.wait_for(consumer.getone(), WAIT_S) for _ in waits]
        assert [each.offset for each in found] == [*range(len(waits))]
        assert {each.timestamp for each in found} == {1_000}
        assert {each.headers for each in found} == {tuple(HEADERS)}
        return [(each.key, each.value) for each in found]

    found = asyncio.run(main())
    assert found == contents(read_all(door.bootstrap, topic))
    assert found == PAIRS * 50


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_reads_what_it_wrote(door: KafkaGateway, codec: str | None) -> None:
    topic = door.create_topic(f"kafka-python-{codec}")
    producer = KafkaProducer(bootstrap_servers=door.bootstrap, compression_type=codec)
    waits = [
        producer.send(topic, value, key, headers=HEADERS, partition=0, timestamp_ms=1_000)
        for key, value in PAIRS * 50
    ]
    assert [wait.get(WAIT_S).offset for wait in waits] == [*range(len(waits))]
    producer.close()
    consumer = KafkaConsumer(
        bootstrap_servers=door.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(WAIT_S * 1_000),
    )
    at = KafkaPythonPartition(topic, 0)
    consumer.assign([at])
    found = [next(consumer) for _ in waits]
    assert [(each.key, each.value) for each in found] == PAIRS * 50
    assert {tuple(each.headers) for each in found} == {tuple(HEADERS)}
    assert consumer.beginning_offsets([at])[at] == 0
    assert consumer.end_offsets([at])[at] == len(waits)
    assert consumer.offsets_for_times({at: 1_000})[at].offset == 0
    consumer.close()
    assert contents(read_all(door.bootstrap, topic)) == PAIRS * 50


@pytest.mark.parametrize("name", ["franz", "sarama"])
def test_a_client_in_go_reads_what_it_wrote(door: KafkaGateway, name: str) -> None:
    topic = door.create_topic(f"go-{name}")
    found = [json.loads(line) for line in go_client(name, door.bootstrap, topic, str(COUNT)).splitlines()]
    expected = [
        {"partition": 0, "offset": number, "key": text, "value": f"value {text}", "header": text}
        for number, text in enumerate(map(str, range(COUNT)))
    ]
    assert found == expected


@pytest.mark.parametrize("name", ["franz", "sarama"])
def test_a_client_in_go_reads_as_the_member_of_a_group(door: KafkaGateway, name: str) -> None:
    topic, group = door.create_topic(f"go-group-{name}"), f"readers-{name}"
    found = [json.loads(line) for line in go_client(name, door.bootstrap, topic, "100", group).splitlines()]
    assert [each["value"] for each in found] == [f"value {number}" for number in range(100)]
    assert described(door, group, topic) == [("100", "100", "0")]


def described(door: KafkaGateway, group: str, topic: str) -> list[tuple[str, ...]]:
    """Committed offset, end and lag of each partition, as kafka-consumer-groups shows them."""
    said = kafka_tool(
        "consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", door.bootstrap, "--describe", "--group", group),
    )
    rows = [line.split() for line in said.splitlines()]
    return [tuple(row[3:6]) for row in rows if row[:2] == [group, topic]]


def test_kafka_s_tools_read_as_members_of_groups(door: KafkaGateway) -> None:
    topic, server = door.create_topic("members", 2), ("--bootstrap-server", door.bootstrap)
    produce(door.bootstrap, topic, [b"%d" % number for number in range(COUNT)])
    said = kafka_tool(
        "consumer.ConsoleConsumer",
        *(*server, "--topic", topic, "--group", "console", "--from-beginning", "--max-messages", str(COUNT)),
    )
    assert said.split() == [str(number) for number in range(COUNT)]
    assert described(door, "console", topic)[0] == (str(COUNT), str(COUNT), "0")
    said = kafka_tool(
        "VerifiableConsumer",
        *(*server, "--topic", topic, "--group-id", "verifiable", "--max-messages", str(COUNT)),
        *("--reset-policy", "earliest"),
    )
    told = lines_of(said)
    assert sum(each["count"] for each in told if each["name"] == "records_consumed") == COUNT
    assert all(each["success"] for each in told if each["name"] == "offsets_committed")
    kafka_tool(
        "ConsumerPerformance",
        *(*server, "--topic", topic, "--num-records", str(COUNT), "--group", "performance"),
        *("--timeout", str(int(WAIT_S * 1_000))),
    )


def test_kafka_s_tool_lists_resets_and_deletes_groups(door: KafkaGateway) -> None:
    topic, server = door.create_topic("resets"), ("--bootstrap-server", door.bootstrap)
    produce(door.bootstrap, topic, [b"%d" % number for number in range(10)])
    groups = partial(kafka_tool, "consumer.group.ConsumerGroupCommand", *server)
    groups("--group", "reset", "--topic", topic, "--reset-offsets", "--to-offset", "4", "--execute")
    assert described(door, "reset", topic) == [("4", "10", "6")]
    assert "reset" in groups("--list").split()
    groups("--group", "reset", "--topic", topic, "--reset-offsets", "--shift-by", "-1", "--execute")
    assert described(door, "reset", topic) == [("3", "10", "7")]
    groups("--group", "reset", "--topic", topic, "--delete-offsets")
    groups("--group", "reset", "--delete")
    assert "reset" not in groups("--list").split()


def test_kafka_s_tools_administer_topics(door: KafkaGateway) -> None:
    server = ("--bootstrap-server", door.bootstrap)
    topics = partial(kafka_tool, "TopicCommand", *server)
    topics("--create", "--topic", "tools", "--partitions", "2", "--replication-factor", "3")
    topics("--alter", "--topic", "tools", "--partitions", "4")
    assert topics("--describe", "--topic", "tools").count("Leader: ") == 4
    configs = partial(kafka_tool, "kafka.admin.ConfigCommand", *server, "--entity-type", "topics")
    configs("--entity-name", "tools", "--alter", "--add-config", "retention.ms=1000")
    assert "retention.ms=1000" in configs("--entity-name", "tools", "--describe")
    topics("--delete", "--topic", "tools")
    assert "tools" not in topics("--list").split()


def test_kafka_s_tools_find_and_delete_records(door: KafkaGateway, tmp_path: Path) -> None:
    server, topic = ("--bootstrap-server", door.bootstrap), door.create_topic("deleted-by-tool")
    produce(door.bootstrap, topic, [b"%d" % number for number in range(5)])
    asked = {"partitions": [{"topic": topic, "partition": 0, "offset": 3}], "version": 1}
    (tmp_path / "records.json").write_text(json.dumps(asked))
    kafka_tool("DeleteRecordsCommand", *server, "--offset-json-file", str(tmp_path / "records.json"))
    offsets = partial(kafka_tool, "GetOffsetShell", *server, "--topic", topic)
    assert offsets("--time", "earliest").split() == [f"{topic}:0:3"]
    assert offsets("--time", "latest").split() == [f"{topic}:0:5"]
    assert topic in kafka_tool("LogDirsCommand", *server, "--describe", "--topic-list", topic)
    assert "Cluster ID: " in kafka_tool("ClusterTool", "cluster-id", *server)


def test_franz_go_makes_the_topic_that_it_names(door: KafkaGateway) -> None:
    assert len(go_client("franz", door.bootstrap, "made-by-franz", "10").splitlines()) == 10


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_kafka_s_console_tools_read_what_they_wrote(door: KafkaGateway, codec: str) -> None:
    topic, server = door.create_topic(f"console-{codec}"), ("--bootstrap-server", door.bootstrap)
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    lines = "".join(f"k{number}:v{number}\n" for number in range(COUNT))
    kafka_tool(
        "ConsoleProducer", *server, "--topic", topic, "--compression-codec", codec, *keyed, given=lines
    )
    shown = ("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:")
    found = kafka_tool(
        "consumer.ConsoleConsumer",
        *(*server, "--topic", topic, "--partition", "0", "--offset", "earliest"),
        *("--max-messages", str(COUNT), *shown),
    )
    assert found == lines


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_kafka_s_performance_test_loses_nothing(door: KafkaGateway, acks: str) -> None:
    topic, records = door.create_topic(f"perf-{acks}", 4), 20_000
    kafka_tool(
        "ProducerPerformance",
        *("--bootstrap-server", door.bootstrap, "--topic", topic, "--num-records", str(records)),
        *("--record-size", "100", "--throughput", "-1"),
        *(
            "--command-property",
            f"acks={acks}",
            "--command-property",
            f"enable.idempotence={acks == 'all'}".lower(),
        ),
    )
    assert len(read_all(door.bootstrap, topic, 4)) == records
    said = kafka_tool("GetOffsetShell", "--bootstrap-server", door.bootstrap, "--topic", topic)
    assert sum(int(line.rsplit(":", 1)[1]) for line in said.splitlines()) == records


def test_all_clients_find_the_same(door: KafkaGateway) -> None:
    topic = door.create_topic("same")
    values = [b"%d" % number for number in range(COUNT)]
    produce(door.bootstrap, topic, values, **{"compression.type": "zstd", "batch.num.messages": 100})
    consumer = KafkaConsumer(
        bootstrap_servers=door.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(WAIT_S * 1_000),
    )
    consumer.assign([KafkaPythonPartition(topic, 0)])
    assert [next(consumer).value for _ in values] == values
    consumer.close()
    said = kafka_tool(
        "consumer.ConsoleConsumer",
        *("--bootstrap-server", door.bootstrap, "--topic", topic, "--partition", "0"),
        *("--offset", "earliest", "--max-messages", str(COUNT)),
    )
    assert said.encode().split() == values
