"""The integration tests of Kafka's clients in Python, unchanged, at a listener of ours.

They are fetched when they are run, and none of them is in this repository. What they lack there stands in
for brokers that they would start, and for what is not run here.
"""

import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree as ET

import pytest

from tests.kit.support import ROOT

LISTS = ROOT / "tests" / "system" / "kafka_suites"
NEWEST = "4.3"
"""The version of Kafka that a listener looks like."""

TIMEOUT_S = 1_800
"""A test that waits for ever ends the run."""

_SERVICE = """class ExternalService:
    def __init__(self, host, port):
        pass


SpawnedService = None
"""

_CONFLUENT = "https://github.com/confluentinc/confluent-kafka-python"
_COMMIT = "8b1c7a613434eee3d0e1287d624d7af04932f410"
"""Version 2.15.0."""

_AIOKAFKA = "https://github.com/aio-libs/aiokafka"
_AIOKAFKA_COMMIT = "672947afe85c91b7d953f0259e69837a711d3246"
"""Version 0.14.0."""

_SERVED = """import asyncio
import os

import pytest


@pytest.fixture(scope="class")
def loop():
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield made
    made.close()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="class")
def setup_test_class(request, loop):
    request.cls.loop = loop
    request.cls.hosts = [os.environ["BROKERS"]]
    request.cls.kafka_version = os.environ["KAFKA_VERSION"]
"""
"""What aiokafka's tests lack without the containers in which they start Kafka."""

_ABSENT = """import sys
from types import ModuleType


class Absent(ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


REGISTRY = "confluent_kafka.schema_registry"
CLIENT = "schema_registry_client"
CLUSTERS = ("trivup", "trivup.clusters", "trivup.clusters.KafkaCluster")
CLIENTS = (REGISTRY, f"{REGISTRY}.{CLIENT}", f"{REGISTRY}._async", f"{REGISTRY}._async.{CLIENT}")
for name in ("confluent_kafka.avro", *CLUSTERS, *CLIENTS):
    sys.modules[name] = Absent(name)
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How each test ended, by its id, with what pytest printed."""

    ended: Mapping[str, str]
    said: str

    def that(self, ended: str) -> set[str]:
        """The tests that ended so: `passed`, `failure`, `error`, `skipped`."""
        return {test for test, how in self.ended.items() if how == ended}


