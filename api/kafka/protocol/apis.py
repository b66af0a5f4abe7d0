"""The APIs that are described: their keys, their versions and their messages."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from api.kafka.protocol.messages.cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from api.kafka.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from api.kafka.protocol.messages.coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from api.kafka.protocol.messages.fetch import FetchRequest, FetchResponse
from api.kafka.protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from api.kafka.protocol.messages.incremental_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from api.kafka.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from api.kafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from api.kafka.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from api.kafka.protocol.messages.produce import ProduceRequest, ProduceResponse
from api.kafka.protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from api.kafka.protocol.messages.security import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from api.kafka.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from api.kafka.protocol.messages.versions import ApiVersionsRequest, ApiVersionsResponse
from api.kafka.protocol.notation import Message


class Api(NamedTuple):
    """An API: a request, and the response to it in the same version."""

    key: int
    request: type[Message]
    response: type[Message]
    advertised_min: int
    """The least version that ApiVersions names. It is below `min_version` where clients take it for a sign of
    something else: librdkafka before 2.11.1 does not compress unless it sees Produce 0 (KAFKA-18659)."""

    @property
    def name(self) -> str:
        return self.request.__name__.removesuffix("Request")

    @property
    def min_version(self) -> int:
        return self.request.versions.first

    @property
    def max_version(self) -> int:
        return self.request.versions.last

    @property
    def first_flexible(self) -> int:
        return self.request.first_flexible


def _api(key: int, request: type[Message], response: type[Message], advertised_min: int | None = None) -> Api:
    least = request.versions.first if advertised_min is None else advertised_min
    return Api(key, request, response, least)


PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
DELETE_RECORDS: Final = 21
INIT_PRODUCER_ID: Final = 22
DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
DESCRIBE_LOG_DIRS: Final = 35
SASL_AUTHENTICATE: Final = 36
CREATE_PARTITIONS: Final = 37
DELETE_GROUPS: Final = 42
INCREMENTAL_ALTER_CONFIGS: Final = 44
LIST_PARTITION_REASSIGNMENTS: Final = 46
OFFSET_DELETE: Final = 47
DESCRIBE_CLUSTER: Final = 60
CONSUMER_GROUP_HEARTBEAT: Final = 68
LIST_CONFIG_RESOURCES: Final = 74
DESCRIBE_TOPIC_PARTITIONS: Final = 75

_APIS = [
    _api(PRODUCE, ProduceRequest, ProduceResponse, advertised_min=0),
    _api(FETCH, FetchRequest, FetchResponse),
    _api(LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse),
    _api(METADATA, MetadataRequest, MetadataResponse),
    _api(OFFSET_COMMIT, OffsetCommitRequest, OffsetCommitResponse),
    _api(OFFSET_FETCH, OffsetFetchRequest, OffsetFetchResponse),
    _api(FIND_COORDINATOR, FindCoordinatorRequest, FindCoordinatorResponse),
    _api(JOIN_GROUP, JoinGroupRequest, JoinGroupResponse),
    _api(HEARTBEAT, HeartbeatRequest, HeartbeatResponse),
    _api(LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse),
    _api(SYNC_GROUP, SyncGroupRequest, SyncGroupResponse),
    _api(DESCRIBE_GROUPS, DescribeGroupsRequest, DescribeGroupsResponse),
    _api(LIST_GROUPS, ListGroupsRequest, ListGroupsResponse),
    _api(SASL_HANDSHAKE, SaslHandshakeRequest, SaslHandshakeResponse),
    _api(API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse),
    _api(CREATE_TOPICS, CreateTopicsRequest, CreateTopicsResponse),
    _api(DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicsResponse),
    _api(DELETE_RECORDS, DeleteRecordsRequest, DeleteRecordsResponse),
    _api(INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse),
    _api(DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResponse),
    _api(ALTER_CONFIGS, AlterConfigsRequest, AlterConfigsResponse),
    _api(DESCRIBE_LOG_DIRS, DescribeLogDirsRequest, DescribeLogDirsResponse),
    _api(SASL_AUTHENTICATE, SaslAuthenticateRequest, SaslAuthenticateResponse),
    _api(CREATE_PARTITIONS, CreatePartitionsRequest, CreatePartitionsResponse),
    _api(DELETE_GROUPS, DeleteGroupsRequest, DeleteGroupsResponse),
    _api(INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
    _api(LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
    _api(OFFSET_DELETE, OffsetDeleteRequest, OffsetDeleteResponse),
    _api(DESCRIBE_CLUSTER, DescribeClusterRequest, DescribeClusterResponse),
    _api(CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
    _api(LIST_CONFIG_RESOURCES, ListConfigResourcesRequest, ListConfigResourcesResponse),
    _api(DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
]

APIS: Final[Mapping[int, Api]] = MappingProxyType({api.key: api for api in _APIS})
"""All of them by their keys. Which of them a gateway offers is for the door to say."""
