"""A source that asks who the mirror is, and lists what it forbids: the mirror says why, and goes on when that
is mended.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from msgspec.structs import replace

from log_tables.cluster.admin import mirror_admin
from log_tables.cluster.cluster import Cluster
from tests.kit.kafka import produce
from tests.kit.kafka_broker import SCRAM, Broker
from tests.kit.mirrors import NAME, cluster, equal, level, name, note, running, stopped, trouble
from tests.kit.support import WAIT_S, wait_until

__all__ = ["cluster", "name"]

DENY = AclPermissionType.DENY


def secured(cluster: Cluster, kafka: Broker, file: Path, user: str, password: str) -> None:
    """Let the mirror come as this user."""
    write(file, user, password)
    mirror_admin.change_mirror(
        cluster, NAME, lambda known: replace(known, source=kafka.secured, config=str(file))
    )


def write(file: Path, user: str, password: str) -> None:
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": SCRAM,
        "sasl.username": user,
        "sasl.password": password,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 200,
    }
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))


@contextmanager
def denied(kafka: Broker, topic: str, operation: AclOperation) -> Iterator[None]:
    """Deny an operation of the topic to everybody meanwhile."""
    where = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*")
    rules = [
        AclBinding(*where, AclOperation.ALL, AclPermissionType.ALLOW),
        AclBinding(*where, operation, DENY),
    ]
    for made in kafka.admin.create_acls(rules).values():
        made.result(WAIT_S)
    try:
        yield
    finally:
        every = AclBindingFilter(*where, AclOperation.ANY, AclPermissionType.ANY)
        for gone in kafka.admin.delete_acls([every]).values():
            gone.result(WAIT_S)


def test_a_wrong_credential_is_said_and_a_right_one_is_used(
    kafka: Broker, cluster: Cluster, name: str, tmp_path: Path
) -> None:
    kafka.create_topic(name)
    produce(kafka.bootstrap, name, [b"0", b"1"])
    kafka.let_in(name, "right")
    note(cluster, kafka, name)
    file = tmp_path / "source.properties"
    secured(cluster, kafka, file, name, "wrong")
    with running(cluster):
        trouble(cluster, "check the credential in the file of --config")
        write(file, name, "right")
        level(cluster, kafka, name)
    equal(cluster, kafka, name, 2)


def test_a_credential_that_expires_is_said_and_the_copy_goes_on_with_another(
    kafka: Broker, cluster: Cluster, name: str, tmp_path: Path
) -> None:
    kafka.create_topic(name)
    kafka.let_in(name, "old")
    note(cluster, kafka, name)
    file = tmp_path / "source.properties"
    secured(cluster, kafka, file, name, "old")
    with running(cluster):
        produce(kafka.bootstrap, name, [b"0", b"1"])
        level(cluster, kafka, name)
        kafka.let_out(name)
        trouble(cluster, "check the credential in the file of --config")
        produce(kafka.bootstrap, name, [b"2"])
        kafka.let_in(name, "new")
        write(file, name, "new")
        level(cluster, kafka, name)
    equal(cluster, kafka, name, 3)


@pytest.mark.parametrize(
    "operation", [AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS]
)
def test_what_the_source_forbids_of_a_new_topic_keeps_no_other(
    kafka: Broker, cluster: Cluster, name: str, operation: AclOperation
) -> None:
    kafka.create_topic(name)
    kafka.create_topic(f"{name}-other")
    for topic in (name, f"{name}-other"):
        produce(kafka.bootstrap, topic, [b"0", b"1"])
    note(cluster, kafka, f"^{name}.*")
    with denied(kafka, name, operation), running(cluster):
        wait_until(lambda: at_offset(cluster, f"{name}-other") == 2, "the other topic is copied")
        if operation == AclOperation.READ:
            assert "Topic authorization failed" in stopped(cluster, name)
    mirror_admin.resume(cluster, NAME)
    with running(cluster):
        level(cluster, kafka, name)
    equal(cluster, kafka, name, 2)


@pytest.mark.parametrize("operation", [AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS])
def test_what_the_source_forbids_later_keeps_no_other(
    kafka: Broker, cluster: Cluster, name: str, operation: AclOperation
) -> None:
    kafka.create_topic(name)
    kafka.create_topic(f"{name}-other")
    note(cluster, kafka, f"^{name}.*")
    with running(cluster):
        level(cluster, kafka, name, f"{name}-other")
        with denied(kafka, name, operation):
            if operation == AclOperation.DESCRIBE:
                assert "authorization failed" in stopped(cluster, name)
            produce(kafka.bootstrap, f"{name}-other", [b"0"])
            wait_until(lambda: at_offset(cluster, f"{name}-other") == 1, "the other topic is copied")
        mirror_admin.resume(cluster, NAME)
        produce(kafka.bootstrap, name, [b"0"])
        level(cluster, kafka, name)
    equal(cluster, kafka, name, 1)


def at_offset(cluster: Cluster, topic: str) -> int:
    """The high watermark of the first partition of a copy, 0 before there is one."""
    cluster.refresh()
    if cluster.cached_topic(topic) is None:
        return 0
    return cluster.topic(topic).partition(0).refresh().high_watermark
