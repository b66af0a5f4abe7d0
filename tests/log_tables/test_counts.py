"""Counts with their nouns."""

import re
from pathlib import Path

import pytest

from log_tables.counts import counted

ROOT = Path(__file__).resolve().parents[2]
NOUNS = "partition|record|topic|file|segment|row|gateway|member|group|event|problem|column|run"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 records"), (1, "1 record"), (2, "2 records"), (1_000, "1,000 records")]
)
def test_one_has_no_s(count: int, text: str) -> None:
    assert counted(count, "record") == text


def test_no_page_of_the_console_puts_a_plural_after_any_number() -> None:
    pattern = re.compile(rf"\| number \}}\}} ({NOUNS})s\b|\| number\b[^}}]*, \"({NOUNS})s\"")
    pages = [*(ROOT / "api/console/templates").glob("*.html")]
    assert pages
    assert [(page.name, found[0]) for page in pages for found in pattern.finditer(page.read_text())] == []
