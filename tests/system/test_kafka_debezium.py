"""Debezium's connector for PostgreSQL, in Kafka Connect, at the Kafka listener: each change of a table is in
the topic, in its order, through kills of the gateway and the worker.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.kit.connect import Worker
from tests.kit.kafka import kafka_gateway
from tests.kit.programs import Program, target
from tests.kit.support import free_port

pytestmark = pytest.mark.torture

COUNT = 200
JSON = "org.apache.kafka.connect.json.JsonConverter"
TOPIC = "shop.public.orders"


class Database:
    """A running PostgreSQL, which nobody but this user may ask."""

    def __init__(self, program: Program, psql: str, port: int) -> None:
        self.program, self.port = program, port
        self._command = [psql, "-qAtX", "-h", "127.0.0.1", "-p", str(port), "-U", "shop", "postgres", "-c"]

    def ask(self, statement: str) -> bool:
        """Run a statement; returns whether it did."""
        return subprocess.run([*self._command, statement], capture_output=True, check=False).returncode == 0

    def insert(self, name: str) -> None:
        """Insert the rows of a part of the test."""
        rows = f"INSERT INTO orders (item) SELECT '{name} ' || n FROM generate_series(1, {COUNT}) n"
        assert self.ask(rows)


@contextmanager
def database(directory: Path) -> Iterator[Database]:
    """A new PostgreSQL, which does not run as root."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not found or shutil.which("runuser") is None:
        pytest.skip("no PostgreSQL: install Debian's package postgresql")
    port, alone = free_port(), ["runuser", "-u", "nobody", "--"]
    with TemporaryDirectory() as made:
        shutil.chown(made, "nobody")
        data = f"{made}/data"
        init = [str(found[-1] / "initdb"), "-D", data, "-U", "shop", "-A", "trust", "--no-sync"]
        subprocess.run([*alone, *init], cwd="/", check=True, capture_output=True)
        run = [
            str(found[-1] / "postgres"),
            "-D",
            data,
            "-k",
            made,
            "-p",
            str(port),
            "-c",
            "wal_level=logical",
        ]
        with Program([*alone, *run], directory) as program:
            running = Database(program, str(found[-1] / "psql"), port)
            program.until(lambda: running.ask("SELECT 1"), "PostgreSQL answers")
            yield running


def changes(values: list[bytes]) -> list[str]:
    """Items in the order of their changes, each once; a deletion is an item, too."""
    found = [json.loads(value) for value in values]
    return [*dict.fromkeys((each["after"] or {"item": "deleted"})["item"] for each in found)]


def test_changes_of_a_table_are_in_the_topic(tmp_path: Path) -> None:
    with ExitStack() as open_:
        gateway = open_.enter_context(kafka_gateway(tmp_path / "root"))
        shop = open_.enter_context(database(tmp_path / "database"))
        assert shop.ask("CREATE TABLE orders (id serial PRIMARY KEY, item text)")
        config: dict[str, object] = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput",
            "database.hostname": "127.0.0.1",
            "database.port": shop.port,
            "database.user": "shop",
            "database.dbname": "postgres",
            "topic.prefix": "shop",
            "topic.creation.default.partitions": 1,
            "topic.creation.default.replication.factor": 1,
            "topic.heartbeat.prefix": "__debezium-heartbeat",
            "heartbeat.interval.ms": 1_000,
            "key.converter": JSON,
            "value.converter": JSON,
            "value.converter.schemas.enable": "false",
        }
        shop.insert("snapshot")
        first = open_.enter_context(Worker(gateway, tmp_path / "first", "debezium"))
        first.put("shop", config)
        first.runs("shop")
        written = open_.enter_context(target(gateway.bootstrap, TOPIC, 1))
        expected = [f"snapshot {number}" for number in range(1, COUNT + 1)]
        first.program.until(lambda: changes(written.values()) == expected, "the rows are there")
        for name in ("gateway", "worker"):
            expected += [f"{name} {number}" for number in range(1, COUNT + 1)]
        gateway.kill()
        shop.insert("gateway")
        gateway.start()
        first.program.until(lambda: changes(written.values()) == expected[: 2 * COUNT], "after a kill, too")
        first.program.kill()
        shop.insert("worker")
        assert shop.ask("DELETE FROM orders")
        second = open_.enter_context(Worker(gateway, tmp_path / "second", "debezium"))
        second.program.until(
            lambda: changes(written.values()) == [*expected, "deleted"], "so they are by another worker"
        )
        second.program.until(
            lambda: all(value is None for value in written.latest().values()),
            "each key ends with a tombstone",
        )
