"""Logging in: a credential becomes a session, and a session ends. It works without scripts."""

import base64
from typing import Annotated
from urllib.parse import parse_qs, unquote

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.console.drawing.page import HEADERS, render
from api.console.drawing.page_route import LOGIN, PageRoute
from api.errors import status_and_code
from api.gateway import Gateway
from api.requests.access import host_of
from api.requests.body import take_body
from api.requests.route_gateway import Here
from log_tables.cluster.credential import AuthenticationMethod
from log_tables.errors import AuthenticationFailed, InvalidArgument, LakelogError

router = APIRouter(prefix="/console", include_in_schema=False, route_class=PageRoute)

FIELDS_MAX = 20

FORM_MAX_BYTES = 20_000
"""Of a login: a password has at most some thousand."""

ENTRY = "/console"


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
