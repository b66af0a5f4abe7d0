"""Names that the shell completes: the topics and groups of the gateway that the command would ask."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lakelog.cli.common import GATEWAY, security_options
from lakelog.cli.contexts import applied
from log_tables.errors import LakelogError

if TYPE_CHECKING:
    from lakelog.client.client import Client

ASKED_S = 1.0
"""How long somebody waits who has pressed Tab."""


def topics(ctx: Any, incomplete: str) -> list[str]:
    """The topics whose names begin so; none where no gateway tells."""
    return _beginning(ctx, incomplete, lambda client: client.topics())


def groups(ctx: Any, incomplete: str) -> list[str]:
    """The groups whose names begin so."""
    return _beginning(ctx, incomplete, lambda client: [each["group"] for each in client.groups()])


def _beginning(ctx: Any, incomplete: str, names: "Callable[[Client], list[str]]") -> list[str]:
    source = ctx.get_parameter_source("url")
    named = source is not None and source.name == "COMMANDLINE"
    try:
        with applied(["--url"] if named else []):
            from lakelog.client.client import Client

            url = ctx.params["url"] if named else os.environ.get("LAKELOG_URL", GATEWAY)
            with Client(url, timeout_s=ASKED_S, **security_options()) as client:
                return [name for name in names(client) if name.startswith(incomplete)]
    except (LakelogError, OSError):
        return []
