"""Changes of a topic: what a dry run says is what the request then does."""

from html import unescape

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.kit.browser import visitor
from tests.kit.gateway import RunningGateway


def fact(page: Page, name: str) -> list[str]:
    """A line of a dry run: now, and then."""
    head = page.get_by_role("rowheader", name=name, exact=True)
    return page.get_by_role("row").filter(has=head).get_by_role("cell").all_inner_texts()


def test_a_setting_is_changed_and_reset(browser: Browser, gateway: RunningGateway) -> None:
    topic = gateway.create_topic("console-alter")
    with visitor(browser, gateway.url) as someone:
        page = someone.go(f"/console/topics/{topic}/settings")
        page.get_by_label("Setting", exact=True).select_option("retention.ms")
        page.get_by_label("Value", exact=True).fill("86400000")
        page.get_by_role("button", name="Show the change").click()
        assert fact(page, "retention.ms") == ["-1", "86400000"]
        page.get_by_role("button", name="Alter the setting").click()
        row = page.get_by_role("row", name="retention.ms").first
        expect(row).to_contain_text("86400000")
        row.get_by_role("link", name="Reset").click()
        assert fact(page, "retention.ms") == ["86400000", "-1"]
        page.get_by_role("button", name="Alter the setting").click()
        expect(page.locator("#retention\\.ms")).to_contain_text("default")
        page = someone.go(f"/console/topics/{topic}/alter?name=partitioner.hash&value=murmur2")
        assert fact(page, "partitioner.hash") == ["murmur3", "murmur2"]
        assert "another partition" in fact(page, "Records with a key")[1]


def test_settings_go_back_to_a_version_of_the_history(browser: Browser, gateway: RunningGateway) -> None:
    topic = gateway.create_topic("console-back", retention_ms="86400000")
    data = {"data": [{"name": "retention.ms", "value": "1000"}]}
    gateway.client.post(f"{gateway.cluster}/topics/{topic}/configs:alter", json=data).raise_for_status()
    with visitor(browser, gateway.url) as someone:
        page = someone.go(f"/console/topics/{topic}/settings")
        page.get_by_role("link", name="History, and the way back").click()
        expect(page.get_by_role("row", name="altered")).to_contain_text("86400000 to 1000")
        someone.check("topic-history")
        page.get_by_role("row", name="created").get_by_role("link", name="Go back").click()
        assert fact(page, "retention.ms") == ["1000", "86400000"]
        page.get_by_role("button", name="Go back to these settings").click()
        expect(page.locator("#retention\\.ms")).to_contain_text("86400000")
        someone.check_nothing_wrong()


def test_partitions_are_added_and_records_deleted(browser: Browser, gateway: RunningGateway) -> None:
    topic = gateway.create_topic("console-grow")
    gateway.produce(topic, *range(10))
    with visitor(browser, gateway.url) as someone:
        page = someone.go(f"/console/topics/{topic}/partitions")
        page.get_by_label("Number of partitions").fill("3")
        page.get_by_role("button", name="Show the change").nth(0).click()
        assert fact(page, "Partitions") == ["1", "3"]
        page.get_by_role("button", name="Add partitions").click()
        expect(page.get_by_role("link", name="2", exact=True)).to_be_visible()
        page.get_by_label("Delete records before offset").fill("4")
        page.get_by_role("button", name="Show the change").nth(1).click()
        assert fact(page, "Log start") == ["0", "4"]
        assert fact(page, "Offsets") == ["10", "6"]
        page.get_by_role("button", name="Delete the records").click()
        row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="0", exact=True))
        expect(row.get_by_role("cell").first).to_have_text("4")
        page.get_by_label("or as of the version of a table").fill("1")
        page.get_by_label("of the partition; without one, of all").fill("0")
        page.get_by_role("button", name="Show the change").nth(2).click()
        assert fact(page, "Log start of partition 0") == ["4", "0"]
        someone.check("topic-restore")
        page.get_by_role("button", name="Bring them back").click()
        expect(row.get_by_role("cell").first).to_have_text("0")
        someone.check_nothing_wrong()


def test_a_topic_is_deleted_after_it_was_said_what_that_takes(
    browser: Browser, gateway: RunningGateway
) -> None:
    topic = gateway.create_topic("console-delete")
    gateway.produce(topic, *range(10))
    offsets = [{"topic": topic, "partition": 0, "offset": 2}]
    gateway.client.put("/consumers/losers/offsets", json={"offsets": offsets}).raise_for_status()
    with visitor(browser, gateway.url) as someone:
        page = someone.go(f"/console/topics/{topic}/delete")
        assert fact(page, "Records") == ["10", "none"]
        someone.check("topic-delete")
        page.get_by_role("button", name=f"Delete {topic}").click()
        expect(page.get_by_role("heading", name="Topics")).to_be_visible()
    assert topic not in gateway.client.get("/topics").json()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("alter?name=retention.ms&value=soon", "use a whole number"),
        ("alter?name=colour&value=red", "there is no topic setting"),
        ("grow?count=1", "partitions can only be added"),
        ("grow?count=100000", "use 1 to 10000"),
        ("delete-records?partition=9&before=1", "has no partition 9"),
        ("delete-records?partition=0&before=11", "beyond the high watermark"),
        ("delete-records?partition=0&before=-1", "negative"),
        ("restore", "a version or a time"),
        ("restore?version=1", "name the partition"),
        ("restore?version=x&partition=0", "is no number"),
        ("restore?time=2001-01-01&partition=", "knows what was deleted since"),
        ("restore?time=2001-01-01&partition=9", "has no partition 9"),
    ],
)
def test_a_change_that_would_be_refused_has_no_button(
    gateway: RunningGateway, topic: str, change: str, said: str
) -> None:
    answer = gateway.client.get(f"/console/topics/{topic}/{change}")
    assert answer.status_code == 200
    assert said in unescape(answer.text)
    assert "data-send" not in answer.text


def test_a_change_that_changes_nothing_says_so(gateway: RunningGateway, topic: str) -> None:
    answer = gateway.client.get(f"/console/topics/{topic}/delete-records?partition=0&before=0")
    assert "It would change nothing." in answer.text
