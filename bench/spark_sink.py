"""The Spark sink: the same Parquet files as a stream to a topic of lakelog's, and to one of Kafka's."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench import load
from bench.cells import PARTITIONS, scratch
from bench.contest import OURS, Results, Scale
from bench.gateway import Gateway
from bench.peers import Peers
from bench.spark_job import Job, Worker
from bench.spark_load import TOPIC
from log_tables.record import binary_array

KAFKA = "Spark's Kafka sink"
FILES = 8


def sink(peers: Peers | None, scale: Scale) -> Results:
    """AvailableNow, 2 of every 5 of `--records`: in one batch, in 8, and in one with a key in each row."""
    with scratch() as directory, Gateway(directory / "data") as gateway:
        gateway.create_topic(TOPIC, PARTITIONS)
        records = _fill(directory / "rows", scale.records * 2 // 5)
        job = Job("sink", OURS, str(gateway.data), str(directory / OURS), records, PARTITIONS, FILES)
        job = replace(job, rows=str(directory / "rows"), gateway=gateway.url)
        results = {OURS: _measured(job)}
        if peers is not None:
            jars = ",".join(peers.spark_jars())
            theirs = replace(job, engine="kafka", directory=str(directory / "kafka"), jars=jars)
            results[KAFKA] = _measured(
                replace(theirs, source=peers.bootstrap, topic=peers.topic("sink", PARTITIONS))
            )
        return results


def _measured(job: Job) -> dict[str, float]:
    with Worker(job, "bench.spark_sink_worker") as worker:
        return worker.figures()


def _fill(directory: Path, records: int) -> int:
    """FILES files with texts of 100 bytes and a key for each; how many rows they have together."""
    directory.mkdir()
    share = records // FILES
    values = binary_array(load.values(share))
    for index in range(FILES):
        keys = binary_array([b"key-%08d" % (index * share + row) for row in range(share)])
        pq.write_table(pa.table({"key": keys, "value": values}), directory / f"{index}.parquet")
    return share * FILES
