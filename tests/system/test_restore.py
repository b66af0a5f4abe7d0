"""A root is restored to an older state: what those find who have seen more, as docs/backup.md says."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from log_tables.clock import SystemClock
from log_tables.root.copy import copy_root
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.consumers import JSON, Instance
from tests.kit.gateway import RunningGateway, running_gateway, start_gateway
from tests.kit.support import free_port, wait_until

SEEN, KEPT = 8, 5
"""Records that consumers have seen, and those of them that the backup has."""


@dataclass
class Restored:
    gateway: RunningGateway
    group: Instance
    cluster: str


def idempotently(gateway: RunningGateway, sequence: int, epoch: int = 0) -> httpx.Response:
    headers = {
        "Content-Type": JSON,
        "Producer-Id": "77",
        "Producer-Epoch": str(epoch),
        "Producer-Seq": str(sequence),
    }
    body = {"records": [{"value": sequence}]}
    return gateway.client.post("/topics/t/partitions/0", json=body, headers=headers)


@pytest.fixture
def restored(tmp_path: Path) -> Iterator[Restored]:
    """Eight records were read and committed; then the root was put back to where it had five."""
    root, backup, port = tmp_path / "root", tmp_path / "backup", str(free_port())
    gateway = start_gateway(root, "--port", port, linger_ms=0)
    gateway.create_topic("t")
    client = httpx.Client(base_url=gateway.url, timeout=30)
    group = Instance(client, "readers", "reader")
    group.subscribe("t")
    for sequence in range(SEEN):
        if sequence == KEPT:
            assert group.values(KEPT) == [*range(KEPT)]
            assert group.commit().is_success
            copy_root(open_store(root), open_store(backup), SystemClock(), keep_id=True)
        assert idempotently(gateway, sequence).status_code == 200
    assert group.values(SEEN - KEPT) == [*range(KEPT, SEEN)]
    assert group.commit().is_success
    cluster = gateway.cluster
    assert gateway.stop() == 0
    root.rename(tmp_path / "broken")
    backup.rename(root)
    gateway = start_gateway(root, "--port", port, linger_ms=0)
    try:
        yield Restored(gateway, group, cluster)
    finally:
        client.close()
        gateway.stop()
    assert check(open_store(root)).problems == []


def test_a_group_goes_on_from_what_it_had_committed_then(restored: Restored) -> None:
    assert restored.group.committed("t", 0) == {0: KEPT}
    for value in ("new", "newer"):
        assert restored.gateway.produce("t", value).status_code == 200
    assert restored.group.values(2) == ["new", "newer"]
    assert restored.gateway.cluster == restored.cluster


def test_who_keeps_offsets_itself_is_told_the_end(restored: Restored) -> None:
    path = "/topics/t/partitions/0/records"
    answer = restored.gateway.client.get(path, params={"offset": SEEN})
    assert (answer.status_code, answer.json()["error_code"]) == (416, 41601)
    assert str(KEPT) in answer.json()["message"]


def test_an_idempotent_producer_is_told_what_is_missing(restored: Restored) -> None:
    answer = idempotently(restored.gateway, SEEN)
    assert (answer.status_code, answer.json()["error_code"]) == (409, 40910)
    assert idempotently(restored.gateway, 0, epoch=1).status_code == 200


def test_a_gateway_whose_root_is_exchanged_under_it_writes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with running_gateway(root, linger_ms=0) as gateway:
        gateway.create_topic("t")
        assert gateway.produce("t", "before").status_code == 200
        shutil.copytree(root, tmp_path / "other")
        root.rename(tmp_path / "old")
        (tmp_path / "other").rename(root)
        before = files(root)
        assert gateway.produce("t", "lost?").status_code == 503
        assert files(root) == before
        shutil.rmtree(root)
        (tmp_path / "old").rename(root)
        wait_until(lambda: gateway.produce("t", "after").status_code == 200, "it goes on")


def files(root: Path) -> set[str]:
    return {item.path for item in open_store(root).list("topics/")}
