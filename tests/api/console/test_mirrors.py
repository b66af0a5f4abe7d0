"""The pages of mirrors: how far copies are, why they have stopped, and what changes a mirror."""

from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape

import pytest
from playwright.sync_api import Browser, expect

from log_tables.cluster.admin.mirror_admin import resume, stop_copy
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.mirror_report import SourcePartition
from log_tables.store.store import open_store
from tests.kit.browser import visitor
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.mirrored import END, MIRROR, mirrored_topic
from tests.kit.reporting import Reporting
from tests.kit.support import wait_until

PAGE = f"/console/mirrors/{MIRROR}"
GONE = "the source has no such topic any more"


@dataclass
class World:
    """A gateway on a root with copies: `orders`, of two partitions, and `users`."""

    gateway: RunningGateway
    cluster: Cluster

    def text(self, path: str, **query: str) -> str:
        answer = self.gateway.client.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return unescape(answer.text)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running_gateway(tmp_path_factory.mktemp("mirrors"), linger_ms=0) as gateway:
        cluster = Cluster.open(open_store(gateway.data))
        mirrored_topic(cluster, "orders", partitions=2)
        mirrored_topic(cluster, "users")
        yield World(gateway, cluster)


def test_lags_and_processes_are_shown(browser: Browser, world: World) -> None:
    process = Reporting(world.cluster.store)
    topics = {"orders": [SourcePartition(0, 0, END + 1_234, 75.0), SourcePartition(1, 0, END)]}

    def lives() -> bool:
        process.report(topics)
        return bool(world.gateway.client.get(f"/mirrors/{MIRROR}").json()["processes"])

    with visitor(browser, world.gateway.url) as someone:
        page = someone.go(PAGE)
        expect(page.get_by_role("alert").first).to_contain_text("No process was seen to copy it")
        wait_until(lives, "the process is seen to live")
        page = someone.go("/console/mirrors")
        someone.check("mirrors")
        row = page.get_by_role("row", name=MIRROR)
        assert row.get_by_role("cell").all_inner_texts()[1:6] == ["active", "2", "1", "1,234", "1 min 15 s"]
        process.report(topics)
        row.get_by_role("link").click()
        expect(page.get_by_role("heading", level=1)).to_have_text(MIRROR)
        first = page.get_by_role("row", name="orders").first.get_by_role("cell").all_inner_texts()
        assert first[:7] == ["0", "0", "20", "0", "1,254", "1,234", "1 min 15 s"]
        last = page.get_by_role("row", name="users").get_by_role("cell").all_inner_texts()
        assert last[2:7] == ["20", "–", "–", "–", "–"]
        someone.check("mirror")


def test_a_mirror_is_paused_and_goes_on(browser: Browser, world: World) -> None:
    stop_copy(world.cluster, MIRROR, "users", GONE)
    with visitor(browser, world.gateway.url) as someone:
        page = someone.go(PAGE)
        expect(page.get_by_role("alert").first).to_have_text(f"users has stopped: {GONE}")
        page.locator("form", has=page.get_by_role("heading", name="Pause")).get_by_role("button").click()
        assert page.get_by_role("row", name="The mirror").get_by_role("cell").all_inner_texts() == [
            "active",
            "paused: it copies nothing",
        ]
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_role("heading", level=1)).to_have_text(f"{MIRROR} paused")
        page.locator("form", has=page.get_by_role("heading", name="Resume")).get_by_role("button").click()
        stopped = page.get_by_role("row", name="users").get_by_role("cell").all_inner_texts()
        assert stopped == [f"stopped: {GONE}", "active"]
        someone.check("mirror-resume")
        page.get_by_role("button", name="Resume").click()
        expect(page.get_by_role("heading", level=1)).to_have_text(MIRROR)
    found = world.gateway.client.get(f"/mirrors/{MIRROR}").json()
    assert {each["state"] for each in found["partitions"]} == {"active"}


def test_a_copy_is_promoted(browser: Browser, world: World) -> None:
    mirrored_topic(world.cluster, "moved")
    with visitor(browser, world.gateway.url) as someone:
        page = someone.go("/console/topics/moved/partitions")
        expect(page.get_by_text("A copy, which the mirror")).to_be_visible()
        page.get_by_role("link", name=MIRROR).click()
        form = page.locator("form", has=page.get_by_role("heading", name="Promote"))
        form.get_by_label("Topic, or all without one").fill("moved")
        form.get_by_label("Now, without the source's end").check()
        form.get_by_role("button").click()
        expect(page.get_by_role("heading", level=1)).to_have_text(f"Promote moved of the mirror {MIRROR}")
        someone.check("mirror-promote")
        page.get_by_role("button", name="Promote").click()
        expect(page.get_by_role("heading", level=1)).to_have_text(MIRROR)
    assert world.gateway.produce("moved", "x", partition=0).json()["offsets"][0]["offset"] == END
    assert "A copy" not in world.text("/console/topics/moved/partitions")
    assert "A copy" in world.text("/console/topics/orders/partitions")
    assert f'href="{PAGE}">copy</a>' in world.text("/console/topics")


@pytest.mark.parametrize(
    ("action", "query", "said"),
    [
        ("promote", {"topic": "order"}, "makes no topic 'order'"),
        ("promote", {"topic": "users"}, GONE),
        ("delete", {}, "run `lakelog mirror promote"),
    ],
)
def test_what_cannot_be_has_no_button(world: World, action: str, query: dict[str, str], said: str) -> None:
    stop_copy(world.cluster, MIRROR, "users", GONE)
    text = world.text(f"{PAGE}/{action}", **query)
    assert "It would be refused: " in text
    assert said in text
    assert "data-send" not in text
    resume(world.cluster, MIRROR)


def test_a_new_mirror_needs_a_source_that_answers(browser: Browser, world: World) -> None:
    with visitor(browser, world.gateway.url) as someone:
        page = someone.go("/console/new-mirror")
        someone.check("mirror-new")
        page.get_by_label("Name").fill("shop")
        page.get_by_label("Brokers of the source").fill("127.0.0.1:1")
        page.get_by_label("Topics, one on each line").fill("orders\n^shop-.*")
        page.get_by_role("button", name="Show the change").click()
        expect(page.get_by_role("alert")).to_contain_text("127.0.0.1:1")
    new = {"name": MIRROR, "source": "127.0.0.1:1", "topics": "t"}
    assert f"there is a mirror {MIRROR} already" in world.text("/console/new-mirror", **new)


def test_there_is_no_such_mirror(world: World) -> None:
    assert world.gateway.client.get("/console/mirrors/none").status_code == 404
