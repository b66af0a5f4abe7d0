"""The process of queries: what it is asked and answers, and what ends it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.limits import MIB
from log_tables.schemas.framing import prefixed
from log_tables.schemas.registry_client import RegistryAccess
from log_tables.sql.query_request import (
    HEAD,
    FrameKind,
    QueryFailure,
    QueryRequest,
    QueryResult,
    RootRequest,
    TableAccess,
    frame,
)
from log_tables.sql.server import OUT_OF_MEMORY
from log_tables.store.store import open_store
from tests.kit.avro_values import written
from tests.kit.schema_registry import schema_registry
from tests.kit.support import S3Server
from tests.kit.views import append

ACCESS = TableAccess(frozenset("t"), frozenset(), frozenset(), frozenset())
FLIGHT = {"type": "record", "name": "flight", "fields": [{"name": "carrier", "type": "string"}]}
LONG = (
    "select count(*) from generate_series(1, 10000000) a, generate_series(1, 10000000) b "
    "where (a.value * b.value) % 7 = 3"
)

pytestmark = pytest.mark.usefixtures("process")


class Child:
    """A running process, asked by hand."""

    def __init__(
        self, url: str, options: Mapping[str, str] | None = None, registries: Sequence[RegistryAccess] = ()
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "log_tables.sql.server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.write(RootRequest(url, dict(options or {}), 512 * MIB, registries))

    def write(self, message: msgspec.Struct) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(message) + b"\n")
        self.process.stdin.flush()

    def ask(self, sql: str) -> None:
        self.write(QueryRequest(sql, ACCESS, 1_000, MIB))

    def read(self) -> tuple[FrameKind, bytes]:
        """The next frame. Raises EOFError when it has ended."""
        assert self.process.stdout is not None
        head = self.process.stdout.read(HEAD.size)
        if len(head) < HEAD.size:
            raise EOFError
        kind, length = HEAD.unpack(head)
        return FrameKind(kind), self.process.stdout.read(length)

    def answer(self, sql: str) -> list[tuple[FrameKind, bytes]]:
        self.ask(sql)
        frames = [self.read()]
        while frames[-1][0] not in (FrameKind.DONE, FrameKind.ERROR):
            frames.append(self.read())
        return frames

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("root")
    create_topic(Cluster.open(open_store(root)), "t", 1)
    return str(root)


@pytest.fixture
def child(url: str) -> Iterator[Child]:
    """A process that has opened its root."""
    made = Child(url)
    assert made.read() == (FrameKind.READY, b"")
    yield made
    made.end()


def test_a_frame_has_its_kind_and_length() -> None:
    assert frame(FrameKind.ROWS, b"[1]") == b"R\x00\x00\x00\x03[1]"
    assert len({kind.value for kind in FrameKind}) == len(FrameKind)


def test_it_answers_one_query_after_the_other(child: Child) -> None:
    for _ in range(3):
        frames = child.answer("select value from generate_series(1, 3)")
        assert [kind for kind, _ in frames] == [
            FrameKind.TABLES,
            FrameKind.COLUMNS,
            FrameKind.ROWS,
            FrameKind.DONE,
        ]
        assert frames[2][1] == b'[["1"],["2"],["3"]]'
        result = msgspec.json.decode(frames[3][1], type=QueryResult)
        assert (result.rows, result.cut) == (3, "")
        assert result.memory_bytes > 0
    _, told = child.answer("selec")[-1]
    assert msgspec.json.decode(told, type=QueryFailure).code == "invalid_argument"
    assert child.answer("select count(*) from t")[2][1] == b'[["0"]]'


def test_it_asks_the_registries_of_its_gateway_for_schemas(tmp_path: Path) -> None:
    with schema_registry() as registry:
        registry.register("t-value", 17, json.dumps(FLIGHT))
        cluster = Cluster.open(open_store(tmp_path))
        avro = {"value.columns.format": "avro", "value.columns.schemas": registry.url}
        append(
            create_topic(cluster, "t", 1, avro).partition(0), prefixed(17, written(FLIGHT, {"carrier": "UA"}))
        )
        made = Child(str(tmp_path), registries=[RegistryAccess(registry.url)])
        assert made.read() == (FrameKind.READY, b"")
        assert made.answer("select carrier, _error from t_json")[2][1] == b'[["UA",null]]'
        assert registry.asked == ["/schemas/ids/17"]
        made.end()


def test_it_stands_behind_its_gateway_and_can_write_no_file(child: Child) -> None:
    assert os.getpriority(os.PRIO_PROCESS, child.process.pid) == os.getpriority(os.PRIO_PROCESS, 0) + 10
    limits = Path(f"/proc/{child.process.pid}/limits").read_text().splitlines()
    bounds = {line[:26].strip(): line[26:].split()[:2] for line in limits}
    assert bounds["Max file size"] == bounds["Max core file size"] == ["0", "0"]


def test_it_ends_with_its_standard_input_amid_a_query(child: Child) -> None:
    child.ask(LONG)
    assert child.read()[0] is FrameKind.TABLES
    assert child.process.stdin is not None
    child.process.stdin.close()
    assert child.process.wait() == 0


def test_no_signal_but_the_last_one_ends_it(child: Child) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        child.process.send_signal(number)
    assert child.answer("select 1")[-1][0] is FrameKind.DONE


def test_a_query_that_takes_more_memory_than_it_may_ends_it(child: Child) -> None:
    child.ask("select octet_length(concat(repeat('x', 600000000), repeat('y', 600000000)))")
    assert child.read()[0] is FrameKind.TABLES
    assert child.read()[0] is FrameKind.COLUMNS
    with pytest.raises(EOFError):
        child.read()
    assert child.process.wait() == OUT_OF_MEMORY


def test_it_opens_a_bucket_and_its_secrets_are_no_arguments(s3: S3Server) -> None:
    url = s3.bucket("queried")
    create_topic(Cluster.open(open_store(url, s3.options)), "t", 1)
    made = Child(url, s3.options)
    assert made.read() == (FrameKind.READY, b"")
    assert made.answer("select count(*) from t")[2][1] == b'[["0"]]'
    for shown in ("cmdline", "environ"):
        assert s3.secret_key.encode() not in Path(f"/proc/{made.process.pid}/{shown}").read_bytes()
    made.end()


def test_it_says_why_it_cannot_open_a_root(tmp_path: Path) -> None:
    made = Child(str(tmp_path / "nothing"))
    kind, told = made.read()
    assert kind is FrameKind.ERROR
    assert msgspec.json.decode(told, type=QueryFailure).code == "root_missing"
    assert made.process.wait() == 0
    made.end()
