"""Executors in processes of their own, to which the package comes as a wheel: installed, or with the job."""

import base64
import json
import shutil
import zipfile
from pathlib import Path

import pyspark
import pytest

from log_tables.record import Record
from log_tables.store.store import open_store
from tests.kit.queries import GIVEN_UP, STARTS_MAX
from tests.kit.spark import Topics, spark_submit
from tests.kit.spark_connect import bare_environment
from tests.kit.support import ROOT

pytestmark = pytest.mark.spark

PARTITIONS = 3


class Cluster:
    """A cluster whose Python has the packages that lakelog needs, and not lakelog."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.target = directory / "target"
        self.work = directory / "spark" / "work"
        self.python = bare_environment(directory / "environment")
        (self.site,) = (directory / "environment").glob("lib/python*/site-packages")
        self._link_spark()
        self.expected = self._fill()

    def _link_spark(self) -> None:
        """Executors work in a folder of SPARK_HOME."""
        home = self._directory / "spark"
        home.mkdir()
        for part in Path(pyspark.__file__).parent.iterdir():
            if part.name != "work":
                (home / part.name).symlink_to(part)

    def _fill(self) -> dict[tuple[int, int], bytes]:
        topics = Topics(open_store(self._directory / "root"))
        topics.create("t", PARTITIONS)
        for index in range(PARTITIONS):
            topics.put("t", index, *[Record(b"%d-%d" % (index, offset)) for offset in range(100 + index)])
        return {(i, o): b"%d-%d" % (i, o) for i in range(PARTITIONS) for o in range(100 + i)}

    def submit(self, *options: str | Path, word: str = "") -> tuple[Path, list[Path]]:
        """Run the job from an empty directory; returns where the driver and the executors found lakelog."""
        empty = self._directory / "cwd"
        empty.mkdir()
        job = (ROOT / "tests" / "kit" / "spark_counts.py", self._directory / "root", self.target)
        words = (word,) if word else ()
        environment = {
            "PYSPARK_PYTHON": str(self.python),
            "PYTHONPATH": "",
            "SPARK_HOME": str(self._directory / "spark"),
        }
        for _ in range(STARTS_MAX):
            shutil.rmtree(self.target, ignore_errors=True)
            done = spark_submit(empty, "local-cluster[2,1,1024]", *options, *job, *words, **environment)
            if GIVEN_UP not in done.stderr:
                break
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
        (said,) = [line for line in done.stdout.splitlines() if line.startswith("lakelog at ")]
        driver, *executors = map(Path, json.loads(said.removeprefix("lakelog at ")))
        return driver, executors

    def check_rows(self) -> None:
        """Batch and stream have each read every record once."""
        for read in ("batch", "stream"):
            lines = [
                line for file in (self.target / read).glob("*.json") for line in file.read_text().splitlines()
            ]
            rows = [json.loads(line) for line in lines]
            found = {(row["partition"], row["offset"]): base64.b64decode(row["value"]) for row in rows}
            assert found == self.expected
            assert len(rows) == len(found)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


@pytest.mark.torture
def test_executors_find_the_package_where_it_is_installed(cluster: Cluster, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(cluster.site)
    driver, executors = cluster.submit()
    assert {driver, *executors} == {cluster.site / "lakelog" / "__init__.py"}
    cluster.check_rows()


@pytest.mark.parametrize("word", [pytest.param("register", marks=pytest.mark.torture), "topics"])
def test_executors_get_the_package_with_the_job(cluster: Cluster, wheel: Path, word: str) -> None:
    driver, executors = cluster.submit("--py-files", wheel, word=word)
    assert driver == wheel / "lakelog" / "__init__.py"
    for found in executors:
        assert found.is_relative_to(cluster.work)
        assert wheel.name in found.parts
    cluster.check_rows()
