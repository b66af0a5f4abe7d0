"""A disk that is full: the audit stops, and no request does for it; with room again it goes on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from log_tables.cluster.acl import Operation, ResourceType
from tests.kit.audits import audit_rows, wait_for_audit
from tests.kit.gateway import running_gateway
from tests.kit.secured import Secured, acl, bearer
from tests.kit.small_disk import fill, small_disk
from tests.kit.support import wait_until

DISK_BYTES = 12 << 20
JSON = {"Content-Type": "application/vnd.kafka.json.v2+json"}
ANN = "User:ann"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    with small_disk(tmp_path / "disk", DISK_BYTES) as path:
        yield path


@pytest.mark.torture
def test_requests_go_on_while_the_audit_has_no_room(disk: Path) -> None:
    data, filling = disk / "root", disk / "filling"
    root = Secured(data)
    root.allow(acl(ANN, Operation.DESCRIBE, ResourceType.TOPIC, "t"))
    admin, ann = bearer(root.key()), bearer(root.key(ANN))
    with running_gateway(data, linger_ms=0, authentication_methods="api-key") as gateway:
        client = gateway.client
        client.post("/topics", json={"topic_name": "t"}, headers=admin).raise_for_status()
        client.post("/topics/t", json={"records": [{"value": 1}]}, headers=admin | JSON).raise_for_status()
        wait_for_audit(data, "operation = 'CreateTopics'")
        fill(filling)
        denied = 0

        def fails() -> bool:
            nonlocal denied
            denied += 1
            answers = [
                client.get("/topics/t/partitions/0/records", headers=admin).status_code,
                client.get("/topics/t", headers=ann).status_code,
                client.delete(f"/topics/t{denied}", headers=ann).status_code,
            ]
            assert answers == [200, 200, 403]
            metrics = client.get("/metrics", headers=admin).text
            return 'lakelog_duty_failures_total{duty="audit"}' in metrics

        wait_until(fails, "the audit has no room")
        filling.unlink()
        found = wait_for_audit(data, "kind = 'denial'", denied)
        assert sum(row["count"] for row in found) == denied
    assert audit_rows(data, "kind = 'loss'") == []
