"""Check pages and docstrings: `make check` runs it.

A page is wrapped at one width, its links lead somewhere, files that are named exist, and no docstring begins
with a word that stands for something its reader has not seen.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.wrap import wrapped

ROOT = Path(__file__).resolve().parent.parent
OPENING = re.compile(r"(?:The same|Of|Those|That|What)\b")
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
FOLDERS = "api|bench|coordinator|deploy|docs|examples|ingest|jobs|lakelog|log_tables|scripts|tests"
NAMED = re.compile(rf"(?<![\w/.<-])((?:{FOLDERS})/[\w/.-]+\.(?:md|py))\b")
PROGRAMS = ("bench", "examples", "scripts", "tests")
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def page_faults(page: Path, root: Path) -> Iterator[str]:
    """Each fault of a Markdown page below `root`."""
    text = page.read_text()
    if wrapped(text) != text:
        yield "is not wrapped at one width: run `make format`"
    if "\n\n\n" in CODE.sub("code", text):
        yield "has two blank lines, which an edit has left"
    for target in LINK.findall(text):
        if not (page.parent / target).exists():
            yield f"links to {target}, which does not exist"
    yield from _named_faults(text, root)


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
