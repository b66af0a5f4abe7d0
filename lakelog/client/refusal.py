"""A gateway's refusal in Python: the error that its answer names."""

from collections.abc import Mapping

import httpx

from log_tables import errors
from log_tables.errors import LakelogError

_ERRORS: Mapping[int, type[LakelogError]] = {
    400: errors.InvalidRequest,
    408: errors.InvalidRequest,
    409: errors.Conflict,
    413: errors.RecordTooLarge,
    415: errors.InvalidRequest,
    40002: errors.InvalidRequest,
    40101: errors.AuthenticationFailed,
    40301: errors.AuthorizationFailed,
    40310: errors.StaleProducerEpoch,
    40401: errors.UnknownTopic,
    40402: errors.UnknownPartition,
    40403: errors.UnknownMember,
    40405: errors.UnknownGroup,
    40902: errors.MemberExists,
    40903: errors.MixedSubscription,
    40910: errors.SequenceGap,
    40911: errors.RetryKeyReused,
    40912: errors.StaleGeneration,
    40913: errors.NotAssigned,
    40914: errors.GroupNotEmpty,
    40915: errors.InconsistentGroupProtocol,
    41201: errors.OffsetMismatch,
    41601: errors.OffsetOutOfRange,
    42901: errors.BufferFull,
    42204: errors.InvalidConsumer,
    42206: errors.InvalidRecord,
    42210: errors.InvalidValue,
    50003: errors.NotLeader,
    50303: errors.OutcomeUnknown,
}


_DENIED = {401: errors.AuthenticationFailed, 403: errors.AuthorizationFailed}


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
    return _ERRORS.get(code, LakelogError)(message, **{**_retry_after(answer), **body})


def _retry_after(answer: httpx.Response) -> dict[str, float]:
    """Retry-After, in seconds, where the answer has one."""
    text = answer.headers.get("Retry-After", "")
    return {"retry_after_s": float(text)} if text.isdecimal() else {}
