"""IncrementalAlterConfigs: settings changed one by one (KIP-339). It shares names with AlterConfigs."""

from api.kafka.protocol.messages.configs import AlterConfigsResourceResponse
from api.kafka.protocol.notation import Int8, Int32, Message, Struct, Versions


class AlterableConfig(Struct):
    name: str = ""
    config_operation: Int8 = 0
    value: str | None = ""


class AlterConfigsResource(Struct):
    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = []


class IncrementalAlterConfigsRequest(Message):
    versions = Versions(0, 1)
    first_flexible = 1

    resources: list[AlterConfigsResource] = []
    validate_only: bool = False


class IncrementalAlterConfigsResponse(Message):
    versions = Versions(0, 1)
    first_flexible = 1

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []
