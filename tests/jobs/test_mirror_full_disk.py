"""A mirror whose root has no room: it waits, and goes on when there is some."""

from pathlib import Path

import pytest

from log_tables.clock import SystemClock
from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store
from tests.kit.kafka import produce
from tests.kit.kafka_broker import Broker
from tests.kit.mirrors import equal, level, name, note, running, sound
from tests.kit.small_disk import fill, small_disk
from tests.kit.support import wait_until

__all__ = ["name"]

DISK_BYTES = 12 << 20


def noise() -> list[bytes]:
    """Values that no codec makes smaller."""
    return [bytes.fromhex(SystemClock().random_hex(2_000)) for _ in range(1_000)]


@pytest.mark.torture
def test_a_mirror_goes_on_when_there_is_room_again(
    kafka: Broker, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk", DISK_BYTES) as disk:
        cluster = Cluster.open(open_store(str(disk / "root")))
        kafka.create_topic(name, 2)
        note(cluster, kafka, name)
        with running(cluster):
            produce(kafka.bootstrap, name, noise())
            level(cluster, kafka, name)
            fill(disk / "filling")
            produce(kafka.bootstrap, name, noise())
            wait_until(lambda: "the disk is full" in caplog.text, "the mirror says that the disk is full")
            sound(cluster)
            (disk / "filling").unlink()
            level(cluster, kafka, name)
        equal(cluster, kafka, name, 2_000)
        sound(cluster)
