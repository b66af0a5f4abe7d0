"""Let Kafka's own authorizer decide random requests by random ACLs, and keep what it says for the tests.

    python scripts/kafka_decisions.py DIRECTORY

DIRECTORY holds Kafka's jars: `libs` of a Kafka that was downloaded; version 4.4.0 made the file that is kept.
It needs a JDK, because Java compiles `KafkaAuthorizer.java` as it starts.
"""

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from log_tables.clock import ManualClock
from log_tables.cluster.acl import Operation, PatternType, Permission, ResourceType

ROOT = Path(__file__).resolve().parent.parent
DECISIONS = ROOT / "tests" / "coordinator" / "access" / "kafka_decisions.jsonl.gz"

SETS, REQUESTS, BY_TYPE, FILTERS = 1_000, 10, 2, 10
"""Sets of ACLs, and for each: requests, requests by resource type, filters."""

ACLS_MAX = 14
USERS = ["ann", "bob", "eve"]
PRINCIPALS = ["User:ann", "User:ann", "User:ann", "User:bob", "User:*", "User:*", "User:an", "Group:ann"]
HOSTS = ["10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1", "10.0.0.2/31", "10.0.0.0/8", "2001:db8::/32", "::/0"]
ASKED_HOSTS = ["10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3", "::1", "::ffff:10.0.0.2", "2001:DB8::1"]
SOME_NAMES = [
    "*",
    "*",
    "hardcode",
    "hard",
    "kafka-cluster",
    "kafka",
    "a*",
    "*a",
    "a.b",
    "é",
    "été",
    "!",
    "𝄞",
    "𝄞a",
]


class Draw:
    """Random choices, the same in each run."""

    def __init__(self) -> None:
        self._clock = ManualClock(seed=20)

    def below(self, bound: int) -> int:
        return int(self._clock.random() * bound)

    def one(self, among: list[Any]) -> Any:
        return among[self.below(len(among))]

    def name(self) -> str:
        """Often short and of two letters, so that names are prefixes of one another."""
        if self.below(5) == 0:
            return str(self.one(SOME_NAMES))
        return "".join(self.one(["a", "b"]) for _ in range(1 + self.below(4)))

    def operation(self) -> str:
        common = [Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL]
        return str(self.one(common if self.below(2) else list(Operation)))

    def resource_type(self) -> str:
        return str(self.one([ResourceType.TOPIC, ResourceType.TOPIC, ResourceType.TOPIC, *ResourceType]))


def main() -> None:
    """Draw, ask Kafka, and write the file."""
    jars = Path(sys.argv[1]).resolve()
    draw = Draw()
    drawn = [one_set(draw) for _ in range(SETS)]
    asked = [line for each in drawn for line in lines(each)] + [f"O\t{kind}" for kind in ResourceType]
    answers = iter(ask(jars, asked))
    for each in drawn:
        each["allowed"] = "".join(next(answers) for _ in range(REQUESTS))
        each["allowed_by_type"] = "".join(next(answers) for _ in range(BY_TYPE))
        each["found"] = [next(answers) for _ in range(FILTERS)]
    supported = {kind: next(answers).split(",") for kind in ResourceType}
    text = "".join(f"{json.dumps(each, separators=(',', ':'))}\n" for each in [supported, *drawn])
    DECISIONS.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    allowed = sum(each["allowed"].count("1") for each in drawn)
    print(f"{SETS * REQUESTS} decisions, {allowed} of them allow; {DECISIONS.stat().st_size} bytes")


def one_set(draw: Draw) -> dict[str, Any]:
    """Some ACLs, and what is asked of them. ACLs of one set differ, as they do in a cluster."""
    acls = [*{tuple(one_acl(draw)): None for _ in range(draw.below(ACLS_MAX + 1))}]
    return {
        "super_users": ["User:eve"] if draw.below(10) == 0 else [],
        "acls": acls,
        "requests": [one_request(draw, acls) for _ in range(REQUESTS)],
        "by_type": [one_request(draw, acls)[:-1] for _ in range(BY_TYPE)],
        "filters": [one_filter(draw) for _ in range(FILTERS)],
    }


def one_acl(draw: Draw) -> list[str]:
    return [
        draw.resource_type(),
        draw.name(),
        str(draw.one(list(PatternType))),
        draw.one(PRINCIPALS),
        draw.one(HOSTS) if draw.below(5) == 0 else "*",
        draw.operation(),
        str(Permission.DENY if draw.below(6) == 0 else Permission.ALLOW),
    ]


def one_request(draw: Draw, acls: list[tuple[str, ...]]) -> list[str]:
    """User, host, operation, resource type, name: of most, some are those of one of the ACLs."""
    user = USERS[0] if draw.below(2) else draw.one(USERS)
    request = [user, draw.one(ASKED_HOSTS), draw.operation(), draw.resource_type(), draw.name()]
    if acls and draw.below(6):
        resource_type, name, pattern_type, principal, _, operation, _ = draw.one(acls)
        request[3] = resource_type
        if draw.below(4):
            request[4] = name + (
                draw.name() if pattern_type == PatternType.PREFIXED and draw.below(2) else ""
            )
        if draw.below(3):
            request[2] = operation
        if draw.below(2) and principal in {"User:ann", "User:bob"}:
            request[0] = principal.removeprefix("User:")
    # Kafka's StandardAuthorizer finds no ACL for `*` where a longer name begins with `*`; ours does.
    request[4] = request[4] if request[4] == "*" else request[4].lstrip("*") or "a"
    return request


def one_filter(draw: Draw) -> list[str]:
    """The fields of an ACL, most of them any."""
    acl = one_acl(draw)
    kept = [field if draw.below(3) == 0 else blank for field, blank in zip(acl, ANYTHING, strict=True)]
    kept[1] = draw.name() if draw.below(3) else draw.one(["", "", "", EMPTY])
    kept[2] = draw.one(["LITERAL", "PREFIXED", "ANY", "MATCH"])
    if draw.below(20) == 0:
        kept[0] = draw.one(["DELEGATION_TOKEN", "USER"])
    if draw.below(20) == 0:
        kept[5] = draw.one(["CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT"])
    return kept


ANYTHING = ["ANY", "", "ANY", "", "", "ANY", "ANY"]
EMPTY = "<empty>"
"""A name that is an empty text, where null is an empty field."""


def lines(each: dict[str, Any]) -> Iterator[str]:
    """The input of `KafkaAuthorizer.java`, line by line."""
    yield f"S\t{';'.join(each['super_users'])}"
    for mark, name in (("A", "acls"), ("Q", "requests"), ("T", "by_type"), ("F", "filters")):
        yield from ("\t".join([mark, *fields]) for fields in each[name])


def ask(jars: Path, asked: list[str]) -> list[str]:
    """Kafka's answers to the questions among `asked`."""
    command = ["java", "-cp", f"{jars}/*", str(ROOT / "scripts" / "KafkaAuthorizer.java")]
    done = subprocess.run(command, input="\n".join(asked).encode(), stdout=subprocess.PIPE, check=True)
    return done.stdout.decode().splitlines()


if __name__ == "__main__":
    main()
