"""The figures of docs/capacity.md: those that are measured are in docs/benchmarks.md, the others follow from
them by the rules that the page states.
"""

import math
import re

import pytest

from ingest.commit_budget import REQUESTS_PER_COMMIT
from tests.kit.support import ROOT

PAGE = (ROOT / "docs" / "capacity.md").read_text()
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text()

KEYED = 95_054
RECORD_BYTES = 100
COMMITS_PER_S = 4
REWRITES, MERGED_MB_PER_S = 7, 30
DAY_S, MONTH_DAYS, STORED_DAYS = 86_400, 30, 7
USD_A_1000_PUTS, USD_A_GB_MONTH = 0.005, 0.023


def rows(columns: int) -> list[list[str]]:
    """The rows of the table with so many columns, without its two heads."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and line.count("|") == columns + 1]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("row", rows(2), ids=lambda row: row[0])
def test_a_rate_was_measured(row: list[str]) -> None:
    thousands = f"{int(row[1].replace(',', '')) // 1_000},000"
    assert row[1] in BENCHMARKS or thousands in BENCHMARKS


def number(value: float) -> str:
    return f"{value:.2f}" if value < 0.1 else f"{value:.1f}"


@pytest.mark.parametrize("row", rows(9), ids=lambda row: row[0])
def test_what_a_load_takes_follows_from_the_rules(row: list[str]) -> None:
    rate, partitions = int(row[0].replace(",", "")), int(row[3])
    mb = rate * RECORD_BYTES / 1e6
    puts = REQUESTS_PER_COMMIT * COMMITS_PER_S * partitions
    stored_gb = mb * DAY_S * STORED_DAYS / 1_000
    assert row[1:] == [
        f"{mb:g}",
        str(math.ceil(rate / (KEYED / 2)) + 1),
        row[3],
        str(puts),
        f"{COMMITS_PER_S * partitions * DAY_S:,}",
        number(mb * REWRITES / MERGED_MB_PER_S),
        f"{puts * DAY_S * MONTH_DAYS / 1_000 * USD_A_1000_PUTS:,.0f}",
        f"{stored_gb * USD_A_GB_MONTH:,.0f}",
    ]


def test_the_tables_are_read() -> None:
    assert len(rows(2)) > 5
    assert len(rows(9)) > 3
    assert re.search(f"{KEYED:,}", PAGE)
