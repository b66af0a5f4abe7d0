"""The list of topics."""

from playwright.sync_api import expect

from tests.kit.browser import Visitor
from tests.kit.gateway import RunningGateway


def test_it_shows_what_is_in_each_topic(someone: Visitor, gateway: RunningGateway, topic: str) -> None:
    gateway.produce(topic, *range(500))
    page = someone.go(f"/console/topics?search={topic}")
    cells = page.get_by_role("row", name=topic).get_by_role("cell")
    expect(cells.nth(0)).to_have_text("2")
    expect(cells.nth(1)).to_have_text("500")
    someone.check("topics")


def test_orders_and_pages_that_are_not_there_are_refused(gateway: RunningGateway) -> None:
    for query in ("order=size", "page=0", "page=x", "pages=1", "page=1&page=2"):
        assert gateway.client.get(f"/console/topics?{query}").status_code == 400, query
    assert gateway.client.get("/console/topics?page=999999").status_code == 200
