"""Pages share colours, narrow tables, charts, help and numbers."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from api.console.page import curve, grouped, rounded
from api.console.pages.help_page import DOCS
from tests.kit.browser import NARROW, Visitor, visitor
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.support import ROOT

_VALUE = re.compile(r"\d\d:\d\d:\d\d.*\d", re.DOTALL)
"""A time of day, and a value."""


def test_a_switch_changes_the_colours_and_is_remembered(someone: Visitor, gateway: RunningGateway) -> None:
    gateway.create_topic("colours")

    def ground() -> str:
        found: str = someone.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return found

    page = someone.go("/console")
    page.emulate_media(color_scheme="light")
    light = ground()
    page.get_by_role("button", name="other colours").click()
    dark = ground()
    assert light != dark
    someone.go("/console/topics")
    assert ground() == dark
    page.get_by_role("button", name="other colours").click()
    assert ground() == light
    page.emulate_media(color_scheme="dark")
    assert ground() == dark, "the choice that the system had is the system's again"
    someone.check_nothing_wrong()


def test_rows_of_a_narrow_table_name_their_columns_and_stay_a_table(
    someone: Visitor, gateway: RunningGateway
) -> None:
    gateway.create_topic("narrow", partitions=3)
    page = someone.go("/console/topics?search=narrow")
    page.set_viewport_size({"width": NARROW, "height": 900})
    row = page.get_by_role("row", name="narrow")
    expect(row.get_by_role("cell").first).to_have_attribute("data-label", "Partitions")
    box = row.bounding_box()
    assert box is not None
    assert box["width"] <= NARROW
    for link in page.get_by_role("navigation", name="Sections").get_by_role("link").all():
        place = link.bounding_box()
        assert place is not None
        assert 0 <= place["x"] <= place["x"] + place["width"] <= NARROW, link.inner_text()
    page.get_by_role("columnheader").get_by_role("link", name="Last append").click()
    assert "order=newest" in page.url
    someone.check("topics-narrow")


def test_a_curve_tells_its_values_by_pointer_and_by_keys(someone: Visitor) -> None:
    page = someone.go("/console")
    slider = page.get_by_role("slider", name="Records in, per second")
    slider.wait_for()  # after two samples
    slider.press("End")
    expect(slider).to_have_attribute("aria-valuetext", _VALUE)
    last = slider.get_attribute("aria-valuetext")
    slider.press("ArrowLeft")
    expect(slider).not_to_have_attribute("aria-valuetext", last or "")
    page.get_by_role("heading", level=1).click()
    slider.locator(".u-over").hover()
    expect(slider.locator(".u-legend")).to_contain_text(_VALUE)
    someone.check("overview-curve")


def test_a_curve_without_scripts_says_most_and_newest() -> None:
    drawn = curve([(1_000, 5.0), (2_000, 2_048.0)], "Bytes", "size")
    assert "2.0 KiB at most" in drawn
    assert "2.0 KiB now" in drawn
    assert 'data-points="[[1000,5.0],[2000,2048.0]]"' in drawn
    assert "Nothing to draw" in curve([(1, 1.0)], "Bytes", "size")


def test_help_names_the_documentation_of_the_sources(someone: Visitor) -> None:
    page = someone.go("/console")
    page.get_by_role("link", name="Help", exact=True).click()
    expect(page.get_by_text("knows no address of the documentation")).to_be_visible()
    for each in DOCS:
        expect(page.get_by_text(f"{each.name}.md", exact=True)).to_be_visible()
        assert (ROOT / f"{each.name}.md").is_file()
    someone.check("help")


def test_help_and_each_foot_link_to_the_site_that_is_named(browser: Browser, tmp_path: Path) -> None:
    site = "http://docs.example/lakelog"
    with (
        running_gateway(tmp_path / "data", docs_url=f"{site}/") as gateway,
        visitor(browser, gateway.url) as someone,
    ):
        page = someone.go("/console/sql")
        link = page.get_by_role("link", name="Documentation")
        expect(link).to_have_attribute("href", f"{site}/docs/console/#sql")
        someone.go("/console/help")
        expect(page.get_by_role("link", name="kafka")).to_have_attribute("href", f"{site}/docs/kafka/")
        someone.check_nothing_wrong()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("999", []),
        ("1000", ["1", "000"]),
        ("-1234567.5", ["-1", "234", "567.5"]),
        ("123456", ["123", "456"]),
        ("1e9", []),
        ("<b>", []),
    ],
)
def test_digits_are_in_groups_of_three(text: str, parts: list[str]) -> None:
    assert grouped(text).count("<span") == len(parts)
    assert grouped(text).striptags() == text or "<" in text
    for part in parts:
        assert f">{part}<" in grouped(text)
    assert "<b>" not in grouped(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("0.3333333333", "0.333333"), ("2.00000000001", "2"), ("0.0000012345", "0.0000012345"), ("1.5", "1.5")],
)
def test_many_decimals_are_six(text: str, shown: str) -> None:
    assert rounded(text) == shown
