"""The settings of topics and brokers: read, replaced all together, changed one by one (KIP-339)."""

from typing import Annotated

from api.kafka.protocol.notation import Int8, Int16, Int32, Message, Struct, Versions


class DescribeConfigsResource(Struct):
    resource_type: Int8 = 0
    resource_name: str = ""
    configuration_keys: list[str] | None = []


class DescribeConfigsRequest(Message):
    versions = Versions(1, 4)
    first_flexible = 4

    resources: list[DescribeConfigsResource] = []
    include_synonyms: bool = False
    include_documentation: Annotated[bool, Versions(3)] = False


class DescribeConfigsSynonym(Struct):
    name: str = ""
    value: str | None = ""
    source: Int8 = 0


class DescribeConfigsResourceResult(Struct):
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: Int8 = -1
    is_sensitive: bool = False
    synonyms: list[DescribeConfigsSynonym] = []
    config_type: Annotated[Int8, Versions(3)] = 0
    documentation: Annotated[str | None, Versions(3)] = ""


class DescribeConfigsResult(Struct):
    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[DescribeConfigsResourceResult] = []


class DescribeConfigsResponse(Message):
    versions = Versions(1, 4)
    first_flexible = 4

    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = []


class AlterableConfig(Struct):
    name: str = ""
    value: str | None = ""


class AlterConfigsResource(Struct):
    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = []


class AlterConfigsRequest(Message):
    versions = Versions(0, 2)
    first_flexible = 2

    resources: list[AlterConfigsResource] = []
    validate_only: bool = False


class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = 0
    error_message: str | None = ""
    resource_type: Int8 = 0
    resource_name: str = ""


class AlterConfigsResponse(Message):
    versions = Versions(0, 2)
    first_flexible = 2

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []


class ListConfigResourcesRequest(Message):
    versions = Versions(0, 1)
    first_flexible = 0

    resource_types: Annotated[list[Int8], Versions(1)] = []


class ConfigResource(Struct):
    resource_name: str = ""
    resource_type: Annotated[Int8, Versions(1)] = 16


class ListConfigResourcesResponse(Message):
    versions = Versions(0, 1)
    first_flexible = 0

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource] = []


class IncrementalConfig(Struct):
    name: str = ""
    config_operation: Int8 = 0
    value: str | None = ""


class IncrementalConfigsResource(Struct):
    resource_type: Int8 = 0
    resource_name: str = ""
    configs: list[IncrementalConfig] = []


class IncrementalAlterConfigsRequest(Message):
    versions = Versions(0, 1)
    first_flexible = 1

    resources: list[IncrementalConfigsResource] = []
    validate_only: bool = False


class IncrementalAlterConfigsResponse(Message):
    versions = Versions(0, 1)
    first_flexible = 1

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []
