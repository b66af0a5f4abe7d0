"""A bucket whose quota is used up, and a gateway that may open no more files: each is said as it is."""

import json
import resource
import threading
from pathlib import Path

import pytest

from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.s3_proxy import s3_proxy
from tests.kit.support import S3Server, wait_until


def status(gateway: RunningGateway) -> str:
    return str(gateway.client.get("/ready").json()["status"])


def values(gateway: RunningGateway) -> list[object]:
    return [each["value"] for each in gateway.client.get("/topics/t/partitions/0/records").json()]


def test_a_bucket_whose_quota_is_used_up_refuses_records_until_a_write_succeeds(s3: S3Server) -> None:
    full, data = threading.Event(), f"{s3.bucket('quota')}/root"
    with s3_proxy(s3, full=full) as endpoint:
        options = json.dumps({**s3.options, "aws_endpoint": endpoint})
        with running_gateway(data, store_options=options, linger_ms=0) as gateway:
            gateway.create_topic("t")
            gateway.produce("t", "before", partition=0).raise_for_status()
            full.set()
            refused = gateway.produce("t", "lost", partition=0)
            assert (refused.status_code, refused.json()["error"]) == (503, "store_full")
            assert (
                "the store has no room (QuotaExceeded); free room or raise the quota"
                in refused.json()["message"]
            )
            wait_until(lambda: status(gateway) == "full", "it is full")
            assert "lakelog_disk_full 1.0" in gateway.client.get("/metrics").text
            named = gateway.client.post(f"{gateway.cluster}/topics", json={"topic_name": "u"})
            assert (named.status_code, named.json()["error"]) == (503, "store_full")
            assert values(gateway) == ["before"]
            full.clear()
            wait_until(lambda: status(gateway) == "ready", "a write has found room")
            gateway.produce("t", "after", partition=0).raise_for_status()
            assert values(gateway) == ["before", "after"]
    assert check(open_store(data, s3.options)).problems == []


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="no prlimit(2): the test bounds another process")
def test_a_gateway_that_can_open_no_file_says_so_and_goes_on_when_it_can(tmp_path: Path) -> None:
    with running_gateway(tmp_path, linger_ms=0) as gateway:
        gateway.create_topic("t")
        gateway.produce("t", "before", partition=0).raise_for_status()
        pid = gateway.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
        refused = gateway.produce("t", "lost", partition=0)
        assert refused.status_code == 503
        assert "Too many open files; raise the limit of open files" in refused.json()["message"]
        assert "lakelog_disk_full 0.0" in gateway.client.get("/metrics").text
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        gateway.produce("t", "after", partition=0).raise_for_status()
        assert values(gateway) == ["before", "after"]
