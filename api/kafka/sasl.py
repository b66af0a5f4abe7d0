"""SaslHandshake names a mechanism, SaslAuthenticate brings its messages (KIP-43, KIP-152, KIP-368).

An authenticated connection may log in again, as the same principal. A refusal ends the connection after its
answer.
"""

from api.kafka.clients.client import Client
from api.kafka.clients.door import Door
from api.kafka.clients.errors import ErrorCode
from api.kafka.clients.sasl_session import SaslSession
from api.kafka.protocol.messages.handshake import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from log_tables.errors import AuthenticationFailed

_NO_LOGIN = "this gateway authenticates nobody; connect without SASL"
_NO_HANDSHAKE = "SaslAuthenticate comes after a SaslHandshake of version 1; send that first"


async def sasl_handshake(
    _door: Door, client: Client, request: SaslHandshakeRequest, version: int
) -> SaslHandshakeResponse:
    """After version 0 the messages are frames of their own, and there is no login again."""
    offered = client.access.sasl_mechanisms
    code = ErrorCode.NONE
    if client.sasl is not None or (version == 0 and client.context is not None):
        code = ErrorCode.ILLEGAL_SASL_STATE
    elif request.mechanism not in offered:
        code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
    else:
        client.sasl = SaslSession(client.access, request.mechanism, client.host, version == 0)
    if client.access.is_open:
        code = ErrorCode.ILLEGAL_SASL_STATE  # and the connection goes on, as at Kafka's brokers
    else:
        client.is_ending = code is not ErrorCode.NONE
    return SaslHandshakeResponse(error_code=code, mechanisms=[*offered])


async def sasl_authenticate(
    _door: Door, client: Client, request: SaslAuthenticateRequest, _version: int
) -> SaslAuthenticateResponse:
    """Raises QuotaReached and Retriable, which say nothing about the credential: the connection ends without
    an answer, and the client tries again.
    """
    if client.sasl is None:
        client.is_ending = not client.access.is_open
        why = _NO_LOGIN if client.access.is_open else _NO_HANDSHAKE
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=why)
    try:
        answer = await client.authenticate(client.sasl, request.auth_bytes)
    except AuthenticationFailed as error:
        client.is_ending = True
        return SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=error.message
        )
    return SaslAuthenticateResponse(
        error_message=None, auth_bytes=answer, session_lifetime_ms=client.lifetime_ms
    )
