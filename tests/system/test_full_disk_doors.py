"""A root without room, at each door: records are refused with the reason, what frees room is committed."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree

import pytest

from log_tables.clock import SystemClock
from log_tables.record import timestamp_text
from log_tables.root.fsck import check
from log_tables.store.reserve import PIECES, RESERVE
from log_tables.store.store import open_store
from tests.kit.deployed import LAKELOG
from tests.kit.kafka import KafkaGateway, kafka_gateway, produce
from tests.kit.small_disk import fill, fill_inodes, small_disk
from tests.kit.support import wait_until

DISK_BYTES, DISK_FILES = 24 << 20, 6_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", DISK_BYTES, DISK_FILES) as path:
        yield path


def empty(filling: Path) -> None:
    """Give back what `fill` or `fill_inodes` took."""
    rmtree(filling) if filling.is_dir() else filling.unlink()


def command(*words: str, url: str = "") -> "subprocess.CompletedProcess[str]":
    variables = {**os.environ, "LAKELOG_URL": url, "LAKELOG_WAIT": "0", "LAKELOG_CONTEXT": ""}
    return subprocess.run([*LAKELOG, *words], env=variables, capture_output=True, text=True, check=False)


def ready(gateway: KafkaGateway) -> str:
    return str(gateway.running.client.get("/ready").json()["status"])


@pytest.mark.parametrize(
    "filled", [fill, pytest.param(fill_inodes, marks=pytest.mark.torture)], ids=["bytes", "inodes"]
)
def test_a_full_root_refuses_records_and_commits_what_frees_room(
    disk: Path, tmp_path: Path, filled: Callable[[Path], None]
) -> None:
    data, filling = disk / "root", disk / "filling"
    with kafka_gateway(data) as gateway:
        running, url = gateway.running, gateway.running.url
        for name in ("kept", "gone", "back"):
            running.create_topic(name)
            running.produce(name, *range(10)).raise_for_status()
        reserve = data / RESERVE
        wait_until(lambda: reserve.exists() and len([*reserve.iterdir()]) == PIECES, "the reserve")
        assert command("topic", "delete", "back", "--yes", url=url).returncode == 0
        path, whole = "/topics/kept/partitions/0/records", timestamp_text(SystemClock().now_us())
        running.client.delete(path, params={"before": 5}).raise_for_status()
        filled(filling)
        wait_until(lambda: ready(gateway) == "full", "the gateway knows that its disk is full")

        refused = running.produce("kept", 1)
        assert (refused.status_code, refused.json()["error_code"]) == (503, 50003)
        assert refused.json()["error"] == "store_full"
        assert "lakelog_disk_full 1.0" in running.client.get("/metrics").text
        assert produce(gateway.bootstrap, "kept", [b"x"], **{"message.timeout.ms": 1_000}).failed
        waiting = subprocess.Popen(
            [*LAKELOG, "produce", "kept", "--url", url, "--wait", "0"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert waiting.stdin is not None
        assert waiting.stderr is not None
        waiting.stdin.write("waits\n")
        waiting.stdin.close()
        for words in (
            ("consume", "kept", "--group", "readers", "--max", "10"),
            ("group", "reset-offsets", "readers", "--topic", "kept", "--to", "earliest"),
            ("topic", "restore", "kept", "--to-time", whole),
            ("topic", "alter", "kept", "--config", "retention.ms=1"),
            ("topic", "undelete", "back"),
            ("topic", "delete", "back", "--yes"),
            ("topic", "purge", "back", "--yes"),
            ("maintain", "--once", "--job", "retention", "--data", str(data)),
            ("maintain", "--once", "--job", "housekeeping", "--data", str(data)),
            ("maintain", "--once", "--data", str(data)),
            ("sql", "--data", str(data), "select count(*) from kept"),
            ("fsck", "--data", str(data)),
        ):
            done = command(*words, url=url)
            assert done.returncode == 0, (words, done.stderr)
            if words[1] == "restore":
                assert running.client.get(path, params={"offset": 0}).status_code == 200
        assert running.client.delete(f"{running.cluster}/topics/gone").status_code == 204
        copied = command("root", "copy", str(data), str(disk / "copy"))
        assert copied.returncode == 1
        assert "the disk is full" in copied.stderr
        assert 0 < len([*reserve.iterdir()]) < PIECES

        assert "are sent again until" in waiting.stderr.readline()
        empty(filling)
        wait_until(lambda: ready(gateway) == "ready", "the gateway takes records again")
        assert waiting.wait() == 0
        waiting.stderr.close()
        wait_until(lambda: len([*reserve.iterdir()]) == PIECES, "the reserve is whole again")
        assert command("root", "copy", str(data), str(tmp_path / "copy")).returncode == 0
        assert not (tmp_path / "copy" / RESERVE).exists()
    assert check(open_store(data)).problems == []
