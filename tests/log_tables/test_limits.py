"""The bounds: each has one name, and each name one bound."""

import ast
from collections import Counter
from pathlib import Path

from log_tables import limits


def test_no_bound_is_set_twice() -> None:
    body = ast.parse(Path(limits.__file__).read_text()).body
    targets = (target for node in body if isinstance(node, ast.Assign) for target in node.targets)
    names = Counter(target.id for target in targets if isinstance(target, ast.Name))
    assert [name for name, count in names.items() if count > 1] == []
