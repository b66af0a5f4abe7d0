"""A request that two gateways work for: its id and its trace in both logs, and its spans at a collector."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from tests.kit.gateway import NEVER_MS, RunningGateway, start_gateway, two_gateways
from tests.kit.kafka import kafka_gateway, librdkafka_producer
from tests.kit.log_lines import LogLines
from tests.kit.otlp import Received, otlp_receiver
from tests.kit.several import brokers
from tests.kit.support import WAIT_S, wait_until

JSON = {"Content-Type": "application/vnd.kafka.json.v2+json"}
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
OPEN = {"authentication_methods": ""}
SERVER, CLIENT, INTERNAL = 2, 3, 1


def ask_both(one: RunningGateway, two: RunningGateway) -> None:
    """Produce two records at each of two gateways, by requests with the ids `one` and `two` of one trace: the
    leader of the partition takes its own, and the other one sends it on.
    """
    one.create_topic("t")
    assert one.produce("t", "first").is_success
    for name, gateway in (("one", one), ("two", two)):
        answer = gateway.client.post(
            "/topics/t/partitions/0",
            json={"records": [{"value": "second"}, {"value": "third"}]},
            headers={**JSON, "X-Request-Id": name, "traceparent": PARENT, "tracestate": "a=1"},
        )
        assert answer.is_success, answer.text
        assert answer.headers.get_list("x-request-id") == [name]


def sent_on(log: LogLines) -> str:
    """The id of the request that both gateways have in their log."""
    (line,) = log.requests(route="/peer/append", trace_id=TRACE)
    assert line["request_id"] in ("one", "two")
    return str(line["request_id"])


def test_a_request_that_is_sent_on_keeps_its_id_and_its_trace(
    tmp_path: Path, process: None, capfd: pytest.CaptureFixture[str]
) -> None:
    log = LogLines(capfd)
    settings: dict[str, object] = {"log_format": "json", "access_log_enable": True, "linger_ms": 0}
    with two_gateways(tmp_path, **settings, **OPEN) as (one, two):
        ask_both(one, two)
    of_client, of_gateway = sorted(
        log.requests(request_id=sent_on(log)), key=lambda each: each["route"], reverse=True
    )
    assert (of_client["route"], of_client["principal_class"]) == (
        "/topics/{topic}/partitions/{partition}",
        "anonymous",
    )
    assert (of_gateway["route"], of_gateway["principal_class"]) == ("/peer/append", "gateway")
    assert of_client["process"] != of_gateway["process"]
    for line in (of_client, of_gateway):
        assert (line["trace_id"], line["span_id"], line["status"]) == (TRACE, SPAN, 200)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Received]:
    with otlp_receiver() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.endpoint)
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        yield received


def test_the_spans_of_two_gateways_hang_together(
    tmp_path: Path, process: None, collector: Received, capfd: pytest.CaptureFixture[str]
) -> None:
    log = LogLines(capfd)
    settings: dict[str, object] = {"log_format": "json", "access_log_enable": True, "linger_ms": 0}
    with two_gateways(tmp_path, **settings, **OPEN) as (one, two):
        ask_both(one, two)
        one.client.get("/health")
        assert one.client.get("/topics/none", headers={"traceparent": PARENT}).status_code == 404
    mine = sent_on(log)
    posted = [each for each in collector.spans if each.parent == SPAN and each.name.startswith("POST")]
    assert len(posted) == 2
    (asked,) = [each for each in posted if each.attributes["lakelog.request_id"] == mine]
    assert (asked.name, asked.trace_id, asked.kind) == (
        "POST /topics/{topic}/partitions/{partition}",
        TRACE,
        SERVER,
    )
    assert asked.attributes["http.response.status_code"] == 200
    forwarded = collector.child(asked, "forward /peer/append")
    led = collector.child(forwarded, "POST /peer/append")
    commit = collector.child(led, "commit")
    assert [each.kind for each in (forwarded, led, commit)] == [CLIENT, SERVER, INTERNAL]
    assert {name: commit.attributes[f"lakelog.{name}"] for name in ("topic", "partition", "records")} == {
        "topic": "t",
        "partition": 0,
        "records": 2,
    }
    assert commit.attributes["lakelog.bytes"] > 0
    assert not any(each.failed for each in (asked, forwarded, led, commit))
    processes = (
        {each.resource["service.instance.id"] for each in (asked, forwarded)},
        {each.resource["service.instance.id"] for each in (led, commit)},
    )
    assert [len(each) for each in processes] == [1, 1]
    assert processes[0] != processes[1]
    resource = commit.resource
    assert (resource["service.name"], resource["deployment.environment.name"]) == ("lakelog", "test")
    assert not [each for each in collector.spans if "ping" in each.name or "health" in each.name]
    lines = {each["route"]: each for each in log.requests(request_id=mine)}
    assert lines["/peer/append"]["span_id"] == led.span_id
    assert lines["/topics/{topic}/partitions/{partition}"]["span_id"] == asked.span_id


def test_the_spans_of_two_workers_hang_together(
    tmp_path: Path, process: None, collector: Received, capfd: pytest.CaptureFixture[str]
) -> None:
    """They ask one another at their sockets, not by HTTP."""
    log = LogLines(capfd)
    settings: dict[str, object] = {
        "log_format": "json",
        "access_log_enable": True,
        "leader_timeout_ms": NEVER_MS,
    }
    gateway = start_gateway(tmp_path, "--workers", "2", **settings, **OPEN)
    try:
        wait_until(lambda: len(brokers(gateway.url)) == 2, "both are known")
        clients = [httpx.Client(base_url=each["url"], timeout=WAIT_S) for each in brokers(gateway.url)]
        ask_both(*(replace(gateway, client=client) for client in clients))
    finally:
        gateway.stop()
    (line,) = log.requests(route="/peer/append", trace_id=TRACE)
    assert (line["client"], line["status"], line["principal_class"]) == ("unix", 200, "gateway")
    assert line["bytes"] > 0
    (forwarded,) = [each for each in collector.named("forward /peer/append") if each.trace_id == TRACE]
    led = collector.child(forwarded, "POST /peer/append")
    commit = collector.child(led, "commit")
    assert [each.kind for each in (forwarded, led, commit)] == [CLIENT, SERVER, INTERNAL]
    assert line["span_id"] == led.span_id
    assert not any(each.failed for each in (forwarded, led, commit))


def test_a_commit_is_part_of_the_request_of_a_kafka_client_and_names_the_others(
    tmp_path: Path, process: None, collector: Received
) -> None:
    with kafka_gateway(tmp_path, linger_ms=200) as gateway:
        gateway.create_topic("t")
        producers = [librdkafka_producer(gateway.bootstrap, **{"linger.ms": 0}) for _ in range(3)]
        for producer in producers:
            producer.produce("t", b"value")
        for producer in producers:
            producer.flush()
    asked = {each.span_id: each for each in collector.named("kafka Produce")}
    assert len(asked) == 3
    commits = collector.named("commit", lakelog_topic="t")
    assert {each.parent for each in commits} | {link for each in commits for link in each.links} == {*asked}
    assert sum(each.attributes["lakelog.records"] for each in commits) == 3
    assert all(each.trace_id == asked[each.parent].trace_id for each in commits)
    assert all(each.kind == SERVER and each.attributes["rpc.method"] == "Produce" for each in asked.values())
