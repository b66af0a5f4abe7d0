"""Kafka's decisions by ACLs, and finds of its filters: `scripts/kafka_decisions.py` has asked its classes."""

import gzip
import json
from functools import cache
from typing import Any

from log_tables.cluster.acl import Acl, Operation, PatternType, Permission, ResourceType
from tests.kit.support import ROOT

_KEPT = ROOT / "tests" / "coordinator" / "access" / "kafka_decisions.jsonl.gz"


@cache
def kafka_decisions() -> tuple[dict[str, list[str]], list[dict[str, Any]]]:
    """The operations of each resource type, and the sets of ACLs with questions and answers."""
    supported, *sets = (json.loads(line) for line in gzip.decompress(_KEPT.read_bytes()).splitlines())
    return supported, sets


def acls_of(each: dict[str, Any]) -> list[Acl]:
    """The ACLs of a set."""
    return [
        Acl(
            ResourceType(kind),
            name,
            PatternType(pattern),
            principal,
            host,
            Operation(op),
            Permission(permission),
        )
        for kind, name, pattern, principal, host, op, permission in each["acls"]
    ]


def digits(decided: list[bool]) -> str:
    """As answers are kept."""
    return "".join("01"[each] for each in decided)
