"""READ ACLs as what a store itself keeps, for readers that pass by the gateway: Spark, DuckDB, Polars."""

import json
from collections.abc import Iterable, Mapping, Sequence

from coordinator.access.export.iam_policy import iam_bindings, iam_policies
from coordinator.access.export.posix_acl import posix_script
from coordinator.access.export.read_access import read_access
from log_tables.cluster.acl import Acl
from log_tables.errors import InvalidArgument

_SCHEMES = {"aws-iam": ("s3", "s3a"), "gcs": ("gs", "gcs"), "posix": ("",)}

FORMATS = tuple(_SCHEMES)


def exported(
    form: str, acls: Iterable[Acl], roots: Sequence[str], directories: Mapping[str, Sequence[str]]
) -> str:
    """The policy that `acls` amount to, in one of `FORMATS`: JSON, for posix a shell script. It names what it
    cannot say.

    `roots` are the root and, where there is one, the remote root: URLs, or directories. `directories` are
    those of each topic's tables, as paths in a root. Raises InvalidArgument where no root is of that kind.
    """
    if form not in _SCHEMES:
        raise InvalidArgument(f"the format {form[:40]!r} is not known; use one of {', '.join(FORMATS)}")
    here = [root for root in roots if _scheme(root) in _SCHEMES[form]]
    if not here:
        raise InvalidArgument(f"{form} is for none of {', '.join(roots)}; use {_format_of(roots[0])}")
    access, lost = read_access(acls)
    lost += [
        f"the root {root} is elsewhere: {_format_of(root)} is for it" for root in roots if root not in here
    ]
    if form == "posix":
        script, more = posix_script(access, here, directories)
        notes = "".join(f"# {line}\n" for line in _notes([*lost, *more]))
        return f"#!/bin/sh\n{notes}{script}"
    places = [_place(root) for root in here]
    if form == "aws-iam":
        policies, more = iam_policies(access, places)
        return _json("policies", policies, [*lost, *more])
    bindings, more = iam_bindings(access, places)
    return _json("bindings", bindings, [*lost, *more])


def _scheme(root: str) -> str:
    scheme, separator, _ = root.partition("://")
    return scheme if separator and scheme != "file" else ""


def _format_of(root: str) -> str:
    found = [form for form, schemes in _SCHEMES.items() if _scheme(root) in schemes]
    return f"--format {found[0]}" if found else "the tools of that store"


def _place(root: str) -> tuple[str, str]:
    """The bucket of a root, and the prefix of its objects: empty, or with a slash at its end."""
    bucket, _, path = root.partition("://")[2].partition("/")
    prefix = path.strip("/")
    return bucket, f"{prefix}/" if prefix else ""


def _notes(lost: list[str]) -> list[str]:
    """Each as one line that a comment can hold."""
    return [" ".join(each.split()) for each in lost]


def _json(name: str, value: object, lost: list[str]) -> str:
    return json.dumps({name: value, "not_expressed": lost}, indent=2) + "\n"
