"""Logging in: a credential becomes a session, and a session ends. It works without scripts.

At the OIDC provider it is the code flow with PKCE (OpenID Connect Core 1.0, 3.1; RFC 7636). The token that
comes of it is the credential of the session, checked at each request as every bearer token. It is the access
token if that is meant for this cluster (`oidc_audience`), else the ID token.
"""

import base64
import hashlib
import hmac
import ssl
from collections.abc import Callable, Coroutine
from typing import Annotated, Any
from urllib.parse import parse_qs, unquote, urlencode

import msgspec
from fastapi import APIRouter, Query
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.console.page import HEADERS, render
from api.console.page_route import ENTRY, LOGIN, PageRoute
from api.errors import status_and_code
from api.gateway import Gateway
from api.requests.access import host_of
from api.requests.body import take_body
from api.requests.route_gateway import Here
from api.session import LoginState
from log_tables.cluster.credential import AuthenticationMethod
from log_tables.errors import AuthenticationFailed, InvalidArgument, LakelogError, NotFound, Retriable

router = APIRouter(prefix="/console", include_in_schema=False, route_class=PageRoute)

FIELDS_MAX = 20

FORM_MAX_BYTES = 20_000
"""Of a login: a password has at most some thousand."""

_PATH = "/console/login/oidc"
_CALLBACK = f"{_PATH}/callback"
_COOKIE = "lakelog_login"
LOGIN_MS = 10 * 60 * 1000
"""How long a login at the provider may take."""

EXCHANGE_S = 10.0
"""How long the provider may take to give the tokens."""

_DIGITS = 48
_SAID_MAX_CHARS = 200


@router.get("/login")
async def login_page(
    request: Request, here: Here, following: Annotated[str, Query(alias="next")] = ENTRY
) -> Response:
    """The form."""
    return login_form(request, here, following)


@router.post("/login")
async def log_in(request: Request, here: Here) -> Response:
    """Begin a session with the credential in the form."""
    form = _fields(request)
    following = form.get("next", ENTRY)
    try:
        header = _header(form)
        await here.access.verify(header, None, host_of(request.scope))
        cookie = here.sessions.seal(header)
    except LakelogError as error:
        here.access.note_refusal(_header_or_none(form), host_of(request.scope), error)
        return login_form(request, here, following, error)
    return begun(here, cookie, following)


@router.post("/logout")
async def log_out(request: Request, here: Here) -> Response:
    """End the session of this browser."""
    answer = RedirectResponse(LOGIN, 303, HEADERS)
    here.sessions.end(answer)
    return answer


def begun(here: Gateway, cookie: str, following: str) -> Response:
    """The answer that begins a session, and leads to the page `following`."""
    answer = RedirectResponse(local_path(following), 303, HEADERS)
    here.sessions.give(answer, cookie)
    return answer


def local_path(path: str) -> str:
    """`path` if it is one of the console, else its entry: a login leads to no other place."""
    named, _, _ = path.partition("?")
    steps = unquote(named).split("/")
    inside = named == ENTRY or (named.startswith(ENTRY + "/") and not {"", ".", ".."} & {*steps[2:]})
    return path if inside and path.isprintable() and "\\" not in unquote(named) else ENTRY


def login_form(
    request: Request, here: Gateway, following: str, error: LakelogError | None = None
) -> Response:
    """The page that asks for a credential, with the `error` of the last one; it leads on to `following`."""
    methods = here.settings.authentication_methods
    values = {
        "next": local_path(following),
        "with_key": AuthenticationMethod.API_KEY in methods,
        "with_user": AuthenticationMethod.SCRAM in methods,
        "with_oidc": AuthenticationMethod.OIDC in methods and bool(here.settings.oidc_client_id),
        "provider": here.settings.oidc_issuer,
        "with_certificate": AuthenticationMethod.MTLS in methods,
        "error": "" if error is None else error.message,
        "is_open": here.access.is_open,
    }
    status = 200 if error is None else status_and_code(error)[0]
    return render(request, "login.html", values, None, status)


def _fields(request: Request) -> dict[str, str]:
    """The fields of a form, the first of each name. Raises InvalidArgument for a body that is too large."""
    body = take_body(request)
    if len(body) > FORM_MAX_BYTES:
        raise InvalidArgument(f"the form has more than {FORM_MAX_BYTES} bytes; send a name and a password")
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError:
        raise InvalidArgument(
            f"the form has more than {FIELDS_MAX} fields; send a name and a password"
        ) from None
    return {name: values[0] for name, values in fields.items()}


def _header(form: dict[str, str]) -> bytes:
    """The credential of a form as the header Authorization. Raises AuthenticationFailed without one."""
    if key := form.get("key", "").strip():
        return b"Bearer " + key.encode("utf-8", "replace")
    if form.get("user"):
        pair = f"{form['user']}:{form.get('password', '')}".encode("utf-8", "replace")
        return b"Basic " + base64.b64encode(pair)
    raise AuthenticationFailed("the form has no credential; fill in an API key, or a name and a password")


def _header_or_none(form: dict[str, str]) -> bytes | None:
    try:
        return _header(form)
    except AuthenticationFailed:
        return None


class _Tokens(msgspec.Struct):
    id_token: str
    access_token: str = ""


class _Claims(msgspec.Struct):
    nonce: str


