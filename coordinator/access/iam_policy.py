"""READ ACLs as identity policies of AWS IAM, which S3 servers of others read, too, and as conditional role
bindings of Google Cloud Storage.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.json import encode

from coordinator.access.read_access import INTERNAL, Names, ReadAccess, covered, denied_to
from log_tables.cluster.acl import ANY_USER
from log_tables.layout import CREDENTIALS, INTERNAL_TOPICS, METADATA_DIRECTORY, SCHEMAS, TOPICS

_ROLE = "roles/storage.objectViewer"
_LISTED = 'api.getAttribute("storage.googleapis.com/objectListPrefix", "")'

OPERATORS_MAX = 12
BINDINGS_MAX = 20
"""Google's bounds: logical operators of a condition, bindings of a role to one member with conditions."""

Bindings = list[dict[str, Any]]


def iam_bindings(
    access: dict[str, ReadAccess], places: Sequence[tuple[str, str]]
) -> tuple[dict[str, Bindings], list[str]]:
    """The bindings of each principal, to which its account or group is added as a member; and a sentence for
    each thing that they cannot say. `places` are the buckets of the root and of the remote root, each with
    the prefix of its objects.

    Google's denials know no names of objects. So a denial is a part of the condition of each permission of
    that principal, and those for everybody are part of all.
    """
    found: dict[str, Bindings] = {}
    lost = [_alone(principal) for principal, each in sorted(access.items()) if each.denied]
    for principal, each in sorted(access.items()):
        bindings, left_out = _bindings(each.allowed, denied_to(principal, access), places)
        lost += [
            f"READ on {names} for {principal} is left out: it has too many denials" for names in left_out
        ]
        if len(bindings) > BINDINGS_MAX:
            lost.append(
                f"{principal} has {len(bindings)} bindings, Google takes {BINDINGS_MAX} for one member"
            )
        if bindings:
            found[principal] = bindings
    return found, [each for each in lost if each]


def _alone(principal: str) -> str:
    if principal == ANY_USER:
        return ""
    who = "its members" if principal.startswith("Group:") else "it"
    return (
        f"denials of {principal} count in its own bindings alone: make {who} no member of other bindings for "
        "those topics"
    )


def _bindings(
    allowed: list[Names], denied: list[Names], places: Sequence[tuple[str, str]]
) -> tuple[Bindings, list[Names]]:
    bindings: Bindings = []
    left_out = []
    for names in allowed:
        if covered(names, denied):
            continue
        holes = [each for each in [*denied, INTERNAL] if names.cover(each)]
        made = [condition for place in places for condition in _conditions(place, names, holes)]
        if any(_operators(condition) > OPERATORS_MAX for condition in made):
            left_out.append(names)
        else:
            bindings += [_binding(f"READ on {names}", condition) for condition in made]
    if bindings:
        shared = (f"{METADATA_DIRECTORY}/", f"{SCHEMAS}/")
        for place in places:
            ways = zip(*(_begins(place, path) for path in shared), strict=True)
            bindings += [_binding("the metadata log and schemas", " || ".join(way)) for way in ways]
    return bindings, left_out


def _binding(title: str, condition: str) -> dict[str, Any]:
    return {"role": _ROLE, "condition": {"title": title, "expression": condition}}


def _conditions(place: tuple[str, str], names: Names, holes: list[Names]) -> list[str]:
    """A condition for getting objects, and one for listing them."""
    parts = [[" || ".join(each) for each in _either(place, hole)] for hole in [names, *holes]]
    found = []
    for way in range(2):
        inside, *outside = (part[way] for part in parts)
        found.append(" && ".join([f"({inside})", *(f"!({each})" for each in outside)]))
    return found


def _either(place: tuple[str, str], names: Names) -> list[list[str]]:
    """The beginnings of the objects of these topics: for getting, and for listing."""
    ends = [""] if names.prefixed else ["/", "~"]
    begins = [_begins(place, f"{TOPICS}/{names.text}{end}") for end in ends]
    return [list(way) for way in zip(*begins, strict=True)]


def _begins(place: tuple[str, str], path: str) -> list[str]:
    bucket, prefix = place
    objects = f"projects/_/buckets/{bucket}/objects/{prefix}"
    return [
        f"resource.name.startsWith({_text(objects + path)})",
        f"{_LISTED}.startsWith({_text(prefix + path)})",
    ]


def _text(text: str) -> str:
    """A literal of Google's expression language."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _operators(condition: str) -> int:
    return sum(condition.count(operator) for operator in ("&&", "||", "!("))


POLICY_MAX_CHARS = 6_144
"""AWS's bound for a managed policy, blanks not counted."""


def iam_policies(
    access: dict[str, ReadAccess], places: Sequence[tuple[str, str]]
) -> tuple[dict[str, Any], list[str]]:
    """A policy for each principal, to be attached to its user, role or group. `places` are the buckets of the
    root and of the remote root, each with the prefix of its objects. And a sentence for each policy that AWS
    does not take.

    A principal without permissions has the denials alone. In IAM as in Kafka the policies of a user, of its
    groups and of everybody count together, and a denial is stronger.
    """
    literal = [(bucket, _literal(prefix)) for bucket, prefix in places]
    policies = {principal: _policy(found, literal) for principal, found in sorted(access.items())}
    lengths = {principal: len(encode(policy)) for principal, policy in policies.items()}
    return policies, [
        f"the policy of {principal} has {length} characters, AWS takes {POLICY_MAX_CHARS}: allow prefixes of "
        "names instead of names"
        for principal, length in lengths.items()
        if length > POLICY_MAX_CHARS
    ]


def _literal(text: str) -> str:
    """`text` in a policy, where `*`, `?` and `$` have meanings."""
    return "".join(f"${{{each}}}" if each in "*?$" else each for each in text)


def _policy(access: ReadAccess, places: list[tuple[str, str]]) -> dict[str, Any]:
    statements = []
    if access.allowed:
        wanted = [*_paths(access.allowed), f"{METADATA_DIRECTORY}/*", f"{SCHEMAS}/*"]
        statements += _statements("Allow", "s3:GetObject", wanted, places)
    hidden = [*_paths(access.denied), *_hidden()]
    statements += _statements("Deny", "s3:GetObject*", hidden, places)
    return {"Version": "2012-10-17", "Statement": statements}


def _paths(all_names: Iterable[Names]) -> list[str]:
    """The objects of topics. A topic that is re-created has a directory with `~` and a number, as no name of
    a topic has.
    """
    found = []
    for names in all_names:
        if names.prefixed:
            found.append(f"{TOPICS}/{names.text}*/*")
        else:
            found += [f"{TOPICS}/{names.text}/*", f"{TOPICS}/{names.text}~*/*"]
    return found


def _hidden() -> list[str]:
    """Objects that no reader may have: credentials, and internal topics."""
    return [f"{CREDENTIALS}/*", *_paths(Names(name, prefixed=False) for name in INTERNAL_TOPICS)]


def _statements(
    effect: str, action: str, paths: list[str], places: list[tuple[str, str]]
) -> list[dict[str, Any]]:
    """For each place one statement about objects, and one about listing them."""
    found: list[dict[str, Any]] = []
    for bucket, prefix in places:
        here = [f"{prefix}{path}" for path in paths]
        arn = f"arn:aws:s3:::{bucket}"
        found.append({"Effect": effect, "Action": action, "Resource": [f"{arn}/{path}" for path in here]})
        condition = {"StringLike": {"s3:prefix": here}}
        found.append({"Effect": effect, "Action": "s3:ListBucket", "Resource": arn, "Condition": condition})
    return found
