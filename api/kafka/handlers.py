"""The APIs that this door offers: the answer to each request, and the operations that its principal needs.

The handlers ask for these, for each resource that a request names (`Caller.check`). `listed` says that an
answer leaves out what its principal may not describe. SaslHandshake names a mechanism, SaslAuthenticate
brings its messages (KIP-43, KIP-152, KIP-368): an authenticated connection may log in again, as the same
principal, and a refusal ends the connection after its answer.
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from api.kafka.access.acls import create_acls, delete_acls, describe_acls
from api.kafka.access.quotas import alter_client_quotas, describe_client_quotas
from api.kafka.access.users import alter_user_scram_credentials, describe_user_scram_credentials
from api.kafka.changes import CHANGES, audited
from api.kafka.clients.client import Client
from api.kafka.clients.door import Door, Handler
from api.kafka.clients.errors import ErrorCode
from api.kafka.clients.sasl import SaslSession
from api.kafka.groups.committed import offset_commit, offset_delete, offset_fetch
from api.kafka.groups.consumer_groups import consumer_group_describe, consumer_group_heartbeat
from api.kafka.groups.group_admin import delete_groups, describe_groups, list_groups
from api.kafka.groups.members import (
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    sync_group,
)
from api.kafka.logs.fetch import fetch
from api.kafka.logs.leader_epochs import offset_for_leader_epoch
from api.kafka.logs.list_offsets import list_offsets
from api.kafka.protocol import apis
from api.kafka.protocol.messages.handshake import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    SupportedFeatureKey,
)
from api.kafka.protocol.messages.produce import InitProducerIdRequest, InitProducerIdResponse
from api.kafka.topics.config_changes import alter_configs, incremental_alter_configs
from api.kafka.topics.configs import describe_configs, list_config_resources
from api.kafka.topics.metadata import describe_cluster, metadata
from api.kafka.topics.replicas import describe_quorum, elect_leaders, list_partition_reassignments
from api.kafka.topics.topic_admin import create_partitions, create_topics, delete_topics
from api.kafka.topics.topic_partitions import delete_records, describe_log_dirs, describe_topic_partitions
from api.kafka.transactions.admin import (
    describe_producers,
    describe_transactions,
    list_transactions,
)
from api.kafka.transactions.lifecycle import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_transactional_id,
    txn_offset_commit,
)
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.errors import AuthenticationFailed
from log_tables.limits import BRIEF_PRODUCER_ID_MIN, ONCE_PRODUCER_ID_MIN

EPOCH_MAX = 2**15 - 2
"""The last epoch of an id: Kafka's are int16, and its clients take another id then (KIP-360)."""

WAIT_S = 1.0
"""How long a client waits for the answer that it is to try later."""

_FEATURES: Mapping[str, int] = {"group.version": 1, "transaction.version": 2}
"""The features that groups of KIP-848 and transactions of KIP-890 are (KIP-584), with their levels."""

_NO_LOGIN = "this gateway authenticates nobody; connect without SASL"
_NO_HANDSHAKE = "SaslAuthenticate comes after a SaslHandshake of version 1; send that first"


async def init_producer_id(
    door: Door, client: Client, request: InitProducerIdRequest, version: int
) -> InitProducerIdResponse:
    """A new id; for a producer that has one and lost its place, the next epoch of that (KIP-98, KIP-360).

    A client beyond the bound hears that it is to try later, which none of them takes for a failure. No id is
    forgotten for another one.
    """
    if request.transactional_id is not None:
        return await init_transactional_id(door, client, request, version)
    if not client.caller.may_write_any():
        return InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    known = BRIEF_PRODUCER_ID_MIN <= request.producer_id < ONCE_PRODUCER_ID_MIN
    if known and 0 <= request.producer_epoch < EPOCH_MAX:
        following = request.producer_epoch + 1
        return InitProducerIdResponse(producer_id=request.producer_id, producer_epoch=following)
    taken = door.producer_ids.take()
    if taken is None:
        await asyncio.sleep(WAIT_S)
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=taken, producer_epoch=0)


class Rule(NamedTuple):
    """One of `needs` refuses a request, or what it is about. `listed` are resources that are left out."""

    needs: tuple[tuple[Operation, ResourceType], ...] = ()
    listed: tuple[ResourceType, ...] = ()
    is_public: bool = False
    """Whether it is answered before anybody is authenticated."""

    is_counted: bool = True
    """Whether it counts as under way for `principal_requests_max`. Members of a group wait for one another,
    so none of their requests may wait for a place of those."""


def _topic(*operations: Operation) -> tuple[tuple[Operation, ResourceType], ...]:
    return tuple((operation, ResourceType.TOPIC) for operation in operations)


def _group(operation: Operation) -> tuple[tuple[Operation, ResourceType], ...]:
    return ((operation, ResourceType.GROUP),)


def _cluster(operation: Operation) -> tuple[tuple[Operation, ResourceType], ...]:
    return ((operation, ResourceType.CLUSTER),)


_PUBLIC = Rule(is_public=True, is_counted=False)
_MEMBERSHIP = Rule(_group(Operation.READ), is_counted=False)


async def _api_versions(
    door: Door, _client: Client, request: ApiVersionsRequest, _version: int
) -> ApiVersionsResponse:
    """The versions of the APIs that this door offers (KIP-35, KIP-511).

    A client that means another cluster begins again at its bootstrap servers (KIP-1242). One that means
    another gateway stays: one address may lead to all of them, and each answers for all.
    """
    if request.cluster_id not in (None, door.here.cluster.cluster_id):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=api.key, min_version=api.advertised_min, max_version=api.max_version)
            for api in (apis.APIS[key] for key in sorted({apis.PRODUCE, *HANDLERS}))
        ],
        supported_features=[
            SupportedFeatureKey(name=name, max_version=level) for name, level in _FEATURES.items()
        ],
        finalized_features_epoch=0,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in _FEATURES.items()
        ],
    )


async def sasl_handshake(
    _door: Door, client: Client, request: SaslHandshakeRequest, version: int
) -> SaslHandshakeResponse:
    """After version 0 the messages are frames of their own, and there is no login again."""
    offered = client.access.sasl_mechanisms
    code = ErrorCode.NONE
    if client.sasl is not None or (version == 0 and client.by_sasl):
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


