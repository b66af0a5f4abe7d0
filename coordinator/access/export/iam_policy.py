"""READ ACLs as identity policies of AWS IAM, which S3 servers of others read, too."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.json import encode

from coordinator.access.export.read_access import Names, ReadAccess
from log_tables.layout import CREDENTIALS, INTERNAL_TOPICS, METADATA_DIRECTORY, TOPICS

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
        wanted = [*_paths(access.allowed), f"{METADATA_DIRECTORY}/*"]
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
