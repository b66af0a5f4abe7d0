"""Who may do what: ACLs (KIP-140, KIP-290), quotas of clients (KIP-546), users of SCRAM (KIP-554)."""

from api.kafka.protocol.notation import Float64, Int8, Int16, Int32, Message, Struct, Versions


class DescribeAclsRequest(Message):
    versions = Versions(1, 3)
    first_flexible = 2

    resource_type_filter: Int8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: Int8 = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class AclDescription(Struct):
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DescribeAclsResource(Struct):
    resource_type: Int8 = 0
    resource_name: str = ""
    pattern_type: Int8 = 3
    acls: list[AclDescription] = []


class DescribeAclsResponse(Message):
    versions = Versions(1, 3)
    first_flexible = 2

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    resources: list[DescribeAclsResource] = []


class AclCreation(Struct):
    resource_type: Int8 = 0
    resource_name: str = ""
    resource_pattern_type: Int8 = 3
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class CreateAclsRequest(Message):
    versions = Versions(1, 3)
    first_flexible = 2

    creations: list[AclCreation] = []


class AclCreationResult(Struct):
    error_code: Int16 = 0
    error_message: str | None = ""


class CreateAclsResponse(Message):
    versions = Versions(1, 3)
    first_flexible = 2

    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult] = []


class DeleteAclsFilter(Struct):
    resource_type_filter: Int8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: Int8 = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsRequest(Message):
    versions = Versions(1, 3)
    first_flexible = 2

    filters: list[DeleteAclsFilter] = []


class DeleteAclsMatchingAcl(Struct):
    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""
    pattern_type: Int8 = 3
    principal: str = ""
    host: str = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DeleteAclsFilterResult(Struct):
    error_code: Int16 = 0
    error_message: str | None = ""
    matching_acls: list[DeleteAclsMatchingAcl] = []


class DeleteAclsResponse(Message):
    versions = Versions(1, 3)
    first_flexible = 2

    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult] = []


class ComponentData(Struct):
    entity_type: str = ""
    match_type: Int8 = 0
    match: str | None = ""


class DescribeClientQuotasRequest(Message):
    versions = Versions(0, 1)
    first_flexible = 1

    components: list[ComponentData] = []
    strict: bool = False


class EntityData(Struct):
    entity_type: str = ""
    entity_name: str | None = ""


class ValueData(Struct):
    key: str = ""
    value: Float64 = 0.0


class DescribedQuotas(Struct):
    entity: list[EntityData] = []
    values: list[ValueData] = []


class DescribeClientQuotasResponse(Message):
    versions = Versions(0, 1)
    first_flexible = 1

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    entries: list[DescribedQuotas] | None = []


class OpData(Struct):
    key: str = ""
    value: Float64 = 0.0
    remove: bool = False


class AlteredQuotas(Struct):
    entity: list[EntityData] = []
    ops: list[OpData] = []


class AlterClientQuotasRequest(Message):
    versions = Versions(0, 1)
    first_flexible = 1

    entries: list[AlteredQuotas] = []
    validate_only: bool = False


class AlteredQuotasResult(Struct):
    error_code: Int16 = 0
    error_message: str | None = ""
    entity: list[EntityData] = []


class AlterClientQuotasResponse(Message):
    versions = Versions(0, 1)
    first_flexible = 1

    throttle_time_ms: Int32 = 0
    entries: list[AlteredQuotasResult] = []


class UserName(Struct):
    name: str = ""


class DescribeUserScramCredentialsRequest(Message):
    versions = Versions(0, 0)
    first_flexible = 0

    users: list[UserName] | None = []


class CredentialInfo(Struct):
    mechanism: Int8 = 0
    iterations: Int32 = 0


class DescribeUserScramCredentialsResult(Struct):
    user: str = ""
    error_code: Int16 = 0
    error_message: str | None = ""
    credential_infos: list[CredentialInfo] = []


class DescribeUserScramCredentialsResponse(Message):
    versions = Versions(0, 0)
    first_flexible = 0

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    results: list[DescribeUserScramCredentialsResult] = []


class ScramCredentialDeletion(Struct):
    name: str = ""
    mechanism: Int8 = 0


class ScramCredentialUpsertion(Struct):
    name: str = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: bytes = b""
    salted_password: bytes = b""

    def __repr__(self) -> str:
        return f"ScramCredentialUpsertion(name={self.name!r}, mechanism={self.mechanism})"


class AlterUserScramCredentialsRequest(Message):
    versions = Versions(0, 0)
    first_flexible = 0

    deletions: list[ScramCredentialDeletion] = []
    upsertions: list[ScramCredentialUpsertion] = []


class AlterUserScramCredentialsResult(Struct):
    user: str = ""
    error_code: Int16 = 0
    error_message: str | None = ""


class AlterUserScramCredentialsResponse(Message):
    versions = Versions(0, 0)
    first_flexible = 0

    throttle_time_ms: Int32 = 0
    results: list[AlterUserScramCredentialsResult] = []