_OFFERED: Mapping[int, tuple[Handler, Rule]] = {
    apis.FETCH: (fetch, Rule(_topic(Operation.READ))),
    apis.LIST_OFFSETS: (list_offsets, Rule(_topic(Operation.DESCRIBE))),
    # CREATE, on the cluster or the topic, where the request makes one.
    apis.METADATA: (metadata, Rule(_topic(Operation.DESCRIBE, Operation.CREATE), (ResourceType.TOPIC,))),
    apis.OFFSET_COMMIT: (offset_commit, Rule((*_group(Operation.READ), *_topic(Operation.READ)))),
    apis.OFFSET_FETCH: (
        offset_fetch,
        Rule((*_group(Operation.DESCRIBE), *_topic(Operation.DESCRIBE)), (ResourceType.TOPIC,)),
    ),
    apis.FIND_COORDINATOR: (find_coordinator, Rule(_group(Operation.DESCRIBE))),
    apis.JOIN_GROUP: (join_group, _MEMBERSHIP),
    apis.HEARTBEAT: (heartbeat, _MEMBERSHIP),
    apis.LEAVE_GROUP: (leave_group, _MEMBERSHIP),
    apis.SYNC_GROUP: (sync_group, _MEMBERSHIP),
    apis.DESCRIBE_GROUPS: (describe_groups, Rule(_group(Operation.DESCRIBE))),
    apis.LIST_GROUPS: (list_groups, Rule(listed=(ResourceType.GROUP,))),
    apis.SASL_HANDSHAKE: (sasl_handshake, _PUBLIC),
    apis.API_VERSIONS: (_api_versions, _PUBLIC),
    apis.CREATE_TOPICS: (create_topics, Rule(_topic(Operation.CREATE))),  # or on the cluster
    apis.DELETE_TOPICS: (delete_topics, Rule(_topic(Operation.DELETE))),
    apis.DELETE_RECORDS: (delete_records, Rule(_topic(Operation.DELETE))),
    apis.OFFSET_FOR_LEADER_EPOCH: (offset_for_leader_epoch, Rule(_topic(Operation.DESCRIBE))),
    apis.ADD_PARTITIONS_TO_TXN: (
        add_partitions_to_txn,
        Rule(((Operation.WRITE, ResourceType.TRANSACTIONAL_ID), *_topic(Operation.WRITE))),
    ),
    apis.ADD_OFFSETS_TO_TXN: (
        add_offsets_to_txn,
        Rule(((Operation.WRITE, ResourceType.TRANSACTIONAL_ID), *_group(Operation.READ))),
    ),
    apis.END_TXN: (end_txn, Rule(((Operation.WRITE, ResourceType.TRANSACTIONAL_ID),))),
    apis.TXN_OFFSET_COMMIT: (
        txn_offset_commit,
        Rule(
            (
                (Operation.WRITE, ResourceType.TRANSACTIONAL_ID),
                *_group(Operation.READ),
                *_topic(Operation.READ),
            )
        ),
    ),
    # Or WRITE on any topic (KIP-679); with a transactional id WRITE on that.
    apis.INIT_PRODUCER_ID: (init_producer_id, Rule(_cluster(Operation.IDEMPOTENT_WRITE))),
    apis.DESCRIBE_ACLS: (describe_acls, Rule(_cluster(Operation.DESCRIBE))),
    apis.CREATE_ACLS: (create_acls, Rule(_cluster(Operation.ALTER))),
    apis.DELETE_ACLS: (delete_acls, Rule(_cluster(Operation.ALTER))),
    apis.DESCRIBE_CONFIGS: (
        describe_configs,
        Rule((*_topic(Operation.DESCRIBE_CONFIGS), *_cluster(Operation.DESCRIBE_CONFIGS))),
    ),
    apis.ALTER_CONFIGS: (
        alter_configs,
        Rule((*_topic(Operation.ALTER_CONFIGS), *_cluster(Operation.ALTER_CONFIGS))),
    ),
    apis.DESCRIBE_LOG_DIRS: (describe_log_dirs, Rule(_cluster(Operation.DESCRIBE))),
    apis.SASL_AUTHENTICATE: (sasl_authenticate, _PUBLIC),
    apis.CREATE_PARTITIONS: (create_partitions, Rule(_topic(Operation.ALTER))),
    apis.DELETE_GROUPS: (delete_groups, Rule(_group(Operation.DELETE))),
    apis.ELECT_LEADERS: (elect_leaders, Rule(_cluster(Operation.ALTER))),
    apis.INCREMENTAL_ALTER_CONFIGS: (
        incremental_alter_configs,
        Rule((*_topic(Operation.ALTER_CONFIGS), *_cluster(Operation.ALTER_CONFIGS))),
    ),
    apis.LIST_PARTITION_REASSIGNMENTS: (list_partition_reassignments, Rule(_cluster(Operation.DESCRIBE))),
    apis.OFFSET_DELETE: (offset_delete, Rule((*_group(Operation.DELETE), *_topic(Operation.READ)))),
    apis.DESCRIBE_CLIENT_QUOTAS: (describe_client_quotas, Rule(_cluster(Operation.DESCRIBE_CONFIGS))),
    apis.ALTER_CLIENT_QUOTAS: (alter_client_quotas, Rule(_cluster(Operation.ALTER_CONFIGS))),
    apis.DESCRIBE_USER_SCRAM_CREDENTIALS: (
        describe_user_scram_credentials,
        Rule(_cluster(Operation.DESCRIBE)),
    ),
    apis.ALTER_USER_SCRAM_CREDENTIALS: (alter_user_scram_credentials, Rule(_cluster(Operation.ALTER))),
    apis.DESCRIBE_QUORUM: (describe_quorum, Rule(_cluster(Operation.DESCRIBE))),
    apis.DESCRIBE_CLUSTER: (describe_cluster, Rule()),  # the gateways, which Metadata has, too
    apis.DESCRIBE_PRODUCERS: (describe_producers, Rule(_topic(Operation.READ))),
    apis.DESCRIBE_TRANSACTIONS: (
        describe_transactions,
        Rule(((Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),), (ResourceType.TOPIC,)),
    ),
    apis.LIST_TRANSACTIONS: (list_transactions, Rule(listed=(ResourceType.TRANSACTIONAL_ID,))),
    apis.CONSUMER_GROUP_HEARTBEAT: (
        consumer_group_heartbeat,
        Rule((*_group(Operation.READ), *_topic(Operation.DESCRIBE)), is_counted=False),
    ),
    apis.CONSUMER_GROUP_DESCRIBE: (consumer_group_describe, Rule(_group(Operation.DESCRIBE))),
    apis.LIST_CONFIG_RESOURCES: (list_config_resources, Rule(_cluster(Operation.DESCRIBE_CONFIGS))),
    apis.DESCRIBE_TOPIC_PARTITIONS: (
        describe_topic_partitions,
        Rule(_topic(Operation.DESCRIBE), (ResourceType.TOPIC,)),
    ),
}
"""The answer to an API, and who gets it, as Kafka's brokers ask (`kafka.server.KafkaApis`)."""

HANDLERS: Mapping[int, Handler] = {
    key: audited(handler, CHANGES.get(key)) for key, (handler, _) in _OFFERED.items()
}
"""By the key of the API. Produce is not among them: its requests overlap (`connections/request_line.py`)."""

RULES: Mapping[int, Rule] = {
    apis.PRODUCE: Rule(_topic(Operation.WRITE)),
    **{key: rule for key, (_, rule) in _OFFERED.items()},
}
"""By the key of the API."""
