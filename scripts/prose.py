"""Check pages and docstrings: `make check` runs it.

A page is wrapped at one width, its links lead somewhere, files that are named exist, edits have left nothing
behind, and no docstring begins with a word that stands for something its reader has not seen.
"""

import ast
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.wrap import blocks, is_item, wrapped

ROOT = Path(__file__).resolve().parent.parent
OPENING = re.compile(r"(?:The same|Of|Those|That|What)\b")
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`[^`\n]*`")
FENCE = re.compile(r"^```", re.MULTILINE)
MARK = re.compile(r"\b(?:TODO|FIXME|XXX)\b|^(?:<{7}|={7}|>{7})(?: |$)", re.MULTILINE)
DOUBLED = re.compile(r"\b([a-z]+) \1\b", re.IGNORECASE)
HEADING = re.compile(r"#+(?= )")
END = re.compile(r"[.:!?|)…*](?:\s|$)")
LONG_WORDS = 8
"""So many words that come again are no chance."""

FOLDERS = "api|bench|coordinator|deploy|docs|examples|ingest|jobs|lakelog|log_tables|scripts|tests"
NAMED = re.compile(rf"(?<![\w/.<-])((?:{FOLDERS})/[\w/.-]+\.(?:md|py))\b")
PROGRAMS = ("bench", "examples", "scripts", "tests")
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def page_faults(page: Path, root: Path) -> Iterator[str]:
    """Each fault of a Markdown page below `root`."""
    text = page.read_text()
    if wrapped(text) != text:
        yield "is not wrapped at one width: run `make format`"
    yield from _leftovers(text)
    for target in LINK.findall(text):
        if not (page.parent / target).exists():
            yield f"links to {target}, which does not exist"
    yield from _named_faults(text, root)


def _leftovers(text: str) -> Iterator[str]:
    """Each thing that an edit has left in a page."""
    plain = CODE.sub("    code", text)
    if "\n\n\n" in plain:
        yield "has two blank lines, which an edit has left"
    if len(FENCE.findall(text)) % 2:
        yield "has a block of code that does not end"
    if mark := MARK.search(INLINE.sub("", plain)):
        yield f"has the mark {mark[0].strip()!r}"
    yield from _unfinished(plain)
    seen = set()
    for lines, prose in blocks(text):
        said = " ".join(line.strip() for line in lines)
        if not prose:
            continue
        if doubled := DOUBLED.search(INLINE.sub("`", said)):
            yield f"has a word twice: {doubled[0]!r}"
        if said in seen and len(said.split()) >= LONG_WORDS and not said.endswith(":"):
            yield f"says twice: {said[:40]!r}"
        seen.add(said)


def _unfinished(text: str) -> Iterator[str]:
    """Each sentence without an end, where nothing goes on with it, and each section with nothing in it."""
    parts = [(lines, prose) for lines, prose in blocks(text) if lines != [""]]
    for (lines, prose), (after, _) in pairwise([*parts, (["# "], False)]):
        level, next_level = (HEADING.match(each[0]) for each in (lines, after))
        if level is None:
            ends = END.match(lines[-1].rstrip()[-1:]) is not None
            goes_on = next_level is None and (is_item(after[0]) or after[0].startswith((" ", "|")))
            if prose and not is_item(lines[0]) and not ends and not goes_on:
                yield f"has a sentence that does not end: {lines[-1][-40:]!r}"
        elif next_level is not None and len(next_level[0]) < len(level[0]):
            yield f"has nothing below its heading {lines[0]!r}"


def source_faults(source: Path, root: Path) -> Iterator[str]:
    """Each fault in the prose of a module below `root`."""
    text = source.read_text()
    tree = ast.parse(text)
    if not ast.get_docstring(tree):
        yield "has no docstring that says what it is"
    for node in ast.walk(tree):
        if isinstance(node, Documented):
            docstring = ast.get_docstring(node) or ""
            if OPENING.match(docstring):
                line = getattr(node, "lineno", 1)
                yield f"{line}: begins with a word for what is not yet named: {docstring[:40]!r}"
    yield from _named_faults(text, root)


def _named_faults(text: str, root: Path) -> Iterator[str]:
    for target in NAMED.findall(text):
        if not (root / target).exists():
            yield f"names {target}, which does not exist"


def faults(root: Path) -> list[str]:
    """All faults below `root`, each with its file."""
    folders = [marker.parent for marker in root.glob("*/py.typed")] + [root / name for name in PROGRAMS]
    sources = [source for folder in folders for source in folder.rglob("*.py")]
    pages = [*root.glob("*.md"), *root.glob("docs/**/*.md")]
    return sorted(
        [f"{path.relative_to(root)} {fault}" for path in pages for fault in page_faults(path, root)]
        + [f"{path.relative_to(root)}:{fault}" for path in sources for fault in source_faults(path, root)]
    )


if __name__ == "__main__":
    found = faults(ROOT)
    print("\n".join(found))
    sys.exit(1 if found else 0)
