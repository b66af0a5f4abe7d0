"""READ ACLs as what a store itself keeps, for readers that pass by the gateway: Spark, DuckDB, Polars.

For a local root these are access control lists of files, for readers with accounts on its host.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from shlex import quote
from urllib.parse import unquote, urlsplit

from coordinator.access.iam_policy import iam_bindings, iam_policies
from coordinator.access.principal import GROUP, USER
from coordinator.access.read_access import Names, ReadAccess, covered, denied_to, read_access
from log_tables.cluster.acl import ANY_USER, Acl
from log_tables.errors import InvalidArgument
from log_tables.layout import (
    AUDIT_SPILLS,
    CLUSTER_METADATA,
    CREDENTIALS,
    INTERNAL_TOPICS,
    SCHEMAS,
    STAGING,
    TOPICS,
    topic_directory,
)

_ACCOUNT = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]*")
"""Names that `setfacl` takes for an account; it would take a number for the id of one."""


_GROUP = "g::---,m::rX"
"""Of the owning group, nothing. Linux looks at no denial of a user where the mask is empty."""

_HEAD = """\
set -eu
grant() {
    if [ -e "$1" ]; then
        setfacl -R -b -k -m "$2" "$1"
        setfacl -R -d -m "$2" "$1"
    fi
}
"""
"""New files and directories get the entries that their directory has by default."""


def posix_script(
    access: dict[str, ReadAccess], roots: Sequence[str], directories: Mapping[str, Sequence[str]]
) -> tuple[str, list[str]]:
    """A shell script of `setfacl` for the root and the remote root, and a sentence for each thing that it
    cannot say. `roots` are directories; those of each topic's tables are `directories`, as paths in a root.

    Principals are accounts of these names.
    """
    known = {principal: each for principal, each in access.items() if _entry(principal) is not None}
    lost = [f"{principal} is left out: it is no account's name" for principal in sorted({*access} - {*known})]
    lost += [
        f"denials of {principal} count for those of its members whom no other ACL lets read"
        for principal in sorted(known)
        if principal.startswith(GROUP) and known[principal].denied
    ]
    lost.append("a new topic is nobody's to read: print this again once there is one")
    entries = {topic: _entries(topic, known) for topic in sorted(directories)}
    readers = sorted({entry for each in entries.values() for entry in each if entry.endswith(":rX")})
    grants = [(topic_directory(CLUSTER_METADATA), readers), (SCHEMAS, readers)]
    grants += [(path, entries[topic]) for topic in entries for path in directories[topic]]
    return _HEAD + "".join(_for_root(root, readers, grants) for root in roots), lost


def _for_root(root: str, readers: list[str], grants: list[tuple[str, list[str]]]) -> str:
    """The root and `topics/` are passed through, and listed by nobody."""
    passed = quote(_listed([entry.replace(":rX", ":x") for entry in readers]))
    lines = [
        f"cd {quote(_path(root))}",
        f"setfacl -b -k -m {passed} . {TOPICS}",
        f"setfacl -d -m g::---,o::--- {TOPICS}",
        *(f"grant {quote(path)} g::---,o::---" for path in _hidden()),
        *(f"grant {quote(path)} {quote(_listed(entries))}" for path, entries in grants),
    ]
    return "".join(f"{line}\n" for line in lines)


def _path(root: str) -> str:
    url = urlsplit(root)
    return unquote(url.path) if url.scheme == "file" else root


def _listed(entries: list[str]) -> str:
    others = [] if any(entry.startswith("o:") for entry in entries) else ["o::---"]
    return ",".join([_GROUP, *entries, *others])


def _hidden() -> Iterator[str]:
    """The owner alone has credentials, records of open transactions, internal topics and what is for them."""
    yield CREDENTIALS
    yield STAGING
    yield AUDIT_SPILLS
    for name in INTERNAL_TOPICS:
        yield topic_directory(name)


def _entry(principal: str) -> str | None:
    """The principal as `setfacl` names it; None for one that cannot be an account."""
    if principal == ANY_USER:
        return "o:"
    kind, prefix = ("u", USER) if principal.startswith(USER) else ("g", GROUP)
    name = principal.removeprefix(prefix)
    return f"{kind}:{name}" if _ACCOUNT.fullmatch(name) else None


def _entries(topic: str, access: dict[str, ReadAccess]) -> list[str]:
    """The entries of the files of `topic`. Somebody with an entry has only that; without one, those of its
    groups count; without these, the one for others.
    """
    name = Names(topic, prefixed=False)
    found = []
    for principal, each in sorted(access.items()):
        if covered(name, denied_to(principal, access)):
            found.append(f"{_entry(principal)}:---")
        elif covered(name, each.allowed):
            found.append(f"{_entry(principal)}:rX")
    return found


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
