"""What the tests need beside Python packages: a JRE, Delta's jars, and an S3 server. Harmless to repeat.

Without Go, or when it cannot build, there is no S3 server: the tests that need it say so and are skipped.
"""

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from lakelog.spark import DELTA_PACKAGE, session
from lakelog.spark.jre import java_home

TOOLS = Path(__file__).resolve().parent.parent / ".tools"
CLASSES = TOOLS / "spark.jsa"
"""The classes of a Spark that has worked, as a JVM maps them into memory: it starts in half the time."""

S3_SERVER = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"


def main() -> None:
    """Get what is missing."""
    TOOLS.mkdir(exist_ok=True)
    jars()
    s3_server()


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


def s3_server() -> None:
    """Build versitygw, once; takes some minutes."""
    built = TOOLS / "bin" / "versitygw"
    if built.exists():
        return
    if shutil.which("go") is None:
        print("no Go here: no S3 server for the tests", flush=True)
        return
    print(f"building {S3_SERVER}", flush=True)
    environment = {**os.environ, "GOBIN": str(built.parent)}
    command = ["go", "install", S3_SERVER]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{done.stderr}versitygw could not be built: no S3 server for the tests", flush=True)


if __name__ == "__main__":
    main()
