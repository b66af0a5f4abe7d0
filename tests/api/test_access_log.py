"""The access log: a line for each request at both doors, and nothing in it that a client could misuse, or
that nobody should read.
"""

import json
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from api.kafka.protocol.messages.cluster import MetadataRequest, MetadataRequestTopic
from api.kafka.protocol.messages.handshake import ApiVersionsRequest
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store
from tests.kit.cli import FAILED
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.kafka import kafka_gateway, librdkafka_producer, read_all
from tests.kit.kafka_asking import CLIENT_ID, asker, frame, framed
from tests.kit.log_lines import LogLines
from tests.kit.secured import Secured, bearer, everything
from tests.kit.sockets import head, tell
from tests.kit.support import wait_until

JSON = {"Content-Type": "application/vnd.kafka.json.v2+json"}
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HOSTILE = "forged\n{}\r\x1b[2J"
OPEN = {"authentication_methods": ""}
LOGGED: dict[str, object] = {"log_format": "json", "access_log_enable": True, "linger_ms": 0}


@pytest.fixture
def log(capfd: pytest.CaptureFixture[str], process: None) -> LogLines:
    return LogLines(capfd)


def waited(log: LogLines, count: int = 1, **facts: object) -> list[dict[str, Any]]:
    """A line is written after its answer was sent."""
    wait_until(lambda: len(log.requests(**facts)) >= count, f"{count} requests with {facts} in the log")
    return log.requests(**facts)


def test_each_request_over_http_is_a_line(tmp_path: Path, log: LogLines) -> None:
    with running_gateway(tmp_path, **LOGGED, **OPEN) as gateway:
        gateway.create_topic("sales")
        answer = gateway.client.post(
            "/topics/sales/",
            json={"records": [{"value": 1}]},
            headers={**JSON, "X-Request-Id": "mine-1", "traceparent": f"00-{TRACE}-{SPAN}-01"},
        )
        (line,) = waited(log, request_id="mine-1")
        assert answer.headers.get_list("x-request-id") == ["mine-1"]
        assert line["seconds"] > 0
        names = ("trace_id", "span_id", "door", "method", "route", "status", "bytes", "client")
        assert [line[name] for name in names] == [
            *(TRACE, SPAN, "http", "POST", "/topics/{topic}", 200, len(answer.content), "127.0.0.1")
        ]
        assert (line["principal"], line["principal_class"]) == ("", "anonymous")
        for method, path, route, status in (
            (
                "GET",
                "/topics/sales/partitions/0/records",
                "/topics/{topic}/partitions/{partition}/records",
                200,
            ),
            ("GET", "/topics/none", "/topics/{topic}", 404),
            ("GET", "/v3/clusters", "/v3/clusters", 200),
            ("PATCH", "/topics/sales", "/topics/{topic}", 405),
            ("GET", "/nothing/of/this/kind", None, 404),
            ("POST", "/topics/sales", None, 415),
            ("GET", "/console/topics/sales", "/console/topics/{topic}", 303),
            ("GET", "/docs", "/docs", 200),
        ):
            answer = gateway.client.request(method, path)
            (line,) = waited(log, request_id=answer.headers["x-request-id"])
            assert (line["method"], line["route"], line["status"]) == (method, route, status), line
            assert answer.status_code == status
    assert all({"time", "level", "logger", "message", "process"} <= each.keys() for each in log.all())
    ids = [each["request_id"] for each in log.requests()]
    assert len(ids) == len({*ids}), "no id is given twice"


