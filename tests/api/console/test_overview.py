"""The first page: gateways, the last hour, and what is wrong."""

from pathlib import Path

from playwright.sync_api import Browser, expect

from api.console.gateways import summed
from api.samples import Sample
from tests.kit.browser import Visitor, visitor
from tests.kit.gateway import RunningGateway, running_gateway, two_gateways
from tests.kit.support import wait_until


def sample(at_ms: int, produced: float = 1.0, p99: float = 5.0) -> Sample:
    return Sample(at_ms, produced, 0.0, 0.0, 0.0, 1.0, 1.0, p99, 0.0, 10)


def test_it_shows_the_gateway_and_what_goes_through(someone: Visitor, gateway: RunningGateway) -> None:
    gateway.create_topic("through", partitions=2)
    gateway.produce("through", *range(100))
    page = someone.go("/console")
    expect(page.get_by_text("this one")).to_be_visible()
    someone.check("overview")


def test_a_browser_at_the_root_is_led_to_it(gateway: RunningGateway) -> None:
    page = gateway.client.get("/", headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert (page.status_code, page.headers["location"]) == (303, "/console")
    assert gateway.client.get("/").json()["name"] == "lakelog"
    assert gateway.client.get("/", headers={"Accept": "application/json"}).json()["name"] == "lakelog"


def test_it_shows_what_other_gateways_say_and_which_is_silent(browser: Browser, tmp_path: Path) -> None:
    with (
        two_gateways(tmp_path / "data", leader_timeout_ms=500) as (first, second),
        visitor(browser, first.url) as someone,
    ):
        wait_until(lambda: len(first.client.get("/brokers").json()["brokers"]) == 2, "they know each other")
        page = someone.go("/console")
        expect(page.get_by_text("living")).to_be_visible()
        expect(page.get_by_text("it does not say")).to_have_count(0, timeout=60_000)
        second.kill()
        # The page looks again by itself.
        expect(page.get_by_text("gives no sign of life")).to_be_visible(timeout=60_000)
        someone.check("overview-silent")


def test_samples_of_gateways_are_added_and_times_are_the_worst() -> None:
    one = [sample(10_000), sample(15_000), sample(20_000)]
    other = [sample(11_000, 2.0, 9.0), sample(16_000, 3.0, 1.0)]
    found = summed([one, other])
    assert [(each.at_ms, each.produced, each.commit_p99_ms) for each in found] == [
        (10_000, 3.0, 9.0),
        (15_000, 4.0, 5.0),
    ]


def test_a_root_that_is_away_is_said_and_takes_no_page_away(tmp_path: Path) -> None:
    root = tmp_path / "data"
    with running_gateway(root) as gateway:
        assert "cannot be looked at" not in gateway.client.get("/console").text
        root.rename(tmp_path / "away")
        answer = gateway.client.get("/console")
        (tmp_path / "away").rename(root)
    assert answer.status_code == 200
    assert "The directory of the root cannot be looked at" in answer.text
    assert str(root) not in answer.text
