"""Consumers move to a mirror's copies under load, and change one setting: nothing twice, nothing missed."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from log_tables.cluster.cluster import Cluster
from tests.kit.kafka import kafka_gateway
from tests.kit.kafka_broker import Broker
from tests.kit.kafka_member import CONSUMER
from tests.kit.mirrors import NAME, cluster, level, name, note, sound
from tests.kit.moved_consumers import Load, Moving, check_once, move_all
from tests.kit.programs import Program

__all__ = ["cluster", "name"]


def moved(
    kafka: Broker,
    cluster: Cluster,
    topic: str,
    directory: Path,
    groups: list[list[Moving]],
    partitions: int,
    pause_s: float = 0.05,
) -> None:
    """Copy `topic` with its groups, and move these one after the other."""
    kafka.create_topic(topic, partitions)
    note(cluster, kafka, topic, groups=["^.*"])
    command = [sys.executable, "-m", "lakelog", "mirror", "run", NAME, "--data", cluster.store.url]
    with (
        kafka_gateway(cluster.store.url.removeprefix("file://")) as gateway,
        Program(command, directory / "mirror") as mirror,
        Load(kafka, topic, partitions, pause_s) as load,
    ):
        level(cluster, kafka)
        move_all(cluster, kafka, gateway, groups, load)
        for group in groups:
            check_once(group, load)
        mirror.stop()
    sound(cluster)


def own_groups(topic: str, count: int, terms: Mapping[str, Any]) -> list[list[Moving]]:
    return [[Moving(f"{topic}-{number}", topic, terms)] for number in range(count)]


def one_group(topic: str, count: int, terms: Mapping[str, Any]) -> list[list[Moving]]:
    return [[Moving(f"{topic}-all", topic, terms) for _ in range(count)]]


def test_consumers_move_one_by_one(kafka: Broker, cluster: Cluster, name: str, tmp_path: Path) -> None:
    groups = own_groups(name, 2, {})
    groups += [[Moving(f"{name}-new-{number}", name, CONSUMER)] for number in range(2)]
    moved(kafka, cluster, name, tmp_path, groups, 2)


@pytest.mark.parametrize("terms", [{}, CONSUMER], ids=["classic", "consumer"])
def test_a_group_moves(
    terms: Mapping[str, Any], kafka: Broker, cluster: Cluster, name: str, tmp_path: Path
) -> None:
    moved(kafka, cluster, name, tmp_path, one_group(name, 3, terms), 6)


@pytest.mark.torture
@pytest.mark.parametrize("terms", [{}, CONSUMER], ids=["classic", "consumer"])
def test_100_consumers_move_one_by_one(
    terms: Mapping[str, Any], kafka: Broker, cluster: Cluster, name: str, tmp_path: Path
) -> None:
    moved(kafka, cluster, name, tmp_path, own_groups(name, 100, terms), 2, pause_s=0.2)


@pytest.mark.torture
@pytest.mark.parametrize("terms", [{}, CONSUMER], ids=["classic", "consumer"])
def test_a_group_of_100_moves(
    terms: Mapping[str, Any], kafka: Broker, cluster: Cluster, name: str, tmp_path: Path
) -> None:
    moved(kafka, cluster, name, tmp_path, one_group(name, 100, terms), 100, pause_s=0.2)
