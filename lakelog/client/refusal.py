"""A gateway's refusal in Python: the error that its answer names."""

from collections.abc import Mapping

import httpx

from log_tables import errors
from log_tables.error_codes import ERROR_CODES, INTERNAL
from log_tables.errors import LakelogError

_BY_CODE: Mapping[int, type[LakelogError]] = {
    code: kind for kind, code in reversed([*ERROR_CODES.items()]) if code != INTERNAL
}
"""The first class of each code."""

_DENIED = {401: errors.AuthenticationFailed, 403: errors.AuthorizationFailed}


def kind_of(code: int) -> type[LakelogError]:
    """The class of errors with this code. One that is not known here goes by its first three digits."""
    status = int(str(code)[:3])
    by_status = errors.InvalidRequest if 400 <= status < 500 else LakelogError
    return _BY_CODE.get(code) or _BY_CODE.get(status) or _DENIED.get(status) or by_status


def refusal(answer: httpx.Response) -> LakelogError:
    """The error that an answer names."""
    try:
        body = answer.json()
        code, message = int(body.pop("error_code")), str(body.pop("message"))
    except (KeyError, TypeError, ValueError, AttributeError):
        said = f"the gateway answered {answer.status_code} without saying why"
        if answer.status_code in _DENIED:
            return _DENIED[answer.status_code](f"{said}; a proxy may want another credential")
        # The answer is that of a proxy, which does not know whether the gateway has done it.
        lost = answer.status_code in (502, 503, 504)
        return errors.OutcomeUnknown(f"{said}; look before repeating") if lost else LakelogError(said)
    return kind_of(code)(message, **{**_retry_after(answer), **body})


def _retry_after(answer: httpx.Response) -> dict[str, float]:
    """Retry-After, in seconds, where the answer has one."""
    text = answer.headers.get("Retry-After", "")
    return {"retry_after_s": float(text)} if text.isdecimal() else {}
