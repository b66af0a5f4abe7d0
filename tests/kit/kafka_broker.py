"""A broker of Apache Kafka itself, as the source of what is copied."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic

from lakelog.spark.java import java_home
from tests.kit.kafka_programs import kafka_tool
from tests.kit.programs import Program, java_class_path
from tests.kit.support import WAIT_S, free_port, wait_until

SCRAM = "SCRAM-SHA-256"


class Broker:
    """One broker, which is its own controller, at `bootstrap`, also after it was started again; and at
    `secured` for users of SCRAM, who authenticate again every second.
    """

    def __init__(self, directory: Path, **changed: str) -> None:
        """`changed` are settings, with `_` for `.` in their names; without a value one is left out."""
        class_path = java_class_path("kafka", "kafka-broker")
        directory.mkdir(parents=True, exist_ok=True)
        self.bootstrap, self.secured, controller = (f"127.0.0.1:{free_port()}" for _ in range(3))
        self.data, file = directory / "data", directory / "server.properties"
        alone = dict.fromkeys(
            (
                "offsets.topic.replication.factor",
                "transaction.state.log.replication.factor",
                "transaction.state.log.min.isr",
                "share.coordinator.state.topic.replication.factor",
                "share.coordinator.state.topic.min.isr",
                "offsets.topic.num.partitions",
                "transaction.state.log.num.partitions",
            ),
            1,
        )
        config = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{self.bootstrap},SECURED://{self.secured},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap},SECURED://{self.secured}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_PLAINTEXT"
            ),
            "sasl.enabled.mechanisms": SCRAM,
            f"listener.name.secured.{SCRAM.lower()}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            f"listener.name.secured.{SCRAM.lower()}.connections.max.reauth.ms": 1_000,
            "log.dirs": self.data,
            "auto.create.topics.enable": "false",
            "log.cleaner.backoff.ms": 100,
            "log.initial.task.delay.ms": 100,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "group.initial.rebalance.delay.ms": 0,
            "broker.session.timeout.ms": 1_000,
            "broker.heartbeat.interval.ms": 100,
            **alone,
            **{name.replace("_", "."): value for name, value in changed.items()},
        }
        file.write_text("".join(f"{name}={value}\n" for name, value in config.items() if value != ""))
        kafka_tool("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(file))
        java = str(java_home() / "bin" / "java")
        options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")
        command = [java, *options, "-cp", class_path, "kafka.Kafka", str(file)]
        self.program = Program(command, directory)
        self.await_ready()

    def await_ready(self) -> None:
        """Wait until it answers."""
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self.program.until(self._answers, "the broker answers")

    def _answers(self) -> bool:
        try:
            return bool(self.admin.list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def let_in(self, user: str, password: str) -> None:
        """Give a user this password, and only this."""
        how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        self._change_user(UserScramCredentialUpsertion(user, how, password.encode()))

    def let_out(self, user: str) -> None:
        """Take the password of a user."""
        self._change_user(UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256))

    def _change_user(self, change: UserScramCredentialAlteration) -> None:
        (done,) = self.admin.alter_user_scram_credentials([change]).values()
        done.result(WAIT_S)

    def create_topic(self, name: str, partitions: int = 1, **config: Any) -> None:
        """Make a topic; `_` stands for `.` in the names of its settings."""
        named = {key.replace("_", "."): str(value) for key, value in config.items()}
        new = NewTopic(name, partitions, 1, config=named)
        self.admin.create_topics([new])[name].result(WAIT_S)
        wait_until(lambda: self._partitions(name) == partitions, f"{name} has {partitions} partitions")

    def alter_topic(self, name: str, **config: Any) -> None:
        """Change settings of a topic, named as in `create_topic`; None takes one away."""
        changes = [
            ConfigEntry(
                key.replace("_", "."),
                None if value is None else str(value),
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes)
        (done,) = self.admin.incremental_alter_configs([resource]).values()
        done.result(WAIT_S)

    def _partitions(self, name: str) -> int:
        found = self.admin.list_topics(name, timeout=WAIT_S).topics[name]
        return 0 if found.error is not None else len(found.partitions)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until it is gone."""
        self.admin.delete_topics([name])[name].result(WAIT_S)
        wait_until(lambda: self._is_gone(name), f"{name} is gone")

    def _is_gone(self, name: str) -> bool:
        error = self.admin.list_topics(name, timeout=WAIT_S).topics[name].error
        return error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


@contextmanager
def broker(directory: Path, **changed: str) -> Iterator[Broker]:
    """A broker, which is killed at the end; `changed` are settings of its own."""
    made = Broker(directory, **changed)
    try:
        yield made
    finally:
        made.program.kill()
