"""Rules for the tests themselves: the length of a file, and no patches of our own code."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.support import ROOT

TESTS = sorted((ROOT / "tests").rglob("*.py"))
LINES_MAX = 400
PACKAGES = {marker.parent.name for marker in ROOT.glob("*/py.typed")}
PATCHES = {"setattr", "setitem", "delattr", "delitem"}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_a_file_of_tests_can_be_read_in_one_go() -> None:
    assert {name(path) for path in TESTS if len(path.read_text().splitlines()) > LINES_MAX} == set()


def imported(tree: ast.Module, ours: bool) -> set[str]:
    """The names in a module that are imported from our packages, or from elsewhere."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and ours == ((node.module or "").split(".")[0] in PACKAGES):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names = [alias for alias in node.names if ours == (alias.name.split(".")[0] in PACKAGES)]
            found |= {alias.asname or alias.name.split(".")[0] for alias in names}
    return found


def patched(tree: ast.Module) -> Iterator[str]:
    """The targets of a module's patches that are ours: parts of our packages, or what a test has made of
    them.
    """
    ours, others = imported(tree, ours=True), imported(tree, ours=False)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PATCHES:
            match node.args:
                case [ast.Constant(str(path)), *_] if path.split(".")[0] in PACKAGES:
                    yield path
                case [ast.Name() | ast.Attribute() as target, _, *_]:
                    if ast.unparse(target).split(".")[0] not in others:
                        yield ast.unparse(target)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            owner = ast.unparse(node.value)
            if owner != "self" and (node.attr.startswith("_") or owner in ours):
                yield ast.unparse(node)


def test_no_test_patches_what_is_ours() -> None:
    """A limit is a value that is handed in, and a fault is one of the store or of the system."""
    trees = {name(path): ast.parse(path.read_text()) for path in TESTS}
    found = {file: [*patched(tree)] for file, tree in trees.items()}
    assert {file: targets for file, targets in found.items() if targets} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import os\npatch.setattr(os, 'fsync', fail)", []),
        ("import pyarrow.parquet as pq\npatch.setattr(pq.ParquetWriter, 'close', fail)", []),
        ("patch.setattr('sys.prefix', 'x')", []),
        ("from log_tables.table import table\npatch.setattr(table, 'LIMIT', 1)", ["table"]),
        ("import log_tables.limits\npatch.setattr(log_tables.limits, 'X', 1)", ["log_tables.limits"]),
        ("patch.setattr('log_tables.limits.X', 1)", ["log_tables.limits.X"]),
        ("reader = a_reader()\npatch.setattr(reader.table, '_lock', lock)", ["reader.table"]),
        ("reader = a_reader()\nreader._cache = cache", ["reader._cache"]),
        ("from log_tables.table import table\ntable.LIMIT = 1", ["table.LIMIT"]),
    ],
)
def test_a_patch_of_what_is_ours_is_found(source: str, found: list[str]) -> None:
    assert [*patched(ast.parse(source))] == found
