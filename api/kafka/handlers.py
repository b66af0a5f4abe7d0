"""The APIs that this door offers, and the answer to each request."""

from collections.abc import Mapping
from typing import Any

from api.kafka.clients.access import rule_of
from api.kafka.clients.client import Client
from api.kafka.clients.door import Door, Handler
from api.kafka.cluster import describe_cluster, list_partition_reassignments
from api.kafka.groups.committed import offset_commit, offset_delete, offset_fetch
from api.kafka.groups.group_admin import delete_groups, describe_groups, list_groups
from api.kafka.groups.members import (
    consumer_group_heartbeat,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    sync_group,
)
from api.kafka.logs.fetch import fetch
from api.kafka.logs.list_offsets import list_offsets
from api.kafka.logs.producers import init_producer_id
from api.kafka.protocol import apis
from api.kafka.protocol.messages.handshake import ApiVersion, ApiVersionsResponse
from api.kafka.sasl import sasl_authenticate, sasl_handshake
from api.kafka.topics.config_changes import alter_configs, incremental_alter_configs
from api.kafka.topics.configs import describe_configs, list_config_resources
from api.kafka.topics.deleted_records import delete_records
from api.kafka.topics.log_dirs import describe_log_dirs
from api.kafka.topics.metadata import metadata
from api.kafka.topics.topic_admin import create_partitions, create_topics, delete_topics
from api.kafka.topics.topic_partitions import describe_topic_partitions


async def _api_versions(_door: Door, _client: Client, _request: Any, _version: int) -> ApiVersionsResponse:
    """The versions of the APIs that this door offers (KIP-35, KIP-511)."""
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.advertised_min, max_version=api.max_version)
            for api in (apis.APIS[key] for key in sorted({apis.PRODUCE, *HANDLERS}))
        ]
    )


HANDLERS: Mapping[int, Handler] = {
    apis.FETCH: fetch,
    apis.LIST_OFFSETS: list_offsets,
    apis.METADATA: metadata,
    apis.OFFSET_COMMIT: offset_commit,
    apis.OFFSET_FETCH: offset_fetch,
    apis.FIND_COORDINATOR: find_coordinator,
    apis.JOIN_GROUP: join_group,
    apis.HEARTBEAT: heartbeat,
    apis.LEAVE_GROUP: leave_group,
    apis.SYNC_GROUP: sync_group,
    apis.DESCRIBE_GROUPS: describe_groups,
    apis.LIST_GROUPS: list_groups,
    apis.SASL_HANDSHAKE: sasl_handshake,
    apis.API_VERSIONS: _api_versions,
    apis.CREATE_TOPICS: create_topics,
    apis.DELETE_TOPICS: delete_topics,
    apis.DELETE_RECORDS: delete_records,
    apis.INIT_PRODUCER_ID: init_producer_id,
    apis.DESCRIBE_CONFIGS: describe_configs,
    apis.ALTER_CONFIGS: alter_configs,
    apis.DESCRIBE_LOG_DIRS: describe_log_dirs,
    apis.SASL_AUTHENTICATE: sasl_authenticate,
    apis.CREATE_PARTITIONS: create_partitions,
    apis.DELETE_GROUPS: delete_groups,
    apis.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    apis.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
    apis.OFFSET_DELETE: offset_delete,
    apis.DESCRIBE_CLUSTER: describe_cluster,
    apis.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat,
    apis.LIST_CONFIG_RESOURCES: list_config_resources,
    apis.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions,
}
"""By the key of the API. Produce is not among them: its requests overlap (`connections/request_line.py`)."""

for _key in (apis.PRODUCE, *HANDLERS):
    rule_of(_key)  # what has no rule of access is not offered
