"""Clients that are known by their certificates, at the port for Kafka's clients as over HTTP."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka.admin import AdminClient

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.cluster import MetadataRequest, MetadataRequestTopic
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.admin.topic_admin import create_topic
from tests.kit.audits import wait_for_audit
from tests.kit.certificates import Authority
from tests.kit.kafka import KafkaGateway, kafka_gateway
from tests.kit.kafka_asking import Asker, Closed, asker
from tests.kit.secured import Secured, acl
from tests.kit.support import WAIT_S

PASSWORD = "open sesame"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    made = Secured(tmp_path_factory.mktemp("root"))
    made.user("bob", PASSWORD)
    create_topic(made.cluster, "carols", 1)
    create_topic(made.cluster, "bobs", 1)
    made.allow(acl("User:carol", Operation.DESCRIBE, ResourceType.TOPIC, "carols"))
    made.allow(acl("User:bob", Operation.DESCRIBE, ResourceType.TOPIC, "bobs"))
    return made


@contextmanager
def gateway_by(methods: str, authority: Authority, secured: Secured) -> Iterator[KafkaGateway]:
    """A gateway that asks for certificates, and authenticates by these methods."""
    pair = authority.pair("gateway")
    settings = {
        "ssl_certfile": pair.certfile,
        "ssl_keyfile": pair.keyfile,
        "ssl_ca_certs": authority.ca_file,
        "ssl_client_auth": "requested",
        "ssl_principal_mapping_rules": "RULE:^CN=([^,]+),O=Example$/$1/L",
        "peer_ca_certs": authority.ca_file,
        "receive_timeout_ms": 1_000,
    }
    with kafka_gateway(secured.cluster.store.url, authentication_methods=methods, **settings) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(authority: Authority, secured: Secured) -> Iterator[KafkaGateway]:
    with gateway_by("mtls,scram", authority, secured) as running:
        yield running


@pytest.fixture
def carol(gateway: KafkaGateway, authority: Authority) -> Iterator[Asker]:
    pair = authority.pair("carol", O="Example", CN="Carol")
    with asker(gateway.port, context=authority.trusted(pair)) as client:
        yield client


def topics(client: Asker) -> list[str]:
    return [each.name for each in client.ask(MetadataRequest(topics=None)).topics]


def test_a_certificate_is_a_principal_by_the_rules_and_acls_decide(
    gateway: KafkaGateway, carol: Asker
) -> None:
    assert topics(carol) == ["carols"]
    (denied,) = carol.ask(MetadataRequest(topics=[MetadataRequestTopic(name="bobs")])).topics
    assert denied.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    wait_for_audit(gateway.data, "kind = 'denial' and principal = 'User:carol' and resource_name = 'bobs'")


def test_a_certificate_that_no_rule_is_for_is_nobodys(gateway: KafkaGateway, authority: Authority) -> None:
    other = authority.trusted(authority.pair("other", O="Elsewhere", CN="Carol"))
    for context in (other, authority.trusted()):
        with asker(gateway.port, context=context) as client, pytest.raises(Closed):
            topics(client)


def test_a_connection_without_a_login_has_little_time(gateway: KafkaGateway, authority: Authority) -> None:
    with asker(gateway.port, context=authority.trusted()) as client:
        assert client.is_closed()


def test_another_credential_goes_before_the_certificate(gateway: KafkaGateway, carol: Asker) -> None:
    assert topics(carol) == ["carols"]
    answer = carol.scram("bob", PASSWORD)
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
    assert topics(carol) == ["bobs"]


def test_a_wrong_credential_is_refused_though_the_certificate_is_right(carol: Asker) -> None:
    assert carol.scram("bob", "wrong").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert carol.is_closed()


def test_librdkafka_is_known_by_its_certificate(gateway: KafkaGateway, authority: Authority) -> None:
    pair = authority.pair("librdkafka", O="Example", CN="CAROL")
    config: dict[str, str | int | float | bool] = {
        "bootstrap.servers": gateway.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": authority.ca_file,
        "ssl.certificate.location": pair.certfile,
        "ssl.key.location": pair.keyfile,
    }
    assert [*AdminClient(config).list_topics(timeout=WAIT_S).topics] == ["carols"]


def test_certificates_alone_are_enough(authority: Authority, secured: Secured) -> None:
    context = authority.trusted(authority.pair("carol", O="Example", CN="Carol"))
    with gateway_by("mtls", authority, secured) as gateway, asker(gateway.port, context=context) as client:
        assert topics(client) == ["carols"]
        answer = client.handshake("PLAIN")
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, [])
        assert client.is_closed()
