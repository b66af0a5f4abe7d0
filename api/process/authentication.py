"""The authentication of every request, after the checks of its head.

A request of another gateway is left to the peer middleware, which admits no other, and takes from it whose
request it forwards.
"""

from starlette.types import Scope

from api.caller import CONTEXT
from api.gateway import Gateway
from api.requests.access import PUBLIC_PATHS, host_of, is_login
from api.requests.credential import SUBJECT, credential, note_refusal
from api.requests.heads import TARGETED, heads
from coordinator.access.principal import RequestContext
from log_tables.errors import AuthenticationFailed, NotLeader, QuotaReached


async def authenticate(here: Gateway, scope: Scope) -> None:
    """Put the RequestContext of a request into `scope`. A credential that is refused is audited.

    Raises AuthenticationFailed without a right credential, QuotaReached after many wrong ones; NotLeader
    while the cluster is secured, and this gateway is not configured for it.
    """
    try:
        await _authenticate(here, scope)
    except (AuthenticationFailed, QuotaReached) as error:
        note_refusal(here, scope, error)
        raise


async def _authenticate(here: Gateway, scope: Scope) -> None:
    access = here.access
    if scope["path"] in PUBLIC_PATHS:
        return
    if access.is_shut:
        raise NotLeader("this gateway authenticates nobody, and its cluster is secured; ask another one")
    if here.settings.ssl_client_auth == "required" and SUBJECT not in scope and TARGETED not in heads(scope):
        raise AuthenticationFailed("this gateway wants a certificate of its clients; connect with one")
    if access.is_open or TARGETED in heads(scope) or is_login(scope):
        return
    header, subject, host = credential(here, scope), scope.get(SUBJECT), host_of(scope)
    principal = access.known(header, subject)
    if principal is None:
        principal = await access.verify(header, subject, host)
    scope[CONTEXT] = RequestContext(principal, host)
