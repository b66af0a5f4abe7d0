"""Groups, where each is, and where it goes on."""

from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from api.console.pages.groups import kind_of
from api.console.pages.offset_reset import LogEnds, target
from coordinator.groups.state.group import Group
from log_tables.errors import InvalidArgument
from tests.kit.browser import Visitor
from tests.kit.gateway import RunningGateway


def commit(gateway: RunningGateway, group: str, topic: str, *offsets: int) -> None:
    named = [{"topic": topic, "partition": p, "offset": offset} for p, offset in enumerate(offsets)]
    answer = gateway.client.put(f"/consumers/{group}/offsets", json={"offsets": named})
    assert answer.status_code == 204, answer.text


def test_lists_and_pages_show_the_lag(someone: Visitor, gateway: RunningGateway, topic: str) -> None:
    gateway.produce(topic, *range(40), partition=0)
    gateway.produce(topic, *range(5), partition=1)
    commit(gateway, "behind", topic, 10, 5)
    page = someone.go("/console/groups?search=behind")
    row = page.get_by_role("row", name="behind")
    expect(row).to_contain_text("30")
    someone.check("groups")
    page.get_by_role("link", name="behind").click()
    expect(page.get_by_role("row", name=f"{topic}-0")).to_contain_text("30")
    someone.check("group")
    page = someone.go(f"/console/topics?search={topic}")
    expect(page.get_by_role("row", name=topic)).to_contain_text("behind 30")


def test_offsets_are_set_after_a_dry_run(someone: Visitor, gateway: RunningGateway, topic: str) -> None:
    gateway.produce(topic, *range(40), partition=0)
    gateway.produce(topic, *range(5), partition=1)
    commit(gateway, "moved", topic, 10, 5)
    page = someone.go("/console/groups/moved/reset")
    someone.check("offset-reset")
    page.get_by_label("some records after").check()
    page.get_by_label("The time, the offset").fill("-4")
    page.get_by_role("button", name="Show the change").click()
    expect(page.get_by_role("row", name=f"{topic}-0")).to_contain_text("6 (-4), 34 to read")
    assert offsets(gateway, "moved") == {0: 10, 1: 5}
    someone.check("offset-reset-dry-run")
    page.get_by_role("button", name="Set the offsets").click()
    page.wait_for_url("**/console/groups/moved")
    assert offsets(gateway, "moved") == {0: 6, 1: 1}


def test_a_group_is_deleted_after_a_dry_run(someone: Visitor, gateway: RunningGateway, topic: str) -> None:
    commit(gateway, "gone", topic, 0)
    page = someone.go("/console/groups/gone/delete")
    expect(page.get_by_text("until an undo brings its offsets back")).to_be_visible()
    page.get_by_role("button", name="Delete the group").click()
    page.wait_for_url("**/console/groups")
    assert gateway.client.get("/consumers/gone/offsets").status_code == 404
    page.get_by_role("row", name="gone").get_by_role("link", name="Bring back its offsets").click()
    expect(page.get_by_role("row", name=f"{topic}-0")).to_contain_text("nothing committed")
    someone.check("group-undo")
    page.get_by_role("button", name="Undo it").click()
    page.wait_for_url("**/console/groups/gone")
    assert offsets(gateway, "gone") == {0: 0}
    someone.check_nothing_wrong()


def test_a_refusal_is_said_on_the_page(someone: Visitor, gateway: RunningGateway, topic: str) -> None:
    commit(gateway, "twice", topic, 0)
    page = someone.go("/console/groups/twice/delete")
    assert gateway.client.delete("/consumers/twice").status_code == 204
    page.get_by_role("button", name="Delete the group").click()
    expect(page.get_by_role("alert")).to_contain_text("twice")
    someone.check_nothing_wrong()


@pytest.mark.parametrize("name", ["<script>alert(1)", "'\"><img src=x onerror=alert(1)>", "{{7*7}}"])
def test_a_hostile_name_is_text(someone: Visitor, gateway: RunningGateway, topic: str, name: str) -> None:
    answer = gateway.client.put(
        f"/consumers/{quote(name)}/offsets",
        json={"offsets": [{"topic": topic, "partition": 0, "offset": 0}]},
    )
    assert answer.status_code == 204, answer.text
    page = someone.go(f"/console/groups?search={quote(name)}")
    expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()
    someone.check_nothing_wrong()


def test_all_can_be_read_without_scripts(gateway: RunningGateway, topic: str) -> None:
    commit(gateway, "plain", topic, 0)
    for path in ("", "/plain", "/plain/reset", "/plain/reset?to=latest", "/plain/delete"):
        assert gateway.client.get(f"/console/groups{path}").status_code == 200


@pytest.mark.parametrize(
    "query",
    [
        "to=offset&value=x",
        "to=time&value=tomorrow",
        "to=latest&topic=nothing",
        "to=latest&topic=TOPIC&partitions=2",
        "to=shift&value=1e3",
    ],
)
def test_a_wrong_form_says_what_is_wrong(gateway: RunningGateway, topic: str, query: str) -> None:
    commit(gateway, "wrong", topic, 0)
    answer = gateway.client.get(f"/console/groups/wrong/reset?{query.replace('TOPIC', topic)}")
    assert answer.status_code in (400, 404)
    assert 'role="alert"' in answer.text


def test_partitions_are_named_by_ranges_too(gateway: RunningGateway, topic: str) -> None:
    commit(gateway, "ranges", topic, 0)
    page = gateway.client.get(f"/console/groups/ranges/reset?to=latest&topic={topic}&partitions=0-1")
    assert page.status_code == 200
    assert f"{topic}-0, which holds" in page.text
    assert f"{topic}-1, which holds" in page.text


HELD = LogEnds(5, 20, 12)


@pytest.mark.parametrize(
    ("to", "value", "committed", "offset"),
    [
        ("earliest", "", 7, 5),
        ("latest", "", None, 20),
        ("offset", "9", 7, 9),
        ("offset", "0", 7, 5),
        ("offset", "99", 7, 20),
        ("time", "", 7, 12),
        ("shift", "-1", 7, 6),
        ("shift", "+3", 7, 10),
        ("shift", "-100", 7, 5),
        ("shift", "1", None, None),
    ],
)
def test_where_a_group_would_go_on(to: str, value: str, committed: int | None, offset: int | None) -> None:
    assert target(HELD, to, value, committed) == offset


def test_a_time_after_all_records_is_the_end() -> None:
    assert target(LogEnds(5, 20, None), "time", "", 7) == 20


def test_a_number_has_digits() -> None:
    with pytest.raises(InvalidArgument, match="whole number"):
        target(HELD, "offset", "ten", 7)


def offsets(gateway: RunningGateway, group: str) -> dict[int, int]:
    found = gateway.client.get(f"/consumers/{group}/offsets").json()["offsets"]
    return {each["partition"]: each["offset"] for each in found}


def test_a_group_that_has_nothing_is_of_transactions() -> None:
    assert kind_of(Group("g")) == "transactions"
