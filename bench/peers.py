"""The peers, started by the scripts in `shared/peers`: Kafka, and a thin HTTP gateway before it."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_KAFKA = "127.0.0.1:19092"


class Peers:
    """The scripts' folder and what they made, and Kafka's clients. Raises FileNotFoundError without them."""

    def __init__(self, scripts: Path, bootstrap: str = _KAFKA) -> None:
        """The clients go to `bootstrap`."""
        self._scripts, self.bootstrap = scripts, bootstrap
        if not (scripts / "kafka-up.sh").exists():
            raise FileNotFoundError(f"no peers under {scripts}; name them by --peers, or --no-peers")
        self._home = Path(os.environ.get("PEERS_DIR", "/tmp/peers"))
        self._held: dict[str, int] = {}

    def at(self, bootstrap: str) -> "Peers":
        """A copy whose clients go to another server."""
        return Peers(self._scripts, bootstrap)

    @contextmanager
    def broker(self) -> Iterator[None]:
        """A warm Kafka broker: one just started is slower by half until its JIT has settled."""
        self._run("setup-venv.sh")
        self._run("kafka-up.sh", FRESH="1")
        try:
            for _ in range(3):
                self.java_produce(500_000)
            yield
        finally:
            self._run("kafka-down.sh")

    @property
    def broker_pid(self) -> int:
        """The process of the broker that runs."""
        return int((self._home / "kafka/kafka.pid").read_text())

    @contextmanager
    def http_gateway(self) -> Iterator[str]:
        """The FastAPI + librdkafka control; gives its base URL."""
        url = self._run("bridge-up.sh", "fastapi", ACKS="all", LINGER_MS="0").strip()
        try:
            yield url
        finally:
            self._run("bridge-down.sh", "fastapi")

    def java_produce(self, records: int, topic: str | None = None, **options: str) -> float:
        """Records a second of Kafka's producer-perf-test: 100 bytes, acks=all; by default to a new topic of 4
        partitions, without fsync. Options are named with underscores: `batch_size`.
        """
        named = [f"{key.replace('_', '.')}={value}" for key, value in options.items()]
        out = self._tool(
            "ProducerPerformance",
            *("--topic", topic or self.topic("perf"), "--num-records", str(records), "--record-size", "100"),
            *("--throughput", "-1", "--command-property", "acks=all", "compression.type=none", *named),
        )
        return float(re.findall(r"([\d.]+) records/sec", out)[-1])

    def java_consume(self, topic: str, records: int, *properties: str) -> float:
        """Records a second of Kafka's consumer-perf-test, from its first record on; `properties` are those of
        the consumer, `name=value`.
        """
        named = ("--command-property", *properties) if properties else ()
        out = self._tool(
            "ConsumerPerformance",
            *("--topic", topic, "--num-records", str(records), "--timeout", "30000", "--hide-header", *named),
        )
        return float(out.strip().splitlines()[-1].split(",")[9])

    def flushed_topic(self, name: str, partitions: int = 4) -> str:
        """A topic in which Kafka flushes each message set to disk."""
        self._python("flushed", name, str(partitions))
        return name

    def lone(self, topic: str, records: int) -> tuple[float, float]:
        """Milliseconds until one record is acknowledged, the median and the 99th percentile."""
        median, most = map(float, self._python("lone", topic, str(records)).split())
        return median, most

    def transact(self, topic: str, transactions: int) -> tuple[float, float, float]:
        """Transactions a second of 100 records over 4 partitions, one after the other; the median and the
        99th percentile of how long one took, in ms.
        """
        rate, median, most = map(float, self._python("transact", topic, str(transactions)).split())
        return rate, median, most

    def in_transactions(self, topic: str, records: int) -> tuple[float, float]:
        """Records a second of one producer in transactions of 10,000 records, and without."""
        with_, without = map(float, self._python("in-transactions", topic, str(records)).split())
        return with_, without

    def beside(self, topic: str, records: int) -> tuple[float, float]:
        """Records a second of a producer without transactions, and of it beside ten transactional ones."""
        alone, beside = map(float, self._python("beside", topic, str(records)).split())
        return alone, beside

    def topic(self, name: str, partitions: int = 4) -> str:
        self._python("topic", name, str(partitions))
        return name

    def librdkafka_produce(self, topic: str, records: int) -> float:
        return self._measured("produce", topic, records)[0]

    def librdkafka_keyed(self, topic: str, records: int) -> tuple[float, float]:
        """Records a second with keys of 10 bytes, and microseconds of the client's processor a record."""
        return self._measured("keyed", topic, records)

    def librdkafka_ragged(self, topic: str, records: int) -> tuple[float, float]:
        """As `librdkafka_keyed`, but with keys and values of many lengths."""
        return self._measured("ragged", topic, records)

    def librdkafka_consume(self, topic: str, records: int, rack: str = "") -> tuple[float, float]:
        """Records a second, and microseconds of the client's processor a record; `rack` is the consumer's."""
        return self._measured("consume", topic, records, rack)

    def filled(self, topic: str, records: int) -> None:
        """Let the topic hold just so many records, which a later run finds there."""
        if self._held.get(topic) != records:
            self.librdkafka_produce(self.topic(topic), records)
            self._held[topic] = records

    def rebalance(self, topic: str, partitions: int, verb: str = "rebalance") -> tuple[float, float, float]:
        """Seconds until a consumer that joins three others has its share of the topic; and the longest pause
        in ms of a partition that stays with its consumer, meanwhile and before. `verb` is that of
        `librdkafka.py`.
        """
        seconds, pause, before = map(float, self._python(verb, topic, str(partitions)).split())
        return seconds, pause, before

    def librdkafka_send(self, topic: str, records: int) -> dict[int, int]:
        """A record every 10 ms: when each offset was acknowledged, microseconds since 1970."""
        acknowledged = json.loads(self._python("send", topic, str(records)))
        return {int(offset): at for offset, at in acknowledged.items()}

    def spark_jars(self) -> list[str]:
        """The jars of Spark's Kafka source; those of Delta come with lakelog's session."""
        jars = sorted((self._home / "lib/spark-jars").glob("*.jar"))
        return [str(jar) for jar in jars if not jar.name.startswith("delta-")]

    def _measured(self, verb: str, topic: str, records: int, *more: str) -> tuple[float, float]:
        rate, cpu_us = map(float, self._python(verb, topic, str(records), *more).split())
        return rate, cpu_us

    def _python(self, *arguments: str) -> str:
        script = str(Path(__file__).with_name("librdkafka.py"))
        command = [str(self._home / "venv/bin/python"), script, self.bootstrap, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def _tool(self, name: str, *arguments: str) -> str:
        options = (f"org.apache.kafka.tools.{name}", "--bootstrap-server", self.bootstrap, *arguments)
        return self._run("kafka-tool.sh", *options)

    def _run(self, script: str, *arguments: str, **environment: str) -> str:
        command = [str(self._scripts / script), *arguments]
        done = subprocess.run(
            command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=True
        )
        return done.stdout
