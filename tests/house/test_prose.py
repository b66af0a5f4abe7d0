"""scripts/prose.py and scripts/wrap.py: faults of pages and docstrings are found, and nothing else."""

from pathlib import Path

import pytest

from scripts.prose import page_faults, source_faults
from scripts.wrap import WIDTH, wrapped

NO_FOLDER = "lakelog"
NO_FILE = f"{NO_FOLDER}/run.py"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("word or " * 30 + "one.", "is not wrapped at one width: run `make format`"),
        ("One.\n\n\nTwo.", "has two blank lines, which an edit has left"),
        (
            f"{'word or ' * 6}and\nmore words of an edit that\ncome after.",
            "is not wrapped at one width: run `make format`",
        ),
        ("```sh\nls\n", "has a block of code that does not end"),
        ("Read on. TODO: more.", "has the mark 'TODO'"),
        ("One.\n\n<<<<<<< HEAD\n\nTwo.", "has the mark '<<<<<<<'"),
        ("It reads the the log.", "has a word twice: 'the the'"),
        (
            "It is read by all who may read it.\n\nIt is read by all who may read it.",
            "says twice: 'It is read by all who may read it.'",
        ),
        ("It is read by\n\n## Next\n\nIt is.", "has a sentence that does not end: 'It is read by'"),
        ("It is.\n\nIt is read by", "has a sentence that does not end: 'It is read by'"),
        ("# All\n\n## One\n\n# Two\n\nTwo.", "has nothing below its heading '## One'"),
        ("# All\n\nAll.\n\n## One\n", "has nothing below its heading '## One'"),
        ("[a page](missing.md).", "links to missing.md, which does not exist"),
        (f"[This page](page.md), `{NO_FILE}`.", f"names {NO_FILE}, which does not exist"),
    ],
)
def test_a_fault_of_a_page_is_found(text: str, fault: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    assert [*page_faults(page, tmp_path)] == [fault]


@pytest.mark.parametrize("opening", ["The same", "Of", "Those", "That", "What"])
def test_a_docstring_that_begins_with_what_is_not_yet_named_is_found(opening: str, tmp_path: Path) -> None:
    source = tmp_path / "source.py"
    source.write_text(f'"""A module."""\n\n\ndef f():\n    """{opening} one."""\n')
    assert [*source_faults(source, tmp_path)] == [
        f"4: begins with a word for what is not yet named: '{opening} one.'"
    ]


def test_a_page_and_a_module_without_a_fault_are_left(tmp_path: Path) -> None:
    page, source = tmp_path / "page.md", tmp_path / "source.py"
    kept = [
        "Offsets of [this page](page.md).",
        "# A",
        "## B",
        "They are",
        "- one",
        "- two",
        "# C",
        "Type",
        "```\nls ls\n\n\n# x\n```",
    ]
    page.write_text("\n\n".join(kept) + "\n")
    source.write_text('"""Offsets."""\n')
    assert [*page_faults(page, tmp_path), *source_faults(source, tmp_path)] == []


def test_wrapping_keeps_code_tables_and_headings_and_fills_items_below_their_text() -> None:
    long = "words " * 30 + "end"
    kept = [f"# {long}", "", f"| {long} |", "", "```", long, "```", "", f"    {long}", "", f"`{long}`", ""]
    assert wrapped("\n".join(kept)) == "\n".join(kept)
    item = wrapped(f"- {long}\n  more").split("\n")
    assert [line[:2] for line in item] == ["- ", "  "]
    assert max(map(len, item)) <= WIDTH
    assert wrapped("\n".join(item)) == "\n".join(item)
