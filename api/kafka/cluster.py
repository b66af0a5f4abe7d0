"""The cluster as a whole: the gateways that Kafka's clients can reach (DescribeCluster, KIP-700), and that no
replica moves (ListPartitionReassignments, KIP-455).
"""

from api.kafka.clients.authorized_operations import authorized_operations
from api.kafka.clients.client import Client
from api.kafka.clients.door import Door
from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from coordinator.access.host import host_and_port
from log_tables.cluster.acl import Operation, ResourceType

BROKERS, CONTROLLERS = 1, 2
"""The kinds of endpoints (KIP-919)."""


async def describe_cluster(
    door: Door, client: Client, request: DescribeClusterRequest, _version: int
) -> DescribeClusterResponse:
    """There are no controllers: any gateway does their work. Fenced are those that are silent."""
    kind, asked = request.endpoint_type, request.include_cluster_authorized_operations
    if kind != BROKERS:
        known = kind == CONTROLLERS
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = "a gateway is a broker; ask it for endpoints of type 1"
        return DescribeClusterResponse(error_code=code, error_message=message, endpoint_type=kind)
    living = {each.id for each in door.brokers()}
    listed = [each for each in door.here.brokers.all().values() if each.kafka]
    brokers = []
    for each in listed:
        if each.id in living or request.include_fenced_brokers:
            host, port = host_and_port(each.kafka)
            fenced = each.id not in living
            brokers.append(DescribeClusterBroker(broker_id=each.id, host=host, port=port, is_fenced=fenced))
    return DescribeClusterResponse(
        endpoint_type=kind,
        cluster_id=door.here.cluster.cluster_id,
        controller_id=door.here.brokers.id,
        brokers=brokers,
        cluster_authorized_operations=authorized_operations(client, ResourceType.CLUSTER, asked=asked),
    )


async def list_partition_reassignments(
    _door: Door, client: Client, _request: ListPartitionReassignmentsRequest, _version: int
) -> ListPartitionReassignmentsResponse:
    """None is under way, ever: the store keeps the copies. Tools look for that before they change a topic."""
    if not client.caller.may(Operation.DESCRIBE, ResourceType.CLUSTER):
        message = "the principal may not describe the cluster"
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return ListPartitionReassignmentsResponse(error_code=code, error_message=message)
    return ListPartitionReassignmentsResponse(error_message=None)
