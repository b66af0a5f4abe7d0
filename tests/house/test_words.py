"""How our pages, docstrings, comments and messages read: one width, and words that are read once."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.wrap import WIDTH, wrapped
from tests.kit.support import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
SOURCES = sorted(source for marker in ROOT.glob("*/py.typed") for source in marker.parent.rglob("*.py"))

_OPENING = r"^|(?<=[.!?:;)] )|(?<=\*\*)|(?<=\*\* )|(?<=^- )|(?<=^\| )"
"""Where a sentence begins: at the start, after another one, after a marker."""

BETTER = {
    rf"(?:{_OPENING})(?:Who|What)(?:ever)?\b(?![^.?!]*\?)": "begin with the subject",
    r"\b(?:by|for|from|of|than|to|with) who(?:ever)?\b": "name who it is: a client, a member, a gateway",
    r"\b(?:are|be|been|do|does|has|have|is|was|were) no more\b(?! than| \w+s\b)": "no longer",
    r"\bno more[.,;:)]": "no longer",
    r"\bOf [^.,:;]* only\b": "only … of …",
    r"\bm(?:a[dk]e|akes|aking) again\b": "re-create",
    r"\bbeside\b": "next to, besides, or while … runs",
    r"\banew\b": "again, or a new one",
    r"\bdone with\b": "processed, or finished",
    r"\bpass(?:ed|es)? over\b": "ignore, or skip",
    r"\bwhose (?:it is|they are)\b": "that owns it",
    r"\bthat which\b": "what, or the one that",
    r"\bmend(?:ed|ing|s)?\b": "fix",
}
"""Patterns that no sentence of ours has, each with the better form."""


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def pieces_of_page(text: str) -> Iterator[str]:
    """The paragraphs, items and cells of a page, each as one line; code is cut out."""
    text = re.sub(r"`[^`]+`", "`…`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    for piece in re.split(r"\n\s*\n|\n(?=\s*(?:[-*] |\d+\. |\||#))", text):
        if not piece.startswith("#"):
            yield from (" ".join(cell.split()) for cell in piece.split(" | "))


def pieces_of_source(text: str) -> Iterator[str]:
    """The paragraphs of a module's docstrings and messages, and its comments, each as one line."""
    strings = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
    for string in strings:
        if isinstance(string, str) and " " in string:
            yield from (" ".join(piece.split()) for piece in re.split(r"\n\s*\n", string))
    comment = ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comment += f" {token.string.lstrip('# ')}"
        elif token.type != tokenize.NL and comment:
            yield comment.strip()
            comment = ""


def remarks(piece: str) -> list[str]:
    """The places of `piece` that have a better form."""
    code_less = re.sub(r"`[^`]+`", "`…`", piece)
    return [
        f"…{code_less[max(0, found.start() - 20) : found.end() + 40]}…: {better}"
        for pattern, better in BETTER.items()
        for found in re.finditer(pattern, code_less)
    ]


@pytest.mark.parametrize("path", [*PAGES, *SOURCES], ids=name)
def test_the_words_of_a_file_are_read_once(path: Path) -> None:
    pieces = pieces_of_page if path.suffix == ".md" else pieces_of_source
    assert [remark for piece in pieces(path.read_text()) for remark in remarks(piece)] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_is_wrapped_at_one_width(page: Path) -> None:
    assert wrapped(page.read_text()) == page.read_text(), "run `make format`"


@pytest.mark.parametrize(
    "sentence",
    [
        "Who begins at the end is remembered.",
        "It ends. What is left is dropped.",
        "- **What is left.** It stays.",
        "- Who ends, is gone.",
        "**Decided.** What ends, is gone.",
        "This is for who works long.",
        "The topic is no more.",
        "Offsets that are no more, are lost.",
        "Of HTTP only what gateways ask one another.",
        "A topic that was made again.",
        "It runs beside a producer.",
    ],
)
def test_a_sentence_that_is_read_twice_is_found(sentence: str) -> None:
    assert [remark for piece in pieces_of_page(sentence) for remark in remarks(piece)] != []
    assert [remark for piece in pieces_of_source(f'x = "{sentence}"') for remark in remarks(piece)] != []
    assert [remark for piece in pieces_of_source(f"# {sentence}\nx = 1") for remark in remarks(piece)] != []


@pytest.mark.parametrize(
    "sentence",
    [
        "Who leads? One gateway.",
        "It has no more than ten.",
        "There are no more records.",
        "Whether it is there is not known.",
        "The code is `Who beside made again`.",
    ],
)
def test_a_sentence_that_is_read_once_is_not_found(sentence: str) -> None:
    assert [remark for piece in pieces_of_page(sentence) for remark in remarks(piece)] == []


def test_wrapping_keeps_code_tables_and_headings_and_fills_items_below_their_text() -> None:
    long = "words " * 30 + "end"
    kept = [f"# {long}", "", f"| {long} |", "", "```", long, "```", "", f"    {long}", "", f"`{long}`", ""]
    assert wrapped("\n".join(kept)) == "\n".join(kept)
    item = wrapped(f"- {long}\n  more").split("\n")
    assert [line[:2] for line in item] == ["- ", "  "]
    assert max(map(len, item)) <= WIDTH
    assert wrapped("\n".join(item)) == "\n".join(item)
