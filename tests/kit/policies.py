"""Evaluates exported policies as a store would: may a principal read an object, and list its neighbours?"""

import json
import re
from collections.abc import Iterable
from typing import Any

BUCKET = "lake"
PREFIX = "my/root/"

_ANY_PREFIX = {"StringLike": {"s3:prefix": ["*"]}}


def aws_allows(policies: Iterable[Any], key: str) -> bool:
    """Whether these AWS policies allow somebody to read the object `key`, and to list its directory."""
    statements = [statement for policy in policies for statement in policy["Statement"]]
    listed = key.rpartition("/")[0] + "/"
    return _decided(statements, "s3:GetObject", f"{BUCKET}/{PREFIX}{key}") and _decided(
        statements, "s3:ListBucket", BUCKET, PREFIX + listed
    )


def _decided(statements: list[Any], action: str, resource: str, prefix: str = "") -> bool:
    effects = {
        statement["Effect"]
        for statement in statements
        if _like(statement["Action"], action)
        and any(_like(each, f"arn:aws:s3:::{resource}") for each in _list(statement["Resource"]))
        and any(_like(each, prefix) for each in _prefixes(statement))
    }
    return effects == {"Allow"}


def _prefixes(statement: Any) -> list[str]:
    found: list[str] = statement.get("Condition", _ANY_PREFIX)["StringLike"]["s3:prefix"]
    return found


def _list(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


def _like(pattern: str, text: str) -> bool:
    """`*` is any text, `?` any character, `${*}` a star."""
    parts = re.findall(r"\$\{(.)\}|(.)", pattern, re.DOTALL)
    meant = {"*": ".*", "?": "."}
    regex = "".join(
        re.escape(literal) if literal else meant.get(other, re.escape(other)) for literal, other in parts
    )
    return re.fullmatch(regex, text, re.DOTALL) is not None


def gcs_allows(bindings: Iterable[Any], key: str) -> bool:
    """Whether these conditional bindings of Google Cloud Storage allow somebody to read the object `key`, and
    to list its directory.
    """
    listed = key.rpartition("/")[0] + "/"
    conditions = [binding["condition"]["expression"] for binding in bindings]
    objects = f"projects/_/buckets/{BUCKET}/objects/{PREFIX}{key}"
    return any(_holds(each, objects, "") for each in conditions) and any(
        _holds(each, f"projects/_/buckets/{BUCKET}", PREFIX + listed) for each in conditions
    )


_TERM = re.compile(
    r'(?P<what>resource\.name|api\.getAttribute\("storage\.googleapis\.com/objectListPrefix", ""\))'
    r'\.startsWith\((?P<text>"(?:[^"\\]|\\.)*")\)'
)


def _holds(expression: str, name: str, listed: str) -> bool:
    def term(found: re.Match[str]) -> str:
        value = name if found["what"] == "resource.name" else listed
        return str(value.startswith(json.loads(found["text"])))

    plain = _TERM.sub(term, expression)
    assert re.fullmatch(r"(?:True|False|&&|\|\||[!() ])+", plain), expression
    python = plain.replace("&&", "and").replace("||", "or").replace("!", "not ")
    return bool(eval(python))
