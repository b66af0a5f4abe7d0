"""A root with a quota that the system does not show: records are refused, what makes room is committed."""

import os
import subprocess
from pathlib import Path

from log_tables.clock import SystemClock
from log_tables.record import timestamp_text
from log_tables.root.fsck import check
from log_tables.store.reserve import PIECES, RESERVE
from log_tables.store.store import open_store
from tests.kit.deployed import LAKELOG
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.small_disk import quota_disk
from tests.kit.support import wait_until

QUOTA_BYTES = 32 << 20


def lakelog(*words: str, url: str) -> None:
    variables = {**os.environ, "LAKELOG_URL": url, "LAKELOG_CONTEXT": ""}
    done = subprocess.run([*LAKELOG, *words], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stderr)


def ready(gateway: RunningGateway) -> str:
    return str(gateway.client.get("/ready").json()["status"])


def test_a_quota_that_is_used_up_refuses_records_until_a_deleted_topic_makes_room(tmp_path: Path) -> None:
    with quota_disk(tmp_path / "disk", QUOTA_BYTES) as disk:
        data = disk / "root"
        with running_gateway(data) as gateway:
            for name in ("kept", "large"):
                gateway.create_topic(name)
                gateway.produce(name, *range(10)).raise_for_status()
            reserve = data / RESERVE
            wait_until(lambda: reserve.exists() and len([*reserve.iterdir()]) == PIECES, "the reserve")
            path, whole = "/topics/kept/partitions/0/records", timestamp_text(SystemClock().now_us())
            gateway.client.delete(path, params={"before": 5}).raise_for_status()
            for _ in range(100):
                refused = gateway.produce("large", SystemClock().random_hex(980_000))
                if refused.status_code != 200:
                    break
            assert (refused.status_code, refused.json()["error"]) == (503, "store_full")
            assert "the quota is used up: free room or raise it" in refused.json()["message"]
            assert ready(gateway) == "full"
            assert gateway.produce("kept", 1).json()["error"] == "store_full"

            url = gateway.url
            lakelog("topic", "restore", "kept", "--to-time", whole, url=url)
            assert gateway.client.get(path, params={"offset": 0}).status_code == 200
            lakelog("topic", "alter", "kept", "--config", "retention.bytes=1", url=url)
            lakelog("maintain", "--once", "--data", str(data), url=url)
            assert ready(gateway) == "full"
            lakelog("topic", "delete", "large", "--yes", url=url)
            lakelog("topic", "purge", "large", "--yes", url=url)
            wait_until(lambda: ready(gateway) == "ready", "the gateway takes records again")
            gateway.produce("kept", 1).raise_for_status()
            wait_until(lambda: len([*reserve.iterdir()]) == PIECES, "the reserve is whole again")
        assert check(open_store(data)).problems == []
