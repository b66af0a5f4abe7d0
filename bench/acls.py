"""The cost of a decision of the authorizer with 10,000 ACLs, and of a change of them."""

from bench.cells import Figures
from bench.contest import OURS, Results, Scale
from bench.peers import Peers
from coordinator.access.authorizer import Authorizer
from coordinator.access.principal import Principal, RequestContext
from log_tables.clock import timer
from log_tables.cluster.acl import Acl, Operation, PatternType, Permission, ResourceType

_ACLS = 10_000
_LENGTHS = 200
Pair = tuple[str, str]
"""A principal and the name of a topic."""


def decisions(_peers: Peers | None, _scale: Scale) -> Results:
    """10,000 (principal, topic) pairs, each allowed by one of 10,000 ACLs and asked twice, the second time by
    requests of their own; then ACLs that are all for one topic, or all prefixes of one principal.
    """
    pairs = [(f"User:{number}", f"topic-{number}") for number in range(_ACLS)]
    users = [(f"User:{number}", "topic") for number in range(_ACLS)]
    prefixes = [("User:ann", f"topic-{number}-") for number in range(_ACLS)]
    lengths = [("User:ann", f"{number // _LENGTHS}{'x' * (number % _LENGTHS)}") for number in range(_ACLS)]
    return {
        OURS: _measured(pairs, PatternType.LITERAL),
        "all for one topic": _measured(users, PatternType.LITERAL),
        "prefixes of one principal": _measured(prefixes, PatternType.PREFIXED),
        f"the same, of {_LENGTHS} lengths": _measured(lengths, PatternType.PREFIXED),
    }


def _measured(pairs: list[Pair], pattern_type: PatternType) -> Figures:
    acls = [
        Acl(ResourceType.TOPIC, name, pattern_type, principal, "*", Operation.WRITE, Permission.ALLOW)
        for principal, name in pairs
    ]
    begin = timer()
    authorizer = Authorizer(acls)
    build = timer() - begin
    suffix = "x" if pattern_type is PatternType.PREFIXED else ""
    asked = [(principal, name + suffix) for principal, name in pairs]
    cold, warm = _seconds(authorizer, asked), _seconds(authorizer, asked)
    return {"build ms": build * 1e3, "cold µs": cold * 1e6 / _ACLS, "warm µs": warm * 1e6 / _ACLS}


def _seconds(authorizer: Authorizer, asked: list[Pair]) -> float:
    requests = [(RequestContext(Principal(principal), "10.1.2.3"), name) for principal, name in asked]
    begin = timer()
    allowed = [
        authorizer.authorize(context, Operation.WRITE, ResourceType.TOPIC, name) for context, name in requests
    ]
    seconds = timer() - begin
    if not all(allowed):
        raise RuntimeError(f"{allowed.count(False)} of {len(allowed)} requests were denied")
    return seconds
