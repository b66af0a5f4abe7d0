"""Health, readiness, metrics and the OpenAPI page of a running gateway."""

import asyncio
import re
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from api.gateway import ROOM
from api.metrics import INTERNAL_TOPICS, OTHER_TOPICS, TOPIC_LABELS_MAX, Metrics, TableSize
from api.process.app import create_app
from api.process.server import open_gateway
from ingest.settings import Settings
from log_tables.layout import METADATA_DIRECTORY
from log_tables.version import VERSION
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.small_disk import fill, small_disk
from tests.kit.support import ROOT, wait_until

OPERATING = ROOT / "docs" / "operating.md"


def samples(text: str) -> dict[tuple[str, str], float]:
    """(metric, topic) → value."""
    families = text_string_to_metric_families(text)
    return {(s.name, s.labels.get("topic", "")): s.value for f in families for s in f.samples}


def test_a_gateway_is_alive_and_ready(gateway: RunningGateway) -> None:
    assert gateway.client.get("/health").json() == {"status": "alive"}
    assert gateway.client.get("/ready").json() == {"status": "ready"}


def test_a_full_disk_is_logged_once_and_said_by_ready(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk", 12 << 20) as disk:
        gateway = open_gateway(Settings(data=str(disk / "root")), "http://test")  # its own duties do not run
        room, filling = gateway.writer.room, disk / "filling"

        fill(filling)

        async def run() -> list[tuple[str, float]]:
            said = []
            transport = httpx.ASGITransport(create_app(gateway))
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                for step in range(3):
                    if step == 2:
                        filling.unlink()
                    with gateway.failures.catch(ROOM):
                        room.look()
                    full = samples((await client.get("/metrics")).text)["lakelog_disk_full", ""]
                    said.append(((await client.get("/ready")).json()["status"], full))
            return said

        assert asyncio.run(run()) == [("full", 1), ("full", 1), ("ready", 0)]
    begins, ends = (each.getMessage() for each in caplog.records if "duty room" in each.getMessage())
    assert "records are refused" in begins
    assert "works again" in ends


def test_the_root_says_what_this_is_and_every_link_of_it_leads_somewhere(gateway: RunningGateway) -> None:
    welcome = gateway.client.get("/").json()
    assert (welcome["name"], welcome["version"]) == ("lakelog", VERSION)
    targets = {"/console", "/docs", "/openapi.json", "/topics", "/v3/clusters", "/health", "/metrics"}
    assert {*welcome["links"].values()} == targets
    for path in targets:
        assert gateway.client.get(path).status_code == 200, path


def test_produced_records_show_in_the_metrics_of_their_topic(gateway: RunningGateway, topic: str) -> None:
    assert gateway.produce(topic, 1, 2, 3, partition=0).status_code == 200
    seen = samples(gateway.client.get("/metrics").text)
    assert seen["lakelog_produce_records_total", topic] == 3
    assert seen["lakelog_produce_bytes_total", topic] > 0
    assert seen["lakelog_produce_seconds_count", topic] == 1
    assert seen["lakelog_commit_records_total", topic] == 3
    assert seen["lakelog_commit_seconds_count", topic] == 1
    assert seen["lakelog_segments", topic] == 1
    assert seen["lakelog_stored_bytes", topic] > 0
    assert seen["lakelog_leading", topic] == 1


def test_the_buffer_is_empty_when_everything_is_committed(gateway: RunningGateway, topic: str) -> None:
    gateway.produce(topic, "x")
    seen = samples(gateway.client.get("/metrics").text)
    assert seen["lakelog_buffer_used_bytes", ""] == 0
    assert seen["lakelog_buffer_limit_bytes", ""] == 128 * 1024 * 1024


def test_a_deleted_topic_is_no_longer_reported(gateway: RunningGateway, topic: str) -> None:
    gateway.produce(topic, "x")
    gateway.client.delete(f"{gateway.cluster}/topics/{topic}").raise_for_status()
    shown = f'topic="{topic}"'  # debts are counted each second
    wait_until(lambda: shown not in gateway.client.get("/metrics").text, "it is reported no longer")


def test_every_metric_is_documented(gateway: RunningGateway, topic: str) -> None:
    gateway.produce(topic, "x")
    gateway.client.get("/nowhere")
    text = gateway.client.get("/metrics").text
    exported = set(re.findall(r"^# TYPE (lakelog_\w+)", text, re.MULTILINE))
    documented = set(re.findall(r"^\| `(lakelog_\w+)` \|", OPERATING.read_text(), re.MULTILINE))
    assert exported - documented == set()
    # A failed duty shows only after one has failed, credentials only where they are asked for, connections of
    # Kafka's clients only where they are listened for.
    later = {
        "lakelog_duty_failures_total",
        "lakelog_authentications_total",
        "lakelog_kafka_connections",
    }
    assert documented - exported == later - exported


def test_every_duty_is_documented() -> None:
    row = next(line for line in OPERATING.read_text().splitlines() if "`lakelog_duty_failures_total`" in line)
    sources = [path.read_text() for path in (*ROOT.glob("api/**/*.py"), *ROOT.glob("coordinator/**/*.py"))]
    named = {name for text in sources for name in re.findall(r'(?:Duty|PeriodicTask|catch)\("([^"]+)"', text)}
    assert len(named) > 15
    assert [name for name in sorted(named) if f"`{name}`" not in row] == []


def test_the_openapi_page_has_every_path_with_its_errors(gateway: RunningGateway) -> None:
    schema = gateway.client.get("/openapi.json").json()
    operations = [op for path in schema["paths"].values() for op in path.values()]
    assert len(operations) > 20
    assert [op for op in operations if not op.get("summary") or not op.get("tags")] == []
    bodies = {
        content["schema"].get("$ref", "")
        for op in operations
        for status, answer in op["responses"].items()
        if status >= "400"  # or "default"
        for content in answer["content"].values()
    }
    assert bodies == {"#/components/schemas/ErrorBody"}
    assert gateway.client.get("/docs").status_code == 200


def test_a_gateway_without_its_root_is_alive_and_not_ready(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with running_gateway(root) as running:
        root.rename(tmp_path / "elsewhere")
        answer: httpx.Response = running.client.get("/ready")
        assert (answer.status_code, answer.json()["error_code"]) == (503, 50003)
        assert str(tmp_path) not in answer.text
        assert running.client.get("/health").status_code == 200


def test_who_asks_whether_it_is_ready_learns_nothing_more(tmp_path: Path) -> None:
    """Anybody may ask: what the store says has its paths, and in a bucket its URL."""
    with running_gateway(tmp_path) as running:
        metadata = tmp_path / METADATA_DIRECTORY
        metadata.rename(tmp_path / "elsewhere")
        metadata.write_text("a file")
        answer = running.client.get("/ready")
        assert (answer.status_code, answer.json()["error_code"]) == (503, 50003)
        assert answer.json()["message"] == "this gateway cannot serve now; its log says why"
        metadata.unlink()
        (tmp_path / "elsewhere").rename(metadata)
        wait_until(lambda: running.client.get("/ready").is_success, "it is ready again")


def test_who_asks_again_and_again_fills_no_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "root"
    with running_gateway(root) as running:
        root.rename(tmp_path / "elsewhere")
        for _ in range(20):
            assert running.client.get("/ready").status_code == 503
        (tmp_path / "elsewhere").rename(root)
        wait_until(lambda: running.client.get("/ready").is_success, "it is ready again")
    told = [
        line for line in capfd.readouterr().err.splitlines() if "readiness" in line or "not ready" in line
    ]
    assert 2 <= len(told) <= 4, told


def test_labels_are_bounded_however_many_topics_there_are() -> None:
    metrics = Metrics()
    for number in range(TOPIC_LABELS_MAX + 5):
        metrics.topic(f"topic-{number}").produced(1, 10, 0.001)
    metrics.topic("__consumer_offsets").produced(1, 10, 0.001)
    seen = samples(metrics.render().decode())
    assert seen["lakelog_produce_records_total", OTHER_TOPICS] == 5
    assert seen["lakelog_produce_records_total", INTERNAL_TOPICS] == 1


def test_sizes_have_so_many_labels_too() -> None:
    metrics = Metrics()
    names = [f"topic-{number}" for number in range(TOPIC_LABELS_MAX + 5)]
    metrics.watch_tables(lambda: [TableSize(name, 2, 30, True) for name in names])
    seen = samples(metrics.render().decode())
    assert [seen[name, OTHER_TOPICS] for name in ("lakelog_segments", "lakelog_stored_bytes")] == [10, 150]
    assert seen["lakelog_leading", OTHER_TOPICS] == 5
    assert sum(name == "lakelog_segments" for name, _ in seen) == TOPIC_LABELS_MAX + 1


def test_sizes_of_partitions_add_up_by_topic() -> None:
    metrics = Metrics()
    metrics.watch_tables(lambda: [TableSize("a", 2, 30, True), TableSize("a", 1, 12, False)])
    seen = samples(metrics.render().decode())
    assert seen["lakelog_segments", "a"] == 3
    assert seen["lakelog_stored_bytes", "a"] == 42
    assert seen["lakelog_leading", "a"] == 1