@dataclass(frozen=True, slots=True)
class Suite:
    """`name` is that of its lists. The ids of its tests are those that pytest gives them below `tests`, of
    which it runs these `parts`. It is `kept` there once it was fetched.
    """

    name: str
    tests: str
    parts: Sequence[str]
    kept: Path
    fetch: Callable[[Path], None]
    environment: Callable[[str, str], Mapping[str, str]]

    def listed(self) -> list[str]:
        """The tests that pass."""
        return (LISTS / f"{self.name}.txt").read_text().split()

    def excluded(self) -> dict[str, str]:
        """The others, each with the reason."""
        lines = (LISTS / f"{self.name}-excluded.txt").read_text().splitlines()
        return dict(line.split("  ", 1) for line in lines)

    def collected(self) -> list[str]:
        """The names of all existing tests of the suite."""
        every = [f"{self.tests}/{part}" for part in self.parts]
        said = self._pytest("127.0.0.1:1", NEWEST, "--collect-only", "--quiet", *every).stdout
        return [line.removeprefix(f"{self.tests}/") for line in said.splitlines() if "::" in line]

    def run(self, bootstrap: str, version: str, tests: Sequence[str]) -> Outcome:
        """Run tests at the listener, as a client of this version of Kafka would ask; those of confluent-kafka
        by this protocol of groups.
        """
        with TemporaryDirectory() as directory:
            report = Path(directory) / "report.xml"
            asked = [f"{self.tests}/{test}" for test in tests]
            done = self._pytest(bootstrap, version, f"--junit-xml={report}", *asked)
            assert report.exists(), done.stdout + done.stderr
            cases = ET.parse(report).iter("testcase")
            ended = {self._id(case): _ended(case) for case in cases}
        return Outcome(ended, done.stdout)

    def _id(self, case: ET.Element) -> str:
        path = case.attrib["classname"].split(".")
        at = next(place for place, each in enumerate(path) if each.startswith("test_"))
        below = len(self.tests.split("/"))
        return "::".join(["/".join(path[below : at + 1]) + ".py", *path[at + 1 :], case.attrib["name"]])

    def _pytest(self, bootstrap: str, version: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        directory = self._fetched()
        plain = ("-p", "no:randomly", "-p", "no:cacheprovider", "-o", "addopts=", "-o", "log_level=WARNING")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        return subprocess.run(
            [sys.executable, "-m", "pytest", *plain, "--rootdir=.", "--confcutdir=.", *arguments],
            cwd=directory,
            env={**kept, **self.environment(bootstrap, version), "PYTHONPATH": str(directory)},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def _fetched(self) -> Path:
        if not self.kept.exists():
            self.kept.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=self.kept.parent) as draft:
                self.fetch(Path(draft))
                (Path(draft) / self.kept.name).rename(self.kept)
        return self.kept


def _ended(case: ET.Element) -> str:
    found = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
    return found[0] if found else "passed"


def _or_skip(name: str, command: Sequence[str]) -> None:
    """Run a command that fetches; skips the test where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the tests of {name} could not be fetched: {done.stderr}")


def _fetch_kafka_python(directory: Path) -> None:
    """Unpack the source distribution there."""
    words = ("download", "--quiet", "--no-deps", "--no-binary", "kafka-python", "--require-hashes")
    requirement = str(LISTS / "kafka-python-requirement.txt")
    command = [sys.executable, "-m", "pip", *words, "--requirement", requirement, "--dest", str(directory)]
    _or_skip("kafka-python", command)
    (archive,) = directory.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    tests = directory / KAFKA_PYTHON.kept.name / "test"
    (tests / "__init__.py").touch()
    (tests / "service.py").write_text(_SERVICE)


def _fetch_confluent(directory: Path) -> None:
    """The source distribution has no tests."""
    tree = directory / CONFLUENT.kept.name
    _fetch_commit("confluent-kafka", tree, _CONFLUENT, _COMMIT)
    (tree / "conftest.py").write_text(_ABSENT)


def _fetch_aiokafka(directory: Path) -> None:
    """The source distribution has no tests that pip would fetch without building it."""
    tree = directory / AIOKAFKA.kept.name
    _fetch_commit("aiokafka", tree, _AIOKAFKA, _AIOKAFKA_COMMIT)
    (tree / "tests" / "conftest.py").write_text(_SERVED)


def _fetch_commit(name: str, tree: Path, url: str, commit: str) -> None:
    """Have the tests of one commit at `tree`."""
    git = ("git", "-C", str(tree), "-c", "core.askPass=true")
    tree.mkdir()
    _or_skip(name, [*git, "init", "--quiet"])
    _or_skip(name, [*git, "fetch", "--quiet", "--depth=1", url, commit])
    _or_skip(name, [*git, "checkout", "--quiet", "FETCH_HEAD", "--", "tests"])


def _of_kafka_python(bootstrap: str, version: str) -> Mapping[str, str]:
    root = str(KAFKA_PYTHON.kept)
    return {"KAFKA_URI": f"kafka://{bootstrap}", "KAFKA_VERSION": version, "KAFKA_ROOT": root}


def _of_aiokafka(bootstrap: str, version: str) -> Mapping[str, str]:
    return {"BROKERS": bootstrap, "KAFKA_VERSION": version}


def _of_confluent(bootstrap: str, protocol: str) -> Mapping[str, str]:
    return {"BROKERS": bootstrap, "TEST_CONSUMER_GROUP_PROTOCOL": protocol}


_SUITES = ROOT / ".tools" / "suites"

KAFKA_PYTHON = Suite(
    "kafka-python",
    "test/integration",
    (".",),
    _SUITES / "kafka_python-3.0.12",
    _fetch_kafka_python,
    _of_kafka_python,
)

CONFLUENT = Suite(
    "confluent-kafka",
    "tests/integration",
    ("admin", "consumer", "producer", "serialization"),
    _SUITES / "confluent_kafka-2.15.0",
    _fetch_confluent,
    _of_confluent,
)
"""Without its tests of share consumers and of a schema registry: neither is offered."""

AIOKAFKA = Suite(
    "aiokafka",
    "tests",
    ("test_transactional_producer.py", "test_transactional_consumer.py"),
    _SUITES / "aiokafka-0.14.0",
    _fetch_aiokafka,
    _of_aiokafka,
)
"""Those of transactions."""
