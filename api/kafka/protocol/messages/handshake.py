"""How a connection begins: the versions on offer (KIP-35, KIP-511, KIP-1242), and SASL.

SASL is that of KIP-43, KIP-152 and KIP-368.
"""

from typing import Annotated

from api.kafka.protocol.notation import Int16, Int32, Int64, Message, Struct, Tagged, Versions


class ApiVersionsRequest(Message):
    versions = Versions(0, 5)
    first_flexible = 3

    client_software_name: Annotated[str, Versions(3)] = ""
    client_software_version: Annotated[str, Versions(3)] = ""
    cluster_id: Annotated[str | None, Versions(5)] = None
    node_id: Annotated[Int32, Versions(5)] = -1


class ApiVersion(Struct):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Struct):
    name: str = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeatureKey(Struct):
    name: str = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


class ApiVersionsResponse(Message):
    versions = Versions(0, 5)
    first_flexible = 3
    flexible_header = False

    error_code: Int16 = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: Annotated[Int32, Versions(1)] = 0
    supported_features: Annotated[list[SupportedFeatureKey], Versions(3), Tagged(0)] = []
    finalized_features_epoch: Annotated[Int64, Versions(3), Tagged(1)] = -1
    finalized_features: Annotated[list[FinalizedFeatureKey], Versions(3), Tagged(2)] = []
    zk_migration_ready: Annotated[bool, Versions(3), Tagged(3)] = False


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
