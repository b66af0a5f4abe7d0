"""Get the tools of the tests that are no Python packages: a JRE, Delta's jars, an S3 server, a browser,
clients of Kafka, and checkers for the files of deploy/; with --torture also Telegraf. It is harmless to
repeat.

Without Go, or when it cannot build, there is no S3 server, no Kafka client in Go, no Helm and no reader of
compose files. Only root installs the browser and kcat, from Debian; Prometheus, rsyslog and syslog-ng are
unpacked from their packages, and not installed. Tests that need a missing tool say so and are skipped.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree.ElementTree import Element, ElementTree, SubElement

import pyspark
from pyspark.sql import SparkSession

from lakelog.spark import DELTA_PACKAGE, session
from lakelog.spark.java import java_home

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".tools"
CLASSES = TOOLS / "spark.jsa"
"""The classes of a Spark that has worked, as a JVM maps them into memory: it starts in half the time."""

CLASSIFIER = "{http://ant.apache.org/ivy/maven}classifier"
"""What Ivy calls the part of a file's name that Maven puts behind the version."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome")

JARS = {
    "kafka": ROOT / "scripts" / "kafka-jars.txt",
    "kafka-broker": ROOT / "scripts" / "kafka-broker-jars.txt",
    "kafka-streams": ROOT / "scripts" / "kafka-streams-jars.txt",
    "spark-kafka": ROOT / "scripts" / "spark-kafka-jars.txt",
}
"""The jars of each directory: those of Kafka's tools, a broker's and Kafka Streams' beside them, and those
of Spark's own source and sink of Kafka."""

GO_CLIENTS = ROOT / "tests" / "kit" / "clients"

GO_TOOLS = {
    "versitygw": (("github.com/versity/versitygw/cmd/versitygw@v1.8.0",), "S3 server"),
    "compose-spec": (("github.com/compose-spec/compose-go/v2/cmd@v2.16.2",), "reader of compose files"),
    "helm": (("helm.sh/helm/v3/cmd/helm@v3.22.0",), "Helm"),
}
"""What is built of Go modules, once: the arguments of `go install`, and what each is for the tests. Helm
takes two to four minutes."""

TELEGRAF = (
    "-tags=custom,inputs.tail,outputs.http,parsers.value,serializers.json",
    "github.com/influxdata/telegraf/cmd/telegraf@v1.37.2",
)
"""The parts that docs/senders.md names. Its modules are some gigabytes, so only `make torture` has it."""

MISSING = (
    "apt-get install -qq --download-only --no-install-recommends -o Dir::Cache::archives=$PWD "
    "-o Debug::NoLocking=1"
)
"""Fetches packages of Debian's, and those that they need and this machine lacks."""

UNPACKED = {
    "prometheus": ("apt-get download -qq prometheus", "Prometheus"),
    "rsyslog": (f"{MISSING} rsyslog rsyslog-kafka", "rsyslog"),
    "syslog-ng": (f"{MISSING} syslog-ng-core syslog-ng-mod-http", "syslog-ng"),
}
"""By the directory that is made: what fetches the packages, and what they are for the tests."""


def main() -> None:
    """Get what is missing."""
    TOOLS.mkdir(exist_ok=True)
    jars()
    for name, (arguments, what) in GO_TOOLS.items():
        go_tool(name, arguments, what)
    if "--torture" in sys.argv:
        go_tool("telegraf", TELEGRAF, "Telegraf")
    for name, (command, what) in UNPACKED.items():
        unpacked(name, command, what)
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
    """Use Spark as the tests do: write, read, stream, and sum up."""
    source, target = f"{directory}/source", f"{directory}/target"
    spark.range(10).write.format("delta").save(source)
    stream = spark.readStream.format("delta").load(source).writeStream.format("delta")
    stream = stream.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True)
    stream.start(target).awaitTermination()
    spark.read.format("delta").load(target).groupBy("id").count().collect()


def go_tool(name: str, arguments: Sequence[str], what: str) -> None:
    """Build the command of a Go module, once."""
    built = TOOLS / "bin" / name
    if built.exists():
        return
    if shutil.which("go") is None:
        print(f"no Go here: no {what} for the tests", flush=True)
        return
    print(f"building {arguments[-1]}", flush=True)
    with TemporaryDirectory(dir=TOOLS) as directory:
        command = ["go", "install", "-ldflags=-s -w", *arguments]
        environment = {**os.environ, "GOBIN": directory}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{done.stderr}{name} could not be built: no {what} for the tests", flush=True)
            return
        built.parent.mkdir(exist_ok=True)
        next(Path(directory).iterdir()).rename(built)  # Go names it after the last folder of the module


def unpacked(name: str, fetch: str, what: str) -> None:
    """Unpack packages of Debian's, once: installed, their daemons would begin to run, and take the place of
    others.
    """
    if (TOOLS / name).exists():
        return
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        print(f"no packages of Debian here: no {what} for the tests", flush=True)
        return
    print(f"unpacking {name}", flush=True)
    with TemporaryDirectory(dir=TOOLS) as drafts:
        commands = [fetch, "for package in *.deb; do dpkg-deb --extract $package unpacked; done"]
        if os.geteuid() == 0:
            commands.insert(0, "apt-get update -qq")
        done = subprocess.run(
            ["sh", "-ec", "\n".join(commands)], cwd=drafts, capture_output=True, text=True, check=False
        )
        if done.returncode:
            print(f"{done.stderr}{name} could not be unpacked: no {what} for the tests", flush=True)
            return
        Path(drafts, "unpacked").rename(TOOLS / name)


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
    module, types = Element("ivy-module", version="2.0"), {"jar", "bundle"}
    SubElement(module, "info", organisation="lakelog", module=directory.name)
    named = SubElement(module, "dependencies")
    for path in paths:
        *group, artifact, version, name = path.parts
        made = {"org": ".".join(group), "name": artifact, "rev": version}
        dependency = SubElement(named, "dependency", made, transitive="false", conf="default->master")
        classifier, _, kind = name.removeprefix(f"{artifact}-{version}").partition(".")
        if classifier:
            own = {"name": artifact, "type": kind, "ext": kind, CLASSIFIER: classifier.removeprefix("-")}
            SubElement(dependency, "artifact", own)
            types.add(kind)
    asked = directory / "ivy.xml"
    ElementTree(module).write(asked)
    [ivy] = Path(pyspark.__file__).parent.glob("jars/ivy-*.jar")
    command = [str(java_home() / "bin" / "java"), "-jar", str(ivy), "-ivy", str(asked), "-types"]
    command += [*types, "-retrieve", f"{directory}/[artifact]-[revision](-[classifier]).[ext]"]
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