def test_what_is_no_request_and_what_breaks_off_is_a_line(tmp_path: Path, log: LogLines) -> None:
    with running_gateway(tmp_path, **LOGGED, **OPEN) as gateway:
        heard = tell(gateway, b"GARBAGE\r\n\r\n")
        (line,) = waited(log, status=400)
        assert f"x-request-id: {line['request_id']}\r\n".encode() in heard.data
        assert (line["method"], line["route"]) == ("-", None)
        chunked = head("POST /topics/t", **JSON, Transfer_Encoding="chunked", X_Request_Id="broken")
        heard = tell(gateway, chunked, b"zz\r\n")
        (line,) = waited(log, request_id="broken")
        assert (line["status"], heard.statuses) == (400, [400])
        assert b"x-request-id: broken\r\n" in heard.data
        gateway.create_topic("t")
        port = int(gateway.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as gone:
            poll = "GET /topics/t/partitions/0/records?timeout=60000"
            gone.sendall(head(poll, X_Request_Id="gone"))
        (line,) = waited(log, request_id="gone")
        assert line["route"] == "/topics/{topic}/partitions/{partition}/records"


def called(client_id: str, sent: bytes) -> bytes:
    """A frame as a client sends it that calls itself so."""
    own = struct.pack(">h", len(CLIENT_ID)) + CLIENT_ID.encode()
    other = struct.pack(">h", len(client_id)) + client_id.encode()
    return framed(sent[4:].replace(own, other, 1))


def test_each_request_of_a_kafka_client_is_a_line(tmp_path: Path, log: LogLines) -> None:
    with kafka_gateway(tmp_path, auto_create_topics_enable=False, **LOGGED) as gateway:
        with asker(gateway.port) as client:
            client.ask(ApiVersionsRequest())
            asked = MetadataRequest(topics=[MetadataRequestTopic(name="none")])
            client.write(called(HOSTILE, frame(asked, MetadataRequest.versions.last)))
            client.read_frame()
        (line,) = waited(log, api="Metadata")
        assert line["errors"] == ["UNKNOWN_TOPIC_OR_PARTITION"]
        assert (line["door"], line["client"], line["client_id"]) == ("kafka", "127.0.0.1", HOSTILE)
        assert (line["version"], line["principal_class"]) == (MetadataRequest.versions.last, "anonymous")
        assert min(line[name] for name in ("bytes", "request_bytes", "seconds")) > 0
        gateway.create_topic("t")
        producer = librdkafka_producer(gateway.bootstrap)
        producer.produce("t", b"value")
        producer.flush()
        (line,) = waited(log, api="Produce")
        assert line["errors"] == []
        assert read_all(gateway.bootstrap, "t")
        assert waited(log, api="Fetch")
    ids = [each["request_id"] for each in log.requests()]
    assert len(ids) == len({*ids})


def test_no_secret_and_nothing_of_a_record_is_in_the_log(tmp_path: Path, log: LogLines) -> None:
    secured = Secured(tmp_path)
    secured.user("ann", "canary-password")
    secured.allow(*everything("User:ann"), *everything("User:sue"))
    key = secured.key("User:sue")
    create_topic(secured.cluster, "t", 1)
    methods = {"authentication_methods": "api-key,scram", "log_level": "debug"}
    record = {"key": "canary-key", "value": {"field": "canary-value"}}
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.username": "ann",
        "sasl.password": "canary-password",
    }
    with kafka_gateway(tmp_path, **LOGGED, **methods) as gateway:
        client = gateway.running.client
        for headers in (
            bearer(key),
            bearer(f"{key}-canary"),
            {"Authorization": "Basic Y2FuYXJ5LXVzZXI6Y2FuYXJ5"},
        ):
            for path, body in (
                ("/topics/t", json.dumps({"records": [record]})),
                ("/topics/t?canary-query=1", json.dumps({"records": [record]})),
                ("/topics/t", '{"records": [{"value": canary-malformed'),
                ("/topics/t", json.dumps({"records": [{"value": 1, "canary-field": 1}]})),
                ("/topics/canary%20topic", json.dumps({"records": [record]})),
            ):
                client.post(path, content=body, headers={**headers, **JSON, "Cookie": "canary-cookie=1"})
        producer = librdkafka_producer(gateway.bootstrap, **login, **{"sasl.mechanism": "SCRAM-SHA-256"})
        producer.produce("t", b"canary-kafka-value", b"canary-kafka-key", headers={"h": b"canary-header"})
        producer.flush()
        with asker(gateway.port) as bad:
            assert bad.plain("ann", "canary-wrong").error_code
        assert read_all(gateway.bootstrap, "t", 1, 0, **login, **{"sasl.mechanism": "PLAIN"})
        (line, *_) = waited(log, api="Produce")
        assert (line["principal"], line["principal_class"]) == ("User:ann", "user")
        (line, *_) = waited(log, status=200, route="/topics/{topic}")
        assert (line["principal"], line["principal_class"]) == ("User:sue", "user")
        assert [each["principal"] for each in waited(log, status=401)][:1] == [""]
    assert log.all()
    assert "canary" not in log.text
    assert key.partition(".")[2] not in log.text


def test_a_gateway_that_cannot_start_says_so_in_its_log(tmp_path: Path, log: LogLines) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = [
            "serve",
            "--data",
            str(tmp_path),
            "--port",
            str(taken.getsockname()[1]),
            "--log-format",
            "json",
        ]
        done = subprocess.run([sys.executable, "-m", "lakelog", *words], check=False)
    assert done.returncode == FAILED
    (line,) = log.all()
    assert (line["level"], "Address already in use" in line["message"]) == ("error", True)


def test_a_request_has_an_id_without_the_access_log_too(gateway: RunningGateway) -> None:
    for given, is_taken in (("mine", True), ("not mine", False), ("x" * 129, False)):
        answer = gateway.client.get("/topics", headers={"X-Request-Id": given})
        (told,) = answer.headers.get_list("x-request-id")
        assert told != ""
        assert (told == given) is is_taken


def test_maintenance_logs_as_its_gateway_does(tmp_path: Path, log: LogLines) -> None:
    create_topic(Cluster.open(open_store(tmp_path)), "t", 1)
    words = ["maintain", "--data", str(tmp_path), "--once", "--set", "log_format=json"]
    subprocess.run([sys.executable, "-m", "lakelog", *words], check=True)
    assert "partitions changed in" in log.all()[-1]["message"]
