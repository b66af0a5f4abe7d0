"""SASL: the mechanism, then its messages (KIP-43, KIP-152, KIP-368)."""

from typing import Annotated

from api.kafka.protocol.notation import Int16, Int64, Message, Versions


class SaslHandshakeRequest(Message):
    versions = Versions(0, 1)

    mechanism: str = ""


class SaslHandshakeResponse(Message):
    versions = Versions(0, 1)

    error_code: Int16 = 0
    mechanisms: list[str] = []


class SaslAuthenticateRequest(Message):
    versions = Versions(0, 2)
    first_flexible = 2

    auth_bytes: bytes = b""


class SaslAuthenticateResponse(Message):
    versions = Versions(0, 2)
    first_flexible = 2

    error_code: Int16 = 0
    error_message: str | None = ""
    auth_bytes: bytes = b""
    session_lifetime_ms: Annotated[Int64, Versions(1)] = 0
