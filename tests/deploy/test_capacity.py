"""The figures of docs/capacity.md: those that are measured are in docs/benchmarks.md, the others follow from
them by the rules that the page states.
"""

import math
import re

import pytest

from ingest.commit_budget import GATHER_MAX_S, REQUESTS_PER_COMMIT
from ingest.settings import Settings
from tests.kit.support import ROOT

PAGE = (ROOT / "docs" / "capacity.md").read_text()
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text()

KEYED = 95_054
RECORD_BYTES = 100
REQUEST_RECORDS = 500
GATHERED_COMMITS_PER_S = 1 / GATHER_MAX_S
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
    mb, gateways = rate * RECORD_BYTES / 1e6, math.ceil(rate / (KEYED / 2)) + 1
    leaders = min(gateways, partitions)
    asked = REQUESTS_PER_COMMIT * rate / REQUEST_RECORDS * partitions
    gathered = REQUESTS_PER_COMMIT * GATHERED_COMMITS_PER_S * partitions / leaders
    puts = min(asked, leaders * max(Settings().commits_requests_per_second_max, gathered))
    stored_gb = mb * DAY_S * STORED_DAYS / 1_000
    assert row[1:] == [
        f"{mb:g}",
        str(gateways),
        row[3],
        f"{puts:g}",
        f"{puts / REQUESTS_PER_COMMIT * DAY_S:,.0f}",
        number(mb * REWRITES / MERGED_MB_PER_S),
        f"{puts * DAY_S * MONTH_DAYS / 1_000 * USD_A_1000_PUTS:,.0f}",
        f"{stored_gb * USD_A_GB_MONTH:,.0f}",
    ]


def test_the_tables_are_read() -> None:
    assert len(rows(2)) > 5
    assert len(rows(9)) > 3
    assert re.search(f"{KEYED:,}", PAGE)


def test_what_fewer_commits_save_is_right() -> None:
    puts = REQUESTS_PER_COMMIT * 4 * int(rows(9)[-1][3])
    usd = puts * DAY_S * MONTH_DAYS / 1_000 * USD_A_1000_PUTS
    assert f"{puts} puts then, and {usd:,.0f} USD" in " ".join(PAGE.split())
