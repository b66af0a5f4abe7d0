"""A mirror whose root has no room: it waits, and goes on when there is some."""

from pathlib import Path

import pytest

from log_tables.clock import SystemClock
from log_tables.cluster.cluster import Cluster
from log_tables.store.disk_room import DiskBounds
from log_tables.store.reserve import PIECES, RESERVE
from log_tables.store.store import open_store
from log_tables.testing import FaultyStore
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
        store = FaultyStore(open_store(str(disk / "root")))
        cluster = Cluster.open(store)
        kafka.create_topic(name, 2)
        note(cluster, kafka, name)
        with running(cluster):
            produce(kafka.bootstrap, name, noise())
            level(cluster, kafka, name)
            fill(disk / "filling")
            produce(kafka.bootstrap, name, noise())
            wait_until(lambda: "copy has no room" in caplog.text, "the mirror says that it has no room")
            noted = len(store.calls)

            def looks() -> int:
                return sum(call.operation == "check_room" for call in store.calls[noted:])

            wait_until(lambda: looks() > 5, "it looks whether there is room")
            claims = [
                call
                for call in store.calls[noted:]
                if call.operation == "put_if_absent" and name in call.path
            ]
            assert len(claims) <= 4  # each would take of the reserve
            sound(cluster)
            (disk / "filling").unlink()
            level(cluster, kafka, name)
            wait_until(lambda: "copy has room again" in caplog.text, "it says that it goes on")
        said = [each for each in caplog.messages if "room" in each and "mirror copy ha" in each]
        assert len(said) == 2
        assert "is read again" not in caplog.text
        equal(cluster, kafka, name, 2_000)
        sound(cluster)


@pytest.mark.torture
def test_a_mirror_leaves_the_room_that_is_for_other_things(
    kafka: Broker, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk", 2 * DISK_BYTES) as disk:
        cluster = Cluster.open(open_store(str(disk / "root")))
        kafka.create_topic(name, 1)
        note(cluster, kafka, name)
        with running(cluster, disk=DiskBounds(1 << 20, 2 << 20)):
            produce(kafka.bootstrap, name, [b"before"])
            level(cluster, kafka, name)
            filling = disk / "filling"
            fill(filling)
            with filling.open("r+b") as file:
                file.truncate(filling.stat().st_size - (1 << 20))
            wait_until(lambda: "disk_free_min_bytes is 2,097,152" in caplog.text, "it says what it keeps")
            produce(kafka.bootstrap, name, [b"after"])
            assert len([*(disk / "root" / RESERVE).iterdir()]) == PIECES
            assert "was not written" not in caplog.text
            filling.unlink()
            level(cluster, kafka, name)
        equal(cluster, kafka, name, 2)
        sound(cluster)
