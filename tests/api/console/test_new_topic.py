"""The form of a new topic."""

from html import unescape

import pytest
from playwright.sync_api import Browser, expect

from tests.kit.browser import visitor
from tests.kit.gateway import RunningGateway


def test_a_topic_is_created_as_its_form_says(browser: Browser, gateway: RunningGateway) -> None:
    with visitor(browser, gateway.url) as someone:
        page = someone.go("/console/new-topic")
        someone.check("topic-new")
        page.get_by_label("Name").fill("console-new")
        page.get_by_label("Partitions").fill("3")
        page.get_by_label("Settings, one on each line").fill("cleanup.policy = compact\n\nretention.ms=1000")
        page.get_by_role("button", name="Show the change").click()
        row = page.get_by_role("row", name="cleanup.policy")
        assert row.get_by_role("cell").all_inner_texts() == ["delete", "compact"]
        assert "console-new" not in gateway.client.get("/topics").json()
        page.get_by_role("button", name="Create the topic").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("console-new compacted")
    made = gateway.client.get("/topics/console-new").json()
    assert len(made["partitions"]) == 3
    assert (made["configs"]["cleanup.policy"], made["configs"]["retention.ms"]) == ("compact", "1000")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"name": "a b"}, "use letters, digits"),
        ({"name": "__lakelog_mine"}, "internal to lakelog"),
        ({"name": "x" * 300}, "use 1 to 249"),
        ({"name": "a", "partitions": "0"}, "use 1 to 10000"),
        ({"name": "a", "settings": "colour=red"}, "there is no topic setting"),
        ({"name": "a", "settings": "retention.ms"}, "write name=value"),
        ({"name": "<script>"}, "use letters, digits"),
    ],
)
def test_a_topic_that_cannot_be_has_no_button(
    gateway: RunningGateway, query: dict[str, str], said: str
) -> None:
    answer = gateway.client.get("/console/new-topic", params=query)
    assert said in unescape(answer.text)
    assert "data-send" not in answer.text
    assert "<script>" not in answer.text


def test_a_name_that_is_taken_is_refused(gateway: RunningGateway, topic: str) -> None:
    answer = gateway.client.get("/console/new-topic", params={"name": topic})
    assert "exists already" in answer.text
