"""The one table from error classes to HTTP: class → (status, error_code).

The codes of errors that are not only HTTP's are in log_tables/error_codes.py. Every error of every route has
the body `{"error_code": int, "message": str}`, and the facts that a program needs (`log_start_offset`,
`expected` …). No answer shows a stack trace or a path.
"""

import logging
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

import msgspec
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from api.access_log import caller
from log_tables import error_codes, errors
from log_tables.error_codes import ERROR_CODES, NAMED, status_of
from log_tables.errors import LakelogError, nearest

_log = logging.getLogger(__name__)


class MalformedBody(errors.InvalidRequest):
    """The body does not have the form that its media type names: broken JSON, a torn Arrow stream."""

    code = "malformed_body"


class RequestTooLarge(errors.InvalidRequest):
    code = "request_too_large"


class RequestTimeout(errors.InvalidRequest):
    """The body did not arrive in time; the client may send it again."""

    code = "request_timeout"


class HeadTooLarge(errors.InvalidRequest):
    """The request line and the headers are larger than the gateway reads."""

    code = "head_too_large"


class UrlTooLong(HeadTooLarge):
    code = "url_too_long"


class TooManyConnections(errors.Retriable):
    """The gateway has as many connections as it accepts."""

    code = "too_many_connections"


class UnsupportedMediaType(errors.InvalidRequest):
    """The message names the supported media types."""

    code = "unsupported_media_type"


class FormatMismatch(errors.InvalidRequest):
    """The route cannot answer in any format that `Accept` allows."""

    code = "format_mismatch"


class ForeignHost(errors.InvalidRequest):
    """`Host` is no name of this gateway: the name of some web page leads here (DNS rebinding)."""

    code = "foreign_host"


class ForeignOrigin(errors.InvalidRequest):
    """A page of another origin sends a request that only pages of this origin may send."""

    code = "foreign_origin"


class KeySchemaMissing(errors.InvalidRequest):
    """Keys are sent in a format with schemas, and no schema is named."""

    code = "key_schema_missing"


class ValueSchemaMissing(errors.InvalidRequest):
    """Values are sent in a format with schemas, and no schema is named."""

    code = "value_schema_missing"


class InvalidSchemaNamed(errors.InvalidRecord):
    """The schema that a request names is not known, is not registered, or cannot be used."""

    code = "invalid_schema"


class NotJson(errors.InvalidRequest):
    """A stored key or value is not JSON, and the client asked for JSON."""

    code = "not_json"


INTERNAL = (status_of(error_codes.INTERNAL), error_codes.INTERNAL)
BAD_REQUEST = (status_of(error_codes.BAD_REQUEST), error_codes.BAD_REQUEST)

_OF_HTTP: Mapping[type[LakelogError], int] = {
    MalformedBody: 400,
    RequestTimeout: 408,
    RequestTooLarge: 413,
    UrlTooLong: 414,
    HeadTooLarge: 431,
    TooManyConnections: error_codes.RETRIABLE,
    UnsupportedMediaType: 415,
    FormatMismatch: 40601,
    ForeignHost: 421,
    ForeignOrigin: 403,
    KeySchemaMissing: 42201,
    ValueSchemaMissing: 42202,
    NotJson: 42203,
    InvalidSchemaNamed: 42205,
}

STATUS_AND_CODE: Mapping[type[LakelogError], tuple[int, int]] = {
    kind: (status_of(code), code) for kind, code in {**ERROR_CODES, **_OF_HTTP}.items()
}
"""A class that is not listed answers as the nearest class above it does."""


