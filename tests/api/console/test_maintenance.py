"""The pages of maintenance: its runs, and what is pending."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.admin.run_log import JobRun, record_runs
from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store
from tests.kit.browser import visitor
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.secured import Secured, acl, bearer
from tests.kit.support import wait_until

HTML = {"Accept": "text/html"}
HOSTILE = "<script>alert(1)</script>\u202egpj\x1b[31m " + "x" * 5_000
BEGUN_MS = 1_700_000_000_000


def job_run(run: str, number: int, **named: object) -> JobRun:
    """A row of the run with this number."""
    facts = {"job": "segment_compaction", "topic": "flights", "partition": 0, **named}
    return JobRun(run=run, started_ms=BEGUN_MS + number * 300_000, **facts)  # type: ignore[arg-type]


def record(data: Path | str) -> None:
    """Two runs: one that merged two partitions, one with an error and a topic of its own."""
    cluster = Cluster.open(open_store(str(data)), create=False)
    sizes = {"files_before": 10, "files_after": 1, "bytes_before": 4096, "bytes_after": 1024, "seconds": 2.0}
    record_runs(cluster, [job_run("first", 0, partition=number, **sizes) for number in range(2)])
    rows = [
        job_run("second", 1, error=HOSTILE),
        job_run("second", 1, topic="secret", job="retention", seconds=1),
    ]
    record_runs(cluster, rows)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A topic with something to merge, and two runs."""
    data = tmp_path_factory.mktemp("maintenance")
    with running_gateway(data, linger_ms=0, unmerged_segments_gather=5) as running:
        running.create_topic("flights", merge_min_age_ms="0")
        for number in range(6):
            running.produce("flights", number, partition=0)
        record(data)
        yield running


def text_of(client: httpx.Client, path: str, **query: str | int) -> str:
    answer = client.get(path, params=query, headers=HTML)
    assert answer.status_code == 200, answer.text
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.text))


def test_runs_are_listed_with_what_they_did_and_their_errors(
    browser: Browser, gateway: RunningGateway
) -> None:
    with visitor(browser, gateway.url) as someone:
        page = someone.go("/console/maintenance")
        runs = page.get_by_role("table", name="Runs, newest first").get_by_role("row")
        expect(runs).to_have_count(3)
        expect(runs.nth(1)).to_contain_text("1: flights-0, <script>alert(1)</script>\\u202egpj\\u001b[31m")
        expect(runs.nth(2)).to_contain_text("20 → 2")
        someone.check("maintenance")
        runs.nth(1).get_by_role("link").click()
        expect(page.get_by_role("row", name="flights")).to_contain_text(f"({len(HOSTILE):,} characters)")
        someone.check("maintenance-run")
        page = someone.go("/console/maintenance")
        page.get_by_role("link", name="What is pending now?").click()
        steps = page.get_by_role("table", name="Steps of the next run")
        expect(steps.get_by_role("row", name="segment_compaction")).to_contain_text("merge 6 segments")
        someone.check("maintenance-pending")
        someone.check_nothing_wrong()


def test_older_runs_are_reached_by_pages(gateway: RunningGateway) -> None:
    assert "2023-11-14 22:13:20.000Z" in text_of(gateway.client, "/console/maintenance", before=2)
    assert "There are no older runs" in text_of(gateway.client, "/console/maintenance", before=0)
    run = text_of(gateway.client, "/console/maintenance/runs/first", **{"from": 0})
    assert "20 → 2" in run
    assert "8.0 KiB → 2.0 KiB" in run


def test_the_partition_with_most_unmerged_segments_is_named_and_warns(gateway: RunningGateway) -> None:
    said = "Most unmerged segments 5 flights-0, of the partitions that this gateway leads"
    wait_until(lambda: said in text_of(gateway.client, "/console/maintenance"), "it is counted")
    page = text_of(gateway.client, "/console/topics/flights/partitions/0")
    assert "merges would remove 5" in page
    assert "It has 5 unmerged segments: from 5 on its commits gather longer." in page


def test_topics_that_the_reader_may_not_describe_are_neither_shown_nor_counted(tmp_path: Path) -> None:
    secured = Secured(tmp_path / "data")
    admin, reader = secured.key(), secured.key("User:reader")
    secured.allow(acl("User:reader", Operation.DESCRIBE, ResourceType.CLUSTER))
    secured.allow(acl("User:reader", Operation.DESCRIBE, ResourceType.TOPIC, "flights"))
    secured.secure()
    with running_gateway(tmp_path / "data", authentication_methods="api-key", linger_ms=0) as gateway:
        gateway.client.headers.update(bearer(admin))
        for topic in ("flights", "secret"):
            gateway.create_topic(topic, merge_min_age_ms="0")
            for number in range(6 if topic == "flights" else 9):
                gateway.produce(topic, number, partition=0)
        assert "No run of maintenance has changed anything" in text_of(gateway.client, "/console/maintenance")
        assert gateway.client.get("/console/maintenance/runs/none", headers=HTML).status_code == 404
        record(tmp_path / "data")
        everything = text_of(gateway.client, "/console/maintenance", plan=1)
        assert "secret" in everything
        most = "Most unmerged segments 8 secret-0"
        wait_until(lambda: most in text_of(gateway.client, "/console/maintenance"), "all are counted")
        assert "retention" in everything
        with httpx.Client(base_url=gateway.url, headers=bearer(reader), timeout=60) as client:
            said = text_of(client, "/console/maintenance", plan=1)
            assert "flights" in said
            assert "Most unmerged segments 5 flights-0" in said
            assert "segment_compaction" in said
            for page in (said, text_of(client, "/console/maintenance/runs/second", **{"from": 2})):
                assert "secret" not in page
                assert "retention" not in page
