"""The principal of a request, which authentication has put into its scope."""

from starlette.types import Scope

from coordinator.access.principal import RequestContext

CONTEXT = "lakelog.context"
"""The key of an ASGI scope for its RequestContext. A public path has none, nor has an open gateway."""


def caller(scope: Scope) -> str:
    """The name of the principal and its address, for logs: one line, however long the name is."""
    context: RequestContext | None = scope.get(CONTEXT)
    return "somebody" if context is None else f"{context.principal.name[:200]!r} at {context.host}"