class ErrorBody(BaseModel):
    """The body of every answer that is not a success."""

    model_config = ConfigDict(extra="allow")

    error_code: int = Field(description="The kind of error, for programs.", examples=[40401])
    message: str = Field(description="The cause, with the value at fault, and the next step.")


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that may answer with these statuses, for OpenAPI."""
    return {status: {"model": ErrorBody} for status in statuses}


ANY_OTHER_ERROR: dict[int | str, dict[str, Any]] = {
    "default": {"model": ErrorBody, "description": "Any other error"}
}
"""The `responses` that every route has, for OpenAPI."""


def status_and_code(error: LakelogError) -> tuple[int, int]:
    """(HTTP status, error_code) of `error`, by the nearest of its classes that is in the table."""
    return nearest(STATUS_AND_CODE, error)


def code_of(error: LakelogError) -> int:
    """The error_code of `error`."""
    return status_and_code(error)[1]


def error_code_of(response: Response) -> int:
    """The error_code of an answer that is not a success; its status if it has none."""
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(response.body, type=_Code).error_code
    return response.status_code


class _Code(msgspec.Struct):
    error_code: int


def error_response(error: LakelogError) -> Response:
    """The answer to a request that failed with `error`."""
    status, code = status_and_code(error)
    name = {"error": error.code} if type(error) in NAMED else {}
    return _answer(status, code, error.message, {**name, **error.details}, _headers(error))


CHALLENGE = 'Bearer realm="lakelog", Basic realm="lakelog", charset="UTF-8"'
"""The credentials that are taken (RFC 9110, 11.6.1; RFC 7617)."""


def _headers(error: LakelogError) -> dict[str, str]:
    match error:
        case errors.AuthenticationFailed():
            return {"WWW-Authenticate": CHALLENGE}
        case errors.SequenceGap():
            return {"Producer-Expected-Seq": str(error.details["expected"])}
        case errors.BufferFull() | errors.QuotaReached() if "retry_after_s" in error.details:
            # Whole seconds (RFC 9110), and never 0: an immediate repeat would only fill the buffer again.
            return {"Retry-After": str(max(1, math.ceil(float(error.details["retry_after_s"]))))}
        case errors.Retriable():
            return {"Retry-After": "1"}
    return {}


def _answer(
    status: int,
    code: int,
    message: str,
    details: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    body = {"error_code": code, "message": message, **(details or {})}
    return Response(msgspec.json.encode(body), status, dict(headers or {}), "application/json")


def drop_frames(error: LakelogError) -> None:
    """Let go of the frames that `error` came through, once it is answered.

    The future of a thread keeps its error, whose traceback keeps the future, and the body of the request.
    Without it they go at once, else at some later look for garbage.
    """
    error.__traceback__ = error.__context__ = None


async def _on_lakelog_error(request: Request, error: Exception) -> Response:
    error = cast(LakelogError, error)
    if isinstance(error, errors.ObjectMissing | errors.AlreadyExists):
        return _internal(request, error)  # their messages are paths, which no client should see
    drop_frames(error)
    _count(request, status_and_code(error)[1])
    return error_response(error)


async def _on_validation_error(request: Request, error: Exception) -> Response:
    """A parameter or a body does not fit its schema: the answer names each problem, with its value."""
    problems = cast(RequestValidationError, error).errors()
    if any(problem["type"] == "json_invalid" for problem in problems):
        answer = (*STATUS_AND_CODE[MalformedBody], "the body is not JSON; send a JSON object")
    elif any(problem["loc"][0] == "body" for problem in problems):
        answer = (*STATUS_AND_CODE[errors.InvalidRecord], "; ".join(map(explain, problems)))
    else:
        answer = (*BAD_REQUEST, "; ".join(map(explain, problems)))
    _count(request, answer[1])
    return _answer(*answer)


def explain(problem: Mapping[str, Any]) -> str:
    """One problem of a validation, with its value."""
    loc = problem["loc"][1:] if problem["loc"] and problem["loc"][0] in _PLACES else problem["loc"]
    where = ".".join(map(str, loc)) or "body"
    if problem["type"] == "missing":
        return f"{where} is missing"
    return f"{where} = {_shown(problem['input'])}: {problem['msg']}"


_PLACES = ("body", "query", "path", "header")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "…"


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """The path does not exist, or does not have this method."""
    error = cast(HTTPException, error)
    message = f"{request.method} {request.url.path[:300]}: {error.detail}; see /docs"
    _count(request, error.status_code)
    return _answer(error.status_code, error.status_code, message, None, error.headers)


async def _on_disconnect(request: Request, _: Exception) -> Response:
    """The client closed the connection in the middle of its request: nobody reads the answer."""
    return _answer(*STATUS_AND_CODE[MalformedBody], "the connection was closed before the whole body came")


async def answer_to(request: Request, error: Exception) -> Response:
    """The answer to `request`, which failed with `error`."""
    if isinstance(error, LakelogError):
        return await _on_lakelog_error(request, error)
    handle = _on_disconnect if isinstance(error, ClientDisconnect) else _on_any_other_error
    return await handle(request, error)


async def _on_any_other_error(request: Request, error: Exception) -> Response:
    return _internal(request, error)


def _internal(request: Request, error: Exception) -> Response:
    reference = request.app.state.gateway.clock.random_hex(12)
    asked = request.method, request.url.path, caller(request.scope)
    _log.error("internal error %s: %s %s of %s", reference, *asked, exc_info=error)
    _count(request, INTERNAL[1])
    return _answer(*INTERNAL, f"internal error {reference}: see the gateway's log")


def _count(request: Request, code: int) -> None:
    request.app.state.gateway.metrics.request_failed(code)


def add_error_handlers(app: Starlette) -> None:
    """Answer every failure of `app` in the one form of errors."""
    app.add_exception_handler(LakelogError, _on_lakelog_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(Exception, _on_any_other_error)
