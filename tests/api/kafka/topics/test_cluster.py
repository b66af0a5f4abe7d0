"""DescribeCluster, and ApiVersions of a client that means a certain cluster."""

from confluent_kafka.admin import AdminClient

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.cluster import DescribeClusterRequest
from api.kafka.protocol.messages.handshake import ApiVersionsRequest
from api.kafka.topics.metadata import BROKERS, CONTROLLERS
from tests.kit.kafka import KafkaGateway
from tests.kit.kafka_asking import Asker


def test_the_gateways_are_the_brokers(kafka: KafkaGateway, asking: Asker) -> None:
    for version in range(3):
        found = asking.ask(DescribeClusterRequest(), version)
        (broker,) = found.brokers
        assert (broker.broker_id, broker.host, broker.port) == (1, "127.0.0.1", kafka.port)
        assert kafka.running.cluster.endswith(found.cluster_id)
        assert found.controller_id == 1
        assert found.cluster_authorized_operations == -(2**31)


def test_there_are_no_controllers(asking: Asker) -> None:
    for kind, code in (
        (CONTROLLERS, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ):
        found = asking.ask(DescribeClusterRequest(endpoint_type=kind))
        assert (found.error_code, found.brokers) == (code, [])


def test_who_may_do_everything_hears_so(asking: Asker) -> None:
    asked = DescribeClusterRequest(endpoint_type=BROKERS, include_cluster_authorized_operations=True)
    bits = asking.ask(asked).cluster_authorized_operations
    assert [number for number in range(32) if bits >> number & 1] == [5, 7, 8, 9, 10, 11, 12]


def test_librdkafka_describes_the_cluster(kafka: KafkaGateway) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    found = admin.describe_cluster().result()
    assert [node.id for node in found.nodes] == [1]


def test_a_client_that_means_another_cluster_begins_again(asking: Asker) -> None:
    """One that means another gateway is answered: one address may lead to several (KIP-1242)."""
    own = asking.ask(DescribeClusterRequest()).cluster_id
    refused = asking.ask(ApiVersionsRequest(cluster_id="another", node_id=1))
    assert (refused.error_code, refused.api_keys) == (ErrorCode.REBOOTSTRAP_REQUIRED, [])
    for asked in (ApiVersionsRequest(cluster_id=own, node_id=2), ApiVersionsRequest()):
        answer = asking.ask(asked)
        assert answer.error_code == ErrorCode.NONE
        assert answer.api_keys
