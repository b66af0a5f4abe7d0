"""The fixtures of every test: a clock, a place for tables, an S3 server, Spark, a gateway."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from log_tables.clock import ManualClock
from tests.kit.engines import engine
from tests.kit.gateway import gateway, topic
from tests.kit.run_credential import begin, with_credential
from tests.kit.support import KAFKA_SPARK_JARS, ROOT, S3_SERVER, SPARK_CLASSES, S3Server, s3_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from pyspark.sql import SparkSession
    from xdist.remote import Producer

    from tests.kit.kafka_broker import Broker

__all__ = [
    "browser",
    "clock",
    "engine",
    "gateway",
    "kafka",
    "process",
    "s3",
    "seed",
    "spark",
    "store_root",
    "topic",
    "wheel",
]


# Nothing is timed: a slow machine fails no test.
settings.register_profile("test", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("torture", settings.get_profile("test"), max_examples=2_000, derandomize=False)
settings.register_profile("quick", settings.get_profile("test"), max_examples=10, stateful_step_count=20)
settings.load_profile("test")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job: what a test starts would ignore Ctrl-C, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What a JVM here would gain from its optimizing compiler comes after its end, and takes a core until then.
# Without it there is room for 48 MB of code, which all the tests of Spark together fill: then Spark stops.
os.environ.setdefault(
    "JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
)
if SPARK_CLASSES.exists():
    # A JVM that is another one, or has other jars, would say that it cannot use them.
    os.environ["JAVA_TOOL_OPTIONS"] += f" -XX:SharedArchiveFile={SPARK_CLASSES} -Xlog:disable"

STARTERS = {"browser", "engine", "gateway", "kafka", "process", "s3", "spark", "wheel"}
"""Fixtures that start a process, or build for long."""

LONG = ("deploy", "house", "jobs", "lakelog", "log_tables/root", "system")
"""The folders whose files take long."""

SEED = int(os.environ.get("LAKELOG_SEED", "1"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make quick` and `make torture` set them."""
    parser.addoption("--quick", action="store_true", help="leave out what starts a process")
    parser.addoption("--secured", action="store_true", help="every gateway authenticates its clients")


def pytest_configure(config: pytest.Config) -> None:
    """In a quick run fewer examples do."""
    if config.getoption("--quick"):
        settings.load_profile("quick")
    if config.getoption("--secured"):
        begin()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out of a quick run what asks for a fixture that starts a process; put what is long first.

    The tests of one Spark session come first of all, and run in one process: a second JVM would take a minute
    to warm up. Then come long files, so that in the end none is long. By name, the long ones of different
    folders mix: some wait for gateways while others keep a core busy.
    """
    items.sort(key=_place)
    if config.getoption("--quick"):
        slow = {id(item) for item in items if not STARTERS.isdisjoint(getattr(item, "fixturenames", ()))}
        config.hook.pytest_deselected(items=[item for item in items if id(item) in slow])
        items[:] = [item for item in items if id(item) not in slow]


def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "LoadFileScheduling | None":
    """Files that share the session of Spark are as one file."""
    return _SparkTogether(config, log) if config.getvalue("dist") == "loadfile" else None


class _SparkTogether(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    def _split_scope(self, nodeid: str) -> str:
        file, _, case = nodeid.partition("::")
        return "spark" if "[spark" in case or _has_spark(ROOT / file) else file


@cache
def _has_spark(path: Path) -> bool:
    """Whether the tests of a file use the session that the fixture `spark` begins."""
    return re.search(r"\bspark: |: Topics\b", path.read_text()) is not None


def _place(item: pytest.Item) -> tuple[object, ...]:
    if "[spark" in item.name or _has_spark(item.path):
        return (0,)
    is_long = any(item.path.is_relative_to(ROOT / "tests" / folder) for folder in LONG)
    return (1, item.path.name, item.path) if is_long else (2,)


@pytest.fixture
def process() -> None:
    """For a test that starts a process in a thread of its own."""


@pytest.fixture(scope="session", autouse=True)
def _no_process(request: pytest.FixtureRequest) -> Iterator[None]:
    """In a quick run a test ends, as skipped, where it would start a process."""
    with pytest.MonkeyPatch.context() as patch:
        if request.config.getoption("--quick"):
            patch.setattr(subprocess.Popen, "__init__", _end_the_test)
        yield


@pytest.fixture(scope="session", autouse=True)
def _secured(request: pytest.FixtureRequest) -> Iterator[None]:
    """In a secured run gateways authenticate their clients, and requests are a super user's."""
    with with_credential() if request.config.getoption("--secured") else nullcontext():
        yield


@pytest.fixture(scope="session", autouse=True)
def _authorities_once() -> Iterator[None]:
    """Each client of httpx would read the machine's authorities anew, which takes 50 ms of a processor."""
    with pytest.MonkeyPatch.context() as patch:
        made = cache(httpx.create_ssl_context)
        patch.setattr("httpx._transports.default.create_ssl_context", made)
        yield


@pytest.fixture(autouse=True)
def _same_priority() -> Iterator[None]:
    """A test that lowered the priority of its process would slow down all that come after it."""
    before = os.nice(0)
    yield
    assert os.nice(0) == before, "the test lowered the priority of the process that runs all tests"


def _end_the_test(*_: object, **__: object) -> None:
    pytest.skip("it starts a process")


def pytest_report_header() -> str:
    """The setting that repeats this run."""
    return f"LAKELOG_SEED={SEED}"


@pytest.fixture(scope="session")
def seed() -> int:
    """Where a test takes its randomness from: `LAKELOG_SEED`, which `make torture` draws anew."""
    return SEED


@pytest.fixture
def clock() -> ManualClock:
    """A clock that moves only when told to."""
    return ManualClock()


@pytest.fixture
def store_root(tmp_path: Path) -> Path:
    """An empty directory for tables."""
    root = tmp_path / "root"
    root.mkdir()
    return root


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server, shared: each test makes a bucket of its own."""
    if not S3_SERVER.exists():
        pytest.skip("no S3 server: `make setup` builds versitygw where Go is installed")
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Broker]":
    """A real broker of Apache Kafka, for a file of tests. It cleans compacted logs soon, and knows ACLs."""
    from tests.kit.kafka_broker import broker

    with broker(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """A real browser. Of a file of tests: while it runs, no other event loop can in this thread."""
    from tests.kit.browser import running_browser

    with running_browser() as browser:
        yield browser


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as it is installed, or sent along with a Spark job."""
    directory = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(directory),
        str(ROOT),
    ]
    subprocess.run(command, check=True, capture_output=True)
    (made,) = directory.glob("*.whl")
    return made


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """A real Spark session with Delta, and with Spark's own source and sink of Kafka, shared."""
    from lakelog.spark import session

    directory = tmp_path_factory.mktemp("spark")
    running = session(
        "tests",
        **{
            "spark.master": "local[2]",
            "spark.driver.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.jars": ",".join(map(str, KAFKA_SPARK_JARS.glob("*.jar"))),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            "spark.ui.showConsoleProgress": "false",
        },
    )
    yield running
    running.stop()
