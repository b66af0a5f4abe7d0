"""What the tests need beside Python packages: a JRE, Delta's jars, an S3 server, a browser, clients of
Kafka, and programs that send. Harmless to repeat.

Without Go, or when it cannot build, there is no S3 server, no Telegraf and no Kafka client in Go, and
only root installs the browser and kcat, from Debian: the tests that need one that is missing say so and are
skipped.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree.ElementTree import Element, ElementTree, SubElement

import pyspark
from pyspark.sql import SparkSession

from lakelog.spark import DELTA_PACKAGE, session
from lakelog.spark.jre import java_home

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".tools"
CLASSES = TOOLS / "spark.jsa"
"""The classes of a Spark that has worked, as a JVM maps them into memory: it starts in half the time."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome")

JARS = {
    "kafka": ROOT / "scripts" / "kafka-jars.txt",
    "spark-kafka": ROOT / "scripts" / "spark-kafka-jars.txt",
}
"""The jars of each directory: those of Kafka's tools, and those of Spark's own source and sink of Kafka."""

GO_CLIENTS = ROOT / "tests" / "kit" / "clients"

GO_PROGRAMS = {
    "versitygw": (("github.com/versity/versitygw/cmd/versitygw@v1.8.0",), "S3 server"),
    "telegraf": (
        (
            "-tags=custom,inputs.tail,outputs.http,parsers.value,serializers.json",
            "github.com/influxdata/telegraf/cmd/telegraf@v1.37.2",
        ),
        "Telegraf",
    ),
}
"""The arguments of `go install`, and what each program is for the tests. Of Telegraf, only the parts that
docs/senders.md names."""


def main() -> None:
    """Get what is missing."""
    TOOLS.mkdir(exist_ok=True)
    jars()
    for name, (arguments, what) in GO_PROGRAMS.items():
        go_program(name, arguments, what)
    debian("chromium", BROWSERS, "browser")
    debian("kcat", ("kcat",), "kcat")
    for name, listed in JARS.items():
        kafka_jars(TOOLS / name, listed)
    go_clients()


def jars() -> None:
    """Let Spark fetch Delta's jars into its cache, and keep the classes that it loads, once."""
    stamp = TOOLS / DELTA_PACKAGE.replace(":", "-")
    if stamp.exists() and CLASSES.exists():
        return
    print(f"Java is {java_home()}; fetching {DELTA_PACKAGE}", flush=True)
    options = f"-XX:ArchiveClassesAtExit={CLASSES} -Xlog:disable"
    spark = session("fetch", **{"spark.driver.extraJavaOptions": options})
    with TemporaryDirectory() as directory:
        work(spark, directory)
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.shutdown()
    gateway.proc.communicate()
    stamp.touch()


def work(spark: SparkSession, directory: str) -> None:
    """What tests do with Spark: write, read, stream, and sum up."""
    source, target = f"{directory}/source", f"{directory}/target"
    spark.range(10).write.format("delta").save(source)
    stream = spark.readStream.format("delta").load(source).writeStream.format("delta")
    stream = stream.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True)
    stream.start(target).awaitTermination()
    spark.read.format("delta").load(target).groupBy("id").count().collect()


def go_program(name: str, arguments: Sequence[str], what: str) -> None:
    """Build a program that is written in Go, once; takes some minutes."""
    built = TOOLS / "bin" / name
    if built.exists():
        return
    if shutil.which("go") is None:
        print(f"no Go here: no {what} for the tests", flush=True)
        return
    print(f"building {arguments[-1]}", flush=True)
    environment = {**os.environ, "GOBIN": str(built.parent)}
    command = ["go", "install", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{done.stderr}{name} could not be built: no {what} for the tests", flush=True)


def debian(package: str, commands: Sequence[str], what: str) -> None:
    """Install a package of Debian's that has one of `commands`, once, where that is allowed."""
    if any(map(shutil.which, commands)):
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print(f"no {package} here, and no right to install it: no {what} for the tests", flush=True)
        return
    print(f"installing {package}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-qq", "-y", "--no-install-recommends", package]):
        done = subprocess.run(
            ["apt-get", *command], env=environment, capture_output=True, text=True, check=False
        )
    if done.returncode:
        print(f"{done.stderr}{package} could not be installed: no {what} for the tests", flush=True)


def kafka_jars(directory: Path, listed: Path) -> None:
    """Fetch the jars that `listed` names and `directory` lacks, and check each. Raises SystemExit for a file
    that is another one.
    """
    directory.mkdir(exist_ok=True)
    lines = [line.split() for line in listed.read_text().splitlines() if not line.startswith("#")]
    wanted = {directory / Path(path).name: (digest, Path(path)) for digest, path in lines}
    for other in {*directory.iterdir()} - wanted.keys():
        other.unlink()  # of another version
    missing = [path for jar, (_, path) in wanted.items() if not jar.exists()]
    if not missing:
        return
    print(f"fetching {len(missing)} jars of {listed.name}", flush=True)
    with TemporaryDirectory(dir=directory.parent) as drafts:
        fetch(missing, Path(drafts))
        for jar, (digest, path) in wanted.items():
            draft = Path(drafts, jar.name)
            if jar.exists():
                continue
            if not draft.exists() or hashlib.sha256(draft.read_bytes()).hexdigest() != digest:
                raise SystemExit(f"{path} is not the file that {listed.name} has; fetch it again")
            draft.rename(jar)


def fetch(paths: Sequence[Path], directory: Path) -> None:
    """Have these files of Maven Central in `directory`, by the Ivy with which Spark fetches its own jars.

    Raises CalledProcessError.
    """
    module = Element("ivy-module", version="2.0")
    SubElement(module, "info", organisation="lakelog", module=directory.name)
    named = SubElement(module, "dependencies")
    for path in paths:
        *group, artifact, version, _ = path.parts
        made = {"org": ".".join(group), "name": artifact, "rev": version}
        SubElement(named, "dependency", made, transitive="false", conf="default->master")
    asked = directory / "ivy.xml"
    ElementTree(module).write(asked)
    [ivy] = Path(pyspark.__file__).parent.glob("jars/ivy-*.jar")
    command = [str(java_home() / "bin" / "java"), "-jar", str(ivy), "-ivy", str(asked), "-types", "jar"]
    command += ["bundle", "-retrieve", f"{directory}/[artifact]-[revision].[ext]"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def go_clients() -> None:
    """Build the clients of Kafka that are written in Go; again when their sources have changed."""
    if shutil.which("go") is None:
        print("no Go here: no Kafka clients in Go for the tests", flush=True)
        return
    for module in sorted(each.parent for each in GO_CLIENTS.glob("*/go.mod")):
        built = TOOLS / "bin" / f"kafka-{module.name}"
        newest = max(each.stat().st_mtime for each in module.iterdir())
        if built.exists() and built.stat().st_mtime >= newest:
            continue
        print(f"building {built.name}", flush=True)
        command = ["go", "build", "-o", str(built), "."]
        done = subprocess.run(command, cwd=module, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{done.stderr}{built.name} could not be built", flush=True)


if __name__ == "__main__":
    main()
