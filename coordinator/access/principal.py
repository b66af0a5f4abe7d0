"""Principals, as Kafka names them, and the groups that they belong to."""

from typing import TypeGuard

import msgspec

from log_tables.errors import InvalidArgument
from log_tables.partition.partition import Author

USER, GROUP = "User:", "Group:"

USER_MAX_CHARS = 200


class Principal(msgspec.Struct, frozen=True):
    """`name` is `User:<name>`; `groups` are `Group:<name>` each, as a token says."""

    name: str
    groups: tuple[str, ...] = ()


ANONYMOUS = Principal("User:ANONYMOUS")
"""The principal without a credential, where none is asked for."""


class RequestContext(msgspec.Struct, frozen=True):
    """A principal, and the IP address that its request comes from."""

    principal: Principal
    host: str


def author_of(context: RequestContext | None) -> Author | None:
    """Who writes the records of a request; None where nobody was authenticated."""
    return None if context is None else Author(context.principal.name, context.host)


def is_name(text: object) -> TypeGuard[str]:
    """Whether a user or a group can have this name: 1 to 200 printable characters; `*` stands for all."""
    return isinstance(text, str) and 1 <= len(text) <= USER_MAX_CHARS and text.isprintable() and text != "*"


def check_user(name: str) -> None:
    """Raise InvalidArgument unless `name` can be that of somebody: `User:` and a name."""
    if name.startswith(USER) and is_name(name.removeprefix(USER)):
        return
    raise InvalidArgument(
        f"the principal {name[:100]!r} is not written as User:NAME, with a name of 1 to {USER_MAX_CHARS} "
        "printable characters"
    )
