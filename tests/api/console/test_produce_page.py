"""The form of a record: what it says is what is then in the log."""

from base64 import b64encode
from html import unescape
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.kit.browser import visitor
from tests.kit.gateway import RunningGateway


def stored(gateway: RunningGateway, topic: str, partition: int = 0) -> list[dict[str, Any]]:
    """The records, with keys and values in base64."""
    path = f"/topics/{topic}/partitions/{partition}/records"
    found: list[dict[str, Any]] = gateway.client.get(
        path, headers={"Accept": "application/vnd.kafka.binary.v2+json"}
    ).json()
    return found


def coded(text: str) -> str:
    return b64encode(text.encode()).decode()


def test_a_record_is_produced_as_its_form_says(browser: Browser, gateway: RunningGateway) -> None:
    topic = gateway.create_topic("console-produce", partitions=2)
    with visitor(browser, gateway.url) as someone:
        page = someone.go(f"/console/topics/{topic}/produce")
        someone.check("topic-produce")
        page.get_by_role("textbox", name="Key").fill('"k"')
        page.get_by_role("textbox", name="Value").fill('{"a": 1.10, "b": "<&\'\\""}')
        page.get_by_label("Headers").fill("source=form\nempty=")
        page.get_by_label("Partition").fill("1")
        page.get_by_label("Time").fill("2026-01-31T05:00:00Z")
        page.get_by_role("button", name="Show the change").click()
        expect(page.get_by_role("row", name="Partition").first).to_contain_text("1, which it names")
        expect(page.get_by_role("row", name="Value")).to_contain_text('{"a": 1.10, "b": "<&\'\\""} 25 B')
        expect(page.get_by_role("row", name="Header source")).to_contain_text("form")
        someone.check("topic-produce-change")
        assert stored(gateway, topic, 1) == []
        page.get_by_role("link", name="Cancel").click()
        expect(page.get_by_role("textbox", name="Value")).to_have_value('{"a": 1.10, "b": "<&\'\\""}')
        page.get_by_role("button", name="Show the change").click()
        page.get_by_role("button", name="Produce the record, and another one").click()
        expect(page.get_by_role("status")).to_contain_text("The record is in the log")
        expect(page.get_by_label("Partition")).to_have_value("1")
        page.get_by_role("textbox", name="Value").fill("2")
        page.get_by_role("button", name="Show the change").click()
        page.get_by_role("button", name="Produce the record", exact=True).click()
        expect(page.locator("#rows tr")).to_have_count(2)
    record, other = stored(gateway, topic, 1)
    assert other["value"] == coded("2")
    assert record["key"] == coded('"k"')
    assert record["value"] == coded('{"a": 1.10, "b": "<&\'\\""}')
    assert record["timestamp"] == 1_769_835_600_000
    assert record["headers"] == [{"key": "source", "value": coded("form")}, {"key": "empty", "value": ""}]


def test_text_bytes_and_tombstones_are_produced_by_the_request_that_is_shown(gateway: RunningGateway) -> None:
    topic = gateway.create_topic("console-produce-kinds")
    forms = [
        ({"format": "text", "key": "k", "value": "null"}, (coded("k"), coded("null"))),
        ({"format": "text", "value": ""}, (None, "")),
        ({"format": "binary", "key": "/w==", "value": "AAE="}, ("/w==", "AAE=")),
        ({"format": "json", "key": "1", "value": "x", "tombstone": "true"}, (coded("1"), None)),
    ]
    for form, _ in forms:
        page = gateway.client.get(f"/console/topics/{topic}/produce", params=form).text
        body, kind = (unescape(page.split(f'data-{name}="')[1].split('"')[0]) for name in ("body", "type"))
        answer = gateway.client.post(f"/topics/{topic}", content=body, headers={"Content-Type": kind})
        assert answer.is_success, answer.text
    assert [(each["key"], each["value"]) for each in stored(gateway, topic)] == [row for _, row in forms]


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"value": "text"}, "the value is not JSON"),
        ({"value": "1", "key": "k"}, "the key is not JSON"),
        ({"value": "!", "format": "binary"}, "a record does not fit"),
        ({"value": "1", "partition": "7"}, "7"),
        ({"value": "1", "partition": "-1"}, "-1"),
        ({"value": "1", "headers": "x"}, "write name=value"),
        ({"value": "1", "timestamp": "soon"}, "ISO-8601"),
        ({"value": "[" * 600 + "]" * 600}, "more than 500 arrays"),
    ],
)
def test_a_record_that_would_be_refused_has_no_button(
    gateway: RunningGateway, topic: str, form: dict[str, str], said: str
) -> None:
    answer = gateway.client.get(f"/console/topics/{topic}/produce", params=form)
    assert answer.status_code == 200
    assert said in unescape(answer.text)
    assert "data-send" not in answer.text
