"""Values that confluent-kafka's serializers write by the schemas of a real Apicurio are typed columns: while
schemas grow, and while the registry, which keeps them here, or the gateway is dead.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from tests.kit.apicurio import apicurio, subjects_of
from tests.kit.kafka import KafkaGateway, Read, kafka_gateway, read_all
from tests.kit.kafka_programs import without_java_options
from tests.kit.programs import PYTHON, SOURCES, Program, needed
from tests.kit.support import WAIT_S, free_port

pytestmark = pytest.mark.torture

Row = dict[str, Any]


def avro(*fields: Row) -> Row:
    return {"type": "record", "name": "Flight", "namespace": "air", "fields": list(fields)}


def json_schema(**properties: str) -> Row:
    own = {name: {"type": kind} for name, kind in properties.items()}
    return {"title": "Flight", "type": "object", "properties": own}


SCHEMAS: dict[str, list[Any]] = {
    "avro": [
        avro({"name": "carrier", "type": "string"}, {"name": "delay", "type": "int"}),
        avro(
            {"name": "carrier", "type": "string"},
            {"name": "delay", "type": "long"},
            {"name": "gate", "type": "string", "default": "none"},
        ),
        avro(
            {"name": "airline", "type": "string", "aliases": ["carrier"]},
            {"name": "delay", "type": "long"},
            {"name": "gate", "type": "string", "default": "none"},
        ),
        avro(
            {"name": "carrier", "type": "string"},
            {"name": "delay", "type": "long"},
            {"name": "gate", "type": "string"},
            {"name": "stops", "type": "int", "default": 0},
        ),
    ],
    "protobuf": [
        {"carrier": ("string", 1), "delay": ("int32", 2)},
        {"carrier": ("string", 1), "delay": ("int64", 2), "gate": ("string", 3)},
        {"airline": ("string", 1), "delay": ("int64", 2), "gate": ("string", 3)},
    ],
    "json": [
        json_schema(carrier="string", delay="integer"),
        json_schema(carrier="string", delay="integer", gate="string"),
        json_schema(carrier="string", delay="number", gate="string"),
    ],
}
"""Each kind's versions: a field more with a default and a wider number, then another name for a field, where
the kind knows that. The fourth one of Avro is for later.
"""
FORMATS = {"avro": "avro", "protobuf": "protobuf", "json": "json-schema"}
COLUMNS = "carrier string, delay bigint, gate string"
NUMBERED = "carrier string FROM '/1', delay bigint FROM '/2', gate string FROM '/3'"
BIG = 2**40


def values(kind: str, version: int) -> list[Row]:
    """One value of a version."""
    carrier = "airline" if version == 2 and kind != "json" else "carrier"
    gate = {"gate": f"g{version}"} if version else {}
    return [{carrier: f"c{version}", "delay": BIG if version else 7, **gate}]


def typed(version: int) -> tuple[str, int, str | None]:
    return f"c{version}", BIG if version else 7, f"g{version}" if version else None


@dataclass
class Scene:
    """A gateway, its registry, and a way to write."""

    root: Path
    gateway: KafkaGateway
    registry: Program
    url: str

    def write(self, *wanted: tuple[str, str, int]) -> list[int]:
        """Write a value to each topic, of a kind, of a version; returns the ids of the schemas."""
        asked = [
            {"topic": topic, "kind": kind, "schema": SCHEMAS[kind][version], "values": values(kind, version)}
            for topic, kind, version in wanted
        ]
        command = [needed(PYTHON), SOURCES / "python" / "by_schemas.py", self.gateway.bootstrap, self.url]
        return [*map(int, self.run(*map(str, command), given="\n".join(map(json.dumps, asked))).split())]

    def run(self, *command: str, given: str = "") -> str:
        """Run a program; returns what it prints. Fails where the program does."""
        environment = {**without_java_options(), "LAKELOG_SCHEMA_REGISTRIES": json.dumps({self.url: {}})}
        done = subprocess.run(
            command,
            input=given,
            env=environment,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def lakelog(self, *words: str) -> str:
        """Run a command over the root."""
        return self.run(sys.executable, "-m", "lakelog", *words, "--data", str(self.root))

    def rows(self, topic: str) -> list[Row]:
        """The records of a topic as `lakelog sql` has them, in order."""
        columns = "value_error, carrier, delay, gate"
        asked = f'SELECT {columns} FROM "{topic}" ORDER BY "offset"'
        return [*map(json.loads, self.lakelog("sql", asked, "--format", "ndjson").splitlines())]

    def copy(self, record: Read, topic: str) -> None:
        """Write a record that was read, to the byte."""
        producer = Producer({"bootstrap.servers": self.gateway.bootstrap})
        producer.produce(topic, value=record.value, headers=[*record.headers], partition=0)
        assert producer.flush(WAIT_S) == 0

    def restart_registry(self) -> None:
        """Start it again, and wait until it has what it had."""
        self.registry.start()
        self.registry.until(lambda: bool(subjects_of(self.url)), "the registry has its schemas again")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    port = free_port()
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    with (
        kafka_gateway(tmp_path / "root", schema_registries=json.dumps({url: {}})) as gateway,
        apicurio(gateway.bootstrap, port, tmp_path / "registry") as registry,
    ):
        registry.until(lambda: subjects_of(url) == [], "the registry is there, and empty")
        yield Scene(tmp_path / "root", gateway, registry, url)


def test_values_behind_schemas_are_columns_whatever_dies(scene: Scene) -> None:
    gateway, url = scene.gateway, scene.url
    for kind, form in FORMATS.items():
        columns = NUMBERED if kind == "protobuf" else COLUMNS
        gateway.create_topic(
            f"by-{kind}", value_columns=columns, value_columns_format=form, value_columns_schemas=url
        )
    gateway.create_topic("all", value_columns=COLUMNS, value_columns_format="auto", value_columns_schemas=url)
    gateway.create_topic("late")  # nobody looks for its schemas

    scene.write(*((f"by-{kind}", kind, version) for kind in FORMATS for version in range(3)))
    scene.write(*(("all", kind, 1) for kind in FORMATS))
    [late] = scene.write(("late", "avro", 3))
    expected = {f"by-{kind}": [*map(typed, range(3))] for kind in FORMATS}
    expected["all"] = [typed(1)] * len(FORMATS)

    def check() -> None:
        for topic, rows in expected.items():
            found = scene.rows(topic)
            assert [each["value_error"] for each in found] == [None] * len(rows)
            assert [(each["carrier"], each["delay"], each["gate"]) for each in found] == rows, topic

    check()

    # Nobody can ask the registry: not this gateway, and not the one after it, which finds what is kept.
    written = {topic: read_all(gateway.bootstrap, topic) for topic in (*expected, "late")}
    scene.registry.kill()
    for _ in range(2):
        for topic, rows in expected.items():
            for record in written[topic]:
                scene.copy(record, topic)
            rows.extend(rows[: len(written[topic])])
        check()
        gateway.kill()
        gateway.start()
    read = [each.value for each in read_all(gateway.bootstrap, "all")]
    assert read == [each.value for each in written["all"]] * 3, "the bytes are as they were"
    scene.copy(written["late"][0], "by-avro")
    assert str(late) in scene.rows("by-avro")[-1]["value_error"]

    scene.restart_registry()
    gateway.create_topic("new", value_columns=COLUMNS, value_columns_format="avro", value_columns_schemas=url)
    scene.write(("new", "avro", 2))
    expected["new"] = [typed(2)]
    scene.lakelog("maintain", "--once", "--job", "retype")
    expected["by-avro"].append(typed(3))
    check()
    gateway.close()
    scene.lakelog("fsck", "--deep")
    tables = {path.parent for path in (scene.root / "topics").glob("by-avro*/**/_delta_log")}
    delays = sorted(delay for _, delay, _ in expected["by-avro"])
    found = [sorted(DeltaTable(table).to_pyarrow_table()["delay"].to_pylist()) for table in tables]
    assert delays in found, "another reader of Delta has them, too"
