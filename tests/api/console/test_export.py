"""Exports of a real gateway, against what was produced; and who may have them."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser

from log_tables.cluster.access_record import Quota, quota_record
from log_tables.cluster.acl import Operation, ResourceType
from tests.kit.browser import visitor
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.secured import Secured, acl, bearer
from tests.kit.support import wait_until

JSON = {"Content-Type": "application/vnd.kafka.json.v2+json"}
ANN, BEN, CAT = "User:ann", "User:ben", "User:cat"


def produce(client: httpx.Client, topic: str, **headers: str) -> list[dict[str, Any]]:
    """Produce 6,000 records to two partitions; returns them in the order of an export."""
    records = [
        {"key": f"k{n % 10}", "value": {"n": n, "pad": "x" * 200}, "partition": n % 2} for n in range(6_000)
    ]
    for first in range(0, 6_000, 1_000):
        body = {"records": records[first : first + 1_000]}
        client.post(f"/topics/{topic}", json=body, headers=JSON | headers).raise_for_status()
    return sorted(records, key=lambda record: record["partition"])


@pytest.fixture(scope="module")
def sent(gateway: RunningGateway) -> tuple[str, list[dict[str, Any]]]:
    topic = gateway.create_topic("console-export", partitions=2)
    return topic, produce(gateway.client, topic)


def exported(gateway: RunningGateway, topic: str, form: str, **query: str) -> httpx.Response:
    answer = gateway.client.get(f"/console/topics/{topic}/export", params={"format": form, **query})
    assert answer.is_success, answer.text
    assert answer.headers["content-disposition"] == f'attachment; filename="{topic}.{form}"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    return answer


def values(gateway: RunningGateway, topic: str, form: str, **query: str) -> list[tuple[int, int, bytes]]:
    """(Partition, offset, value) of each row of an export."""
    answer = exported(gateway, topic, form, **query)
    if form == "ndjson":
        rows = [json.loads(line) for line in answer.content.splitlines()]
        return [(row["partition"], row["offset"], row["value"].encode()) for row in rows]
    if form == "csv":
        found = csv.DictReader(io.StringIO(answer.text, newline=""))
        return [(int(row["partition"]), int(row["offset"]), row["value"].encode()) for row in found]
    table = pq.read_table(pa.BufferReader(answer.content))
    columns = (table[name].to_pylist() for name in ("partition", "offset", "value"))
    return [*zip(*columns, strict=True)]


@pytest.mark.parametrize("form", ["ndjson", "csv", "parquet"])
def test_an_export_has_all_that_was_produced(
    gateway: RunningGateway, sent: tuple[str, list[dict[str, Any]]], form: str
) -> None:
    topic, records = sent
    expected = [
        (row["partition"], row["value"]["n"] // 2, json.dumps(row["value"], separators=(",", ":")).encode())
        for row in records
    ]
    assert values(gateway, topic, form) == expected


@pytest.mark.parametrize("form", ["ndjson", "csv", "parquet"])
def test_an_export_keeps_to_the_fields_of_the_page(
    gateway: RunningGateway, sent: tuple[str, list[dict[str, Any]]], form: str
) -> None:
    topic, _ = sent
    found = values(
        gateway, topic, form, partition="1", start="offset", offset="100", key="k3", text='"n":2', time=""
    )
    expected = [
        n // 2 for n in range(1, 6_000, 2) if n // 2 >= 100 and n % 10 == 3 and str(n).startswith("2")
    ]
    assert [offset for _, offset, _ in found] == expected


def test_a_browser_saves_an_export_as_a_file(
    browser: Browser, gateway: RunningGateway, sent: tuple[str, list[dict[str, Any]]]
) -> None:
    topic, records = sent
    with visitor(browser, gateway.url, scripts=False) as someone:
        page = someone.go(f"/console/topics/{topic}/messages?key=k3&start=oldest")
        with page.expect_download() as download:
            page.get_by_role("button", name="Parquet").click()
        assert download.value.suggested_filename == f"{topic}.parquet"
        assert pq.read_table(Path(download.value.path())).num_rows == len(records) // 10


def test_a_form_that_is_wrong_is_no_file(gateway: RunningGateway, topic: str) -> None:
    for query in ({"format": "xml"}, {"format": "csv", "partition": "9"}, {"format": "csv", "start": "time"}):
        answer = gateway.client.get(f"/console/topics/{topic}/export", params=query)
        assert (answer.status_code, "content-disposition" in answer.headers) == (400, False)


def test_an_export_of_an_empty_topic_is_an_empty_file(gateway: RunningGateway, topic: str) -> None:
    assert exported(gateway, topic, "ndjson").content == b""
    assert pq.read_table(pa.BufferReader(exported(gateway, topic, "parquet").content)).num_rows == 0


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Secured, RunningGateway]]:
    """A gateway where ann may describe the topic t, ben read it, and cat write it."""
    data = tmp_path_factory.mktemp("secured")
    root = Secured(data)
    for principal, operation in ((ANN, Operation.DESCRIBE), (BEN, Operation.READ), (CAT, Operation.WRITE)):
        root.allow(acl(principal, operation, ResourceType.TOPIC, "t"))
    admin = bearer(root.key())
    with running_gateway(data, linger_ms=0, authentication_methods="api-key") as running:
        body = {"topic_name": "t", "partitions_count": 2}
        running.client.post("/topics", json=body, headers=admin).raise_for_status()
        running.client.post("/topics", json={"topic_name": "hidden"}, headers=admin).raise_for_status()
        produce(running.client, "t", **admin)
        yield root, running


def test_each_page_is_for_those_who_may_do_what_it_shows(secured: tuple[Secured, RunningGateway]) -> None:
    root, gateway = secured
    pages = (
        "",
        "/partitions",
        "/settings",
        "/messages",
        "/value?partition=0&offset=0",
        "/export?format=csv",
        "/produce",
    )
    expected = {
        ANN: [303, 200, 403, 403, 403, 403, 403],
        BEN: [303, 200, 403, 200, 200, 200, 403],
        CAT: [303, 200, 403, 403, 403, 403, 200],
    }
    for principal, statuses in expected.items():
        head = bearer(root.key(principal))
        gateway.client.get("/console/topics", headers=head)
        wait_until(lambda: gateway.client.get("/topics", headers=head).is_success, "the key is known")  # noqa: B023
        answers = [gateway.client.get(f"/console/topics/t{page}", headers=head) for page in pages]
        assert [answer.status_code for answer in answers] == statuses
        assert answers[0].headers["location"].endswith("/messages" if principal == BEN else "/partitions")
        assert ("/t/messages" in answers[1].text) == (principal == BEN)
        assert ("/t/produce" in answers[1].text) == (principal == CAT)
        hidden = [gateway.client.get(f"/console/topics/hidden{page}", headers=head) for page in pages]
        missing = [gateway.client.get(f"/console/topics/nothing{page}", headers=head) for page in pages]
        assert {answer.status_code for answer in (*hidden, *missing)} == {403}


def test_a_dry_run_says_which_right_is_lacking_and_not_what_exists(
    secured: tuple[Secured, RunningGateway],
) -> None:
    root, gateway = secured
    head = bearer(root.key(BEN))
    wait_until(lambda: gateway.client.get("/topics", headers=head).is_success, "the key is known")
    for page, right in (("delete", "DELETE"), ("grow?count=4", "ALTER")):
        answer = gateway.client.get(f"/console/topics/t/{page}", headers=head)
        assert f"it needs {right} on the topic t" in answer.text
        assert "data-send" not in answer.text
    said = [
        gateway.client.get("/console/new-topic", params={"name": name}, headers=head).text.replace(name, "…")
        for name in ("hidden", "nothing")
    ]
    assert all("it needs CREATE" in each and "exists" not in each for each in said)


def test_an_export_counts_as_a_fetch_and_waits_for_its_quota(secured: tuple[Secured, RunningGateway]) -> None:
    root, gateway = secured
    root.allow(acl("User:dan", Operation.READ, ResourceType.TOPIC, "t"))
    head = bearer(root.key("User:dan"))
    path = "/console/topics/t/export?format=ndjson"
    wait_until(lambda: gateway.client.get("/console/topics", headers=head).is_success, "the key is known")
    root.cluster.metadata_log.change_access(
        lambda _: [quota_record("User:dan", Quota(consumer_byte_rate=1_000))]
    )

    def status() -> int:
        return gateway.client.get("/console/topics/t/messages", headers=head).status_code

    def is_counted() -> bool:
        with gateway.client.stream("GET", path, headers=head) as answer:
            next(answer.iter_raw())
        return status() == 429

    wait_until(is_counted, "the first piece of an export is paid for")