class _CallbackRoute(PageRoute):
    """Providers put more into the address than they have to."""

    def inner_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return APIRoute.get_route_handler(self)


oidc = APIRouter(prefix=_PATH, include_in_schema=False, route_class=PageRoute)
callback = APIRouter(prefix=_CALLBACK, include_in_schema=False, route_class=_CallbackRoute)


@oidc.get("")
async def begin_oidc(
    request: Request, here: Here, following: Annotated[str, Query(alias="next")] = ENTRY
) -> Response:
    """Go to the provider. A cookie of this browser has what has to come back from it."""
    settings = here.settings
    if not settings.oidc_client_id:
        raise NotFound("this gateway knows no provider to log in at; see oidc_client_id")
    state, nonce, verifier = (here.clock.random_hex(_DIGITS) for _ in range(3))
    login = LoginState(state, nonce, verifier, local_path(following), here.clock.now_ms() + LOGIN_MS)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    query = {
        "response_type": "code",
        "client_id": settings.oidc_client_id,
        "redirect_uri": _redirect_uri(here),
        "scope": settings.oidc_scope,
        "state": state,
        "nonce": nonce,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    sign = "&" if "?" in settings.oidc_authorization_url else "?"
    answer = RedirectResponse(settings.oidc_authorization_url + sign + urlencode(query), 303, HEADERS)
    # Lax: the provider leads back here from its own site.
    answer.set_cookie(
        _COOKIE,
        here.sessions.seal_login(login),
        max_age=LOGIN_MS // 1000,
        path=_PATH,
        httponly=True,
        secure=here.sessions.is_secure,
        samesite="lax",
    )
    return answer


@callback.get("")
async def end_oidc(request: Request, here: Here) -> Response:
    """Take the code that the provider has given, and begin a session."""
    login = here.sessions.open_login(request.cookies.get(_COOKIE, ""))
    following = ENTRY if login is None else login.following
    try:
        header = await _credential(request, here, login)
        cookie = here.sessions.seal(header)
    except LakelogError as error:
        answer = login_form(request, here, following, error)
    else:
        # A page and no redirect: the browser sends a strict cookie only if it is led on from here.
        answer = render(request, "entered.html", {"following": following}, None)
        here.sessions.give(answer, cookie)
    answer.delete_cookie(_COOKIE, path=_PATH, httponly=True, secure=here.sessions.is_secure, samesite="lax")
    return answer


async def _credential(request: Request, here: Gateway, login: LoginState | None) -> bytes:
    """The header of the session. Raises AuthenticationFailed, QuotaReached, Retriable."""
    given = request.query_params
    if login is None or not hmac.compare_digest(login.state.encode(), given.get("state", "").encode()):
        raise AuthenticationFailed("this login was not begun in this browser, or took too long; log in again")
    if "code" not in given:
        said = given.get("error_description") or given.get("error") or "nothing"
        raise AuthenticationFailed(f"the provider says: {said[:_SAID_MAX_CHARS]}; log in again")
    tokens = await _exchange(here, given["code"], login.verifier)
    if not hmac.compare_digest(_nonce(tokens.id_token).encode(), login.nonce.encode()):
        raise AuthenticationFailed("the provider's token is of another login; log in again")
    host, failed = host_of(request.scope), AuthenticationFailed("")
    for token in (tokens.access_token, tokens.id_token):
        header = b"Bearer " + token.encode("latin-1", "replace")
        try:
            await here.access.verify(header, None, host)
        except AuthenticationFailed as error:
            failed = error
        else:
            return header
    here.access.note_refusal(None, host, failed)
    raise AuthenticationFailed(
        f"neither token of the provider is meant for {here.settings.oidc_audience!r}, or its user has no name"
        " here; ask an administrator"
    )


async def _exchange(here: Gateway, code: str, verifier: str) -> _Tokens:
    """The tokens for a code. Raises AuthenticationFailed, Retriable."""
    import httpx  # here, as it takes a tenth of a second to load, and few gateways need it

    settings, secret = here.settings, here.settings.oidc_client_secret.get_secret_value()
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": _redirect_uri(here),
        "client_id": settings.oidc_client_id,
        "code_verifier": verifier,
    }
    auth = httpx.BasicAuth(settings.oidc_client_id, secret) if secret else None
    trusted = ssl.create_default_context()
    try:
        async with httpx.AsyncClient(verify=trusted, timeout=EXCHANGE_S, trust_env=False) as client:
            answer = await client.post(
                settings.oidc_token_url, data=form, auth=auth or httpx.USE_CLIENT_DEFAULT
            )
    except httpx.HTTPError:
        raise Retriable("the provider does not answer; log in again") from None
    try:
        if answer.status_code != 200:
            raise AuthenticationFailed(
                f"the provider gave no token, but answered {answer.status_code}; log in again"
            )
        return msgspec.json.decode(answer.content, type=_Tokens)
    except msgspec.MsgspecError:
        raise AuthenticationFailed("the provider gave no ID token; ask an administrator") from None


def _nonce(token: str) -> str:
    """The nonce of an ID token. It has come from the provider itself, so it is not checked again."""
    try:
        payload = token.split(".")[1]
        claims = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        return msgspec.json.decode(claims, type=_Claims).nonce
    except (IndexError, ValueError):  # those of msgspec are, too
        return ""


def _redirect_uri(here: Gateway) -> str:
    return here.settings.advertised_url.rstrip("/") + _CALLBACK
