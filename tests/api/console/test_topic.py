"""The pages of a topic: partitions, groups, columns, settings."""

import pytest
from playwright.sync_api import Browser, expect

from tests.kit.browser import visitor
from tests.kit.gateway import RunningGateway

OFFSETS = {"Content-Type": "application/vnd.kafka.v2+json"}


@pytest.fixture(scope="module")
def orders(gateway: RunningGateway) -> str:
    """A topic with records, a group that has read some, and settings of its own."""
    topic = gateway.create_topic(
        "console-orders",
        partitions=2,
        cleanup_policy="compact",
        value_columns="total double, at timestamp FROM '/placed/at'",
    )
    for partition in (0, 1):
        assert gateway.produce(topic, *range(30), partition=partition).is_success
    offsets = [{"topic": topic, "partition": 0, "offset": 12}]
    for group in ("billing <b>", "audit"):
        answer = gateway.client.put(f"/consumers/{group}/offsets", json={"offsets": offsets}, headers=OFFSETS)
        assert answer.is_success, answer.text
    return topic


def test_its_head_and_partitions_are_shown_without_scripts(
    browser: Browser, gateway: RunningGateway, orders: str
) -> None:
    with visitor(browser, gateway.url, scripts=False) as someone:
        page = someone.go(f"/console/topics/{orders}/partitions")
        expect(page.get_by_role("heading", level=1)).to_contain_text(orders)
        expect(page.locator(".tile").first).to_contain_text("60")
        row = page.get_by_role("row", name="1", exact=False).last
        expect(row.get_by_role("link")).to_have_attribute("href", f"/console/topics/{orders}/partitions/1")
        expect(row.get_by_role("cell").nth(1)).to_have_text("30")
        expect(page.get_by_text(f"topics/{orders}", exact=False).first).to_be_visible()


def test_it_opens_on_its_messages(browser: Browser, gateway: RunningGateway, orders: str) -> None:
    with visitor(browser, gateway.url, scripts=False) as someone:
        page = someone.go("/console/topics")
        page.get_by_role("link", name=orders).click()
        expect(page.get_by_role("link", name="Messages", exact=True)).to_have_attribute(
            "aria-current", "page"
        )
        expect(page.locator("#rows tr")).to_have_count(50)


def test_groups_are_listed_with_their_lag(browser: Browser, gateway: RunningGateway, orders: str) -> None:
    with visitor(browser, gateway.url) as someone:
        page = someone.go(f"/console/topics/{orders}/groups")
        row = page.get_by_role("row", name="billing <b>")
        expect(row.get_by_role("cell").nth(0)).to_have_text("18")
        expect(row.get_by_role("link")).to_have_attribute("href", "/console/groups/billing%20%3Cb%3E")
        someone.check("topic-groups")


def test_declared_columns_are_listed_also_former_ones(
    browser: Browser, gateway: RunningGateway, orders: str
) -> None:
    gateway.alter_topic(orders, value_columns="total double")
    with visitor(browser, gateway.url) as someone:
        page = someone.go(f"/console/topics/{orders}/columns")
        expect(page.get_by_role("table", name="Declared columns")).to_contain_text("total")
        former = page.get_by_role("table", name="Columns that are no longer declared")
        expect(former).to_contain_text("/placed/at")
        someone.check("topic-columns")
        page = someone.go(f"/console/topics/{gateway.create_topic('console-plain')}/columns")
        expect(page.get_by_text("declares no columns")).to_be_visible()


def test_settings_say_whether_they_are_the_topics_own(
    browser: Browser, gateway: RunningGateway, orders: str
) -> None:
    with visitor(browser, gateway.url) as someone:
        page = someone.go(f"/console/topics/{orders}/settings")
        own = page.get_by_role("row", name="cleanup.policy")
        expect(own).to_contain_text("compact")
        expect(own).to_contain_text("topic")
        expect(page.get_by_role("row", name="compression.type")).to_contain_text("default")
        someone.check("topic-settings")


def test_a_topic_that_is_not_there_is_a_page_that_says_so(gateway: RunningGateway) -> None:
    for name, status in (("no-such-topic", 404), ("__consumer_offsets", 400), ("a%20b", 404)):
        answer = gateway.client.get(f"/console/topics/{name}/partitions")
        assert (answer.status_code, 'role="alert"' in answer.text) == (status, True)
        assert ("Create no-such-topic" in answer.text) == (name == "no-such-topic")


def test_a_topic_may_be_called_new(gateway: RunningGateway) -> None:
    gateway.create_topic("new", partitions=3)
    assert "High watermark" in gateway.client.get("/console/topics/new/partitions").text
    assert gateway.client.get("/console/topics/new").headers["location"] == "/console/topics/new/messages"
    assert gateway.client.delete("/topics/new").is_success
