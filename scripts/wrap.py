"""Wrap the paragraphs of Markdown pages at one width; `make format` runs it over all of them."""

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

WIDTH = 110
"""Characters in a line. Code, tables and what has no blank to break at may be longer."""

_FENCE = re.compile(r"\s*```")
_AS_IT_IS = re.compile(r"$|\||#|<|>|\[[^]]+\]: | {4}|\s*```")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)]) ")
_CODE = re.compile(r"`[^`]+`")
_LIKE_AN_ITEM = re.compile(r" (?=(?:[-*+>#]|\d+[.)])(?: |$))")
_UNBROKEN = "\0"


def wrapped(text: str) -> str:
    """The page `text` with every paragraph filled anew that has a line longer than `WIDTH`, or one that an
    edit has left short.
    """
    return "\n".join(line for lines, prose in blocks(text) for line in (_filled(lines) if prose else lines))


def blocks(text: str) -> Iterator[tuple[list[str], bool]]:
    """The lines of the page `text`: those of each paragraph and item together, with True, and each line of
    anything else alone, with False.
    """
    paragraph: list[str] = []
    fenced = False
    for line in text.split("\n"):
        fence = _FENCE.match(line) is not None
        as_it_is = fenced or _AS_IT_IS.match(line) is not None
        if paragraph and (as_it_is or is_item(line)):
            yield paragraph, True
            paragraph = []
        if as_it_is:
            yield [line], False
        else:
            paragraph = [*paragraph, line]
        fenced = fenced != fence
    if paragraph:
        yield paragraph, True


def is_item(line: str) -> bool:
    """Whether an item of a list begins with `line`."""
    return _ITEM.match(line) is not None


def _filled(paragraph: list[str]) -> list[str]:
    """The lines of `paragraph` as they are, or filled when one is too long, or fewer would do."""
    first = paragraph[0]
    item = _ITEM.match(first)
    indent = " " * (len(item[0]) if item else len(first) - len(first.lstrip()))
    words = " ".join(line.strip() for line in paragraph)
    whole = _CODE.sub(lambda code: code[0].replace(" ", _UNBROKEN), words)
    filled = textwrap.wrap(
        _LIKE_AN_ITEM.sub(_UNBROKEN, whole),
        WIDTH,
        initial_indent=" " * (len(first) - len(first.lstrip())),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    fits = max(map(len, paragraph)) <= WIDTH and len(filled) >= len(paragraph)
    return paragraph if fits else [line.replace(_UNBROKEN, " ") for line in filled]


def main() -> None:
    """Wrap the pages that are named on the command line."""
    for page in map(Path, sys.argv[1:]):
        page.write_text(wrapped(page.read_text()))


if __name__ == "__main__":
    main()
