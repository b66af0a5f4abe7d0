"""Logging in by SASL: mechanisms, refusals, logging in again, credentials that end."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.cluster import MetadataRequest, MetadataRequestTopic
from api.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from api.kafka.protocol.messages.handshake import ApiVersionsRequest
from coordinator.access.authentication.password_verifier import NAME_BURST
from log_tables.clock import SystemClock
from log_tables.cluster.acl import ResourceType
from tests.kit.audits import wait_for_audit
from tests.kit.kafka import KafkaGateway, kafka_gateway
from tests.kit.kafka_asking import Closed, asker, framed, plain_message
from tests.kit.run_credential import is_secured
from tests.kit.secured import Secured, everything
from tests.kit.support import WAIT_S, wait_until

PASSWORD = "open sesame"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    made = Secured(tmp_path_factory.mktemp("root"))
    made.user("ann", PASSWORD)
    made.user("eve", "the first")
    for principal in ("User:ann", "User:revoked"):
        made.allow(*everything(principal, [ResourceType.TOPIC, ResourceType.CLUSTER]))
    return made


@pytest.fixture(scope="module")
def keys(secured: Secured) -> dict[str, str]:
    """Made before the gateway starts, which so knows them at once."""
    return {name: secured.key(f"User:{name}") for name in ("ann", "bob", "revoked")}


@pytest.fixture(scope="module")
def gateway(secured: Secured, keys: dict[str, str]) -> Iterator[KafkaGateway]:
    assert keys
    data = secured.cluster.store.url
    with kafka_gateway(data, authentication_methods="api-key,scram", receive_timeout_ms=1_000) as running:
        yield running


def test_mechanisms_follow_the_methods(gateway: KafkaGateway) -> None:
    with asker(gateway.port) as client:
        answer = client.handshake("GSSAPI")
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        assert client.is_closed()


def test_a_key_and_a_password_log_in_by_plain(gateway: KafkaGateway, keys: dict[str, str]) -> None:
    for name, password in (keys["ann"].split("."), ("ann", PASSWORD)):
        with asker(gateway.port) as client:
            answer = client.plain(name, password)
            assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
            assert client.ask(MetadataRequest(topics=[])).cluster_id


@pytest.mark.parametrize("digest", ["256", "512"])
def test_a_password_is_proven_by_scram(gateway: KafkaGateway, digest: str) -> None:
    with asker(gateway.port) as client:
        assert client.scram("ann", PASSWORD, digest).error_code == 0
        assert client.ask(MetadataRequest(topics=[])).cluster_id


def test_a_refused_login_is_answered_and_ends_the_connection(gateway: KafkaGateway) -> None:
    for name, password in (("ann", "wrong"), ("nobody", PASSWORD), ("a:b", "c")):
        with asker(gateway.port) as client:
            answer = client.plain(name, password)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert PASSWORD not in (answer.error_message or "")
            assert client.is_closed()
    with asker(gateway.port) as client:
        assert client.scram("ann", "wrong").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()
    wait_for_audit(gateway.data, "kind = 'refusal' and principal = 'User:ann'")


def test_a_name_that_does_not_exist_has_the_same_salt_after_a_restart(gateway: KafkaGateway) -> None:
    """As that of a user, also at another gateway or worker: else two connections would tell."""

    def told() -> list[bytes]:
        names, found = ("ann", "nobody"), []
        for name in names:
            with asker(gateway.port) as client:
                client.handshake("SCRAM-SHA-256")
                answer = bytes(client.authenticate(f"n,,n={name},r=abc".encode()).auth_bytes)
                found.append(answer.partition(b",")[2])
        return found

    before = told()
    gateway.close()
    gateway.start()
    assert told() == before


def test_messages_that_are_no_logins_are_refused(gateway: KafkaGateway) -> None:
    for message in (b"", b"ann", b"\0ann", b"bob\0ann\0" + PASSWORD.encode(), b"\0\xff\0x", b"\0a\0b\0c"):
        with asker(gateway.port) as client:
            client.handshake("PLAIN")
            assert client.authenticate(message).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert client.is_closed()


def test_the_order_of_a_login_is_kept(gateway: KafkaGateway) -> None:
    with asker(gateway.port) as client:
        assert client.authenticate(plain_message("ann", PASSWORD)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.is_closed()
    with asker(gateway.port) as client:
        client.handshake("PLAIN")
        assert client.handshake("PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.is_closed()


def test_nothing_but_a_login_is_answered_before_it(gateway: KafkaGateway) -> None:
    with asker(gateway.port) as client:
        assert client.ask(ApiVersionsRequest()).error_code == 0
        with pytest.raises(Closed):
            client.ask(MetadataRequest())
    with asker(gateway.port) as client:
        client.write((20_000).to_bytes(4, "big"))
        assert client.is_closed()


def test_a_connection_without_a_login_has_little_time(gateway: KafkaGateway) -> None:
    with asker(gateway.port) as client:
        client.handshake("PLAIN")
        assert client.is_closed()


def test_messages_may_be_frames_of_their_own(gateway: KafkaGateway) -> None:
    with asker(gateway.port) as client:
        assert client.handshake("PLAIN", 0).error_code == 0
        client.write(framed(plain_message("ann", PASSWORD)))
        assert client.read_frame() == b""
        assert client.ask(MetadataRequest(topics=[])).cluster_id
        assert client.handshake("PLAIN", 0).error_code == ErrorCode.ILLEGAL_SASL_STATE
    with asker(gateway.port) as client:
        client.handshake("PLAIN", 0)
        client.write(framed(plain_message("ann", "wrong")))
        assert client.is_closed()


def test_a_connection_logs_in_again_as_the_same_principal(
    gateway: KafkaGateway, keys: dict[str, str]
) -> None:
    with asker(gateway.port) as client:
        client.plain("ann", PASSWORD)
        assert client.scram("ann", PASSWORD).error_code == 0
        assert client.ask(MetadataRequest(topics=[])).cluster_id
        answer = client.key(keys["bob"])
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()


def test_a_key_that_expires_says_when_and_ends_its_connection(
    gateway: KafkaGateway, secured: Secured
) -> None:
    key = secured.key("User:ann", SystemClock().now_ms() + 3_000)

    def logged_in() -> bool:
        with asker(gateway.port) as client:
            answer = client.key(key)
            if answer.error_code:
                return False
            assert 0 < answer.session_lifetime_ms <= 3_000
            return client.is_closed()

    wait_until(logged_in, "the gateway knows the key")


def fetch_for_long(topic: str) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=int(WAIT_S * 1_000),
        min_bytes=1,
        max_bytes=1_000,
        topics=[FetchTopic(topic=topic, partitions=[FetchPartition(partition_max_bytes=1_000)])],
    )


def test_a_revoked_credential_ends_connections_and_long_polls(
    gateway: KafkaGateway, secured: Secured, keys: dict[str, str]
) -> None:
    key = keys["revoked"]
    with asker(gateway.port) as idle, asker(gateway.port) as waiting:
        idle.key(key)
        waiting.key(key)
        waiting.ask(MetadataRequest(topics=[MetadataRequestTopic(name="polled")]))
        waiting.send(fetch_for_long("polled"), 12)
        secured.revoke(key)
        assert waiting.is_closed()
        assert idle.is_closed()


def test_another_password_ends_the_connections_of_the_old_one(
    gateway: KafkaGateway, secured: Secured
) -> None:
    with asker(gateway.port) as plain, asker(gateway.port) as scram:
        assert plain.plain("eve", "the first").error_code == scram.scram("eve", "the first").error_code == 0
        secured.user("eve", "the second")
        assert plain.is_closed()
        assert scram.is_closed()


def test_wrong_passwords_are_bounded_for_each_address(gateway: KafkaGateway) -> None:
    for _ in range(NAME_BURST):
        with asker(gateway.port, source="127.0.0.9") as client:
            assert client.plain("guessed", "x").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with asker(gateway.port, source="127.0.0.9") as client, pytest.raises(Closed):
        client.plain("guessed", "x")
    with asker(gateway.port, source="127.0.0.8") as client:
        assert client.plain("ann", PASSWORD).error_code == 0


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_clients_log_in(gateway: KafkaGateway, mechanism: str) -> None:
    config: dict[str, str | int | float | bool] = {
        "bootstrap.servers": gateway.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "ann",
        "sasl.password": PASSWORD,
    }
    AdminClient(config).list_topics(timeout=WAIT_S)
    client = KafkaAdminClient(
        bootstrap_servers=gateway.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="ann",
        sasl_plain_password=PASSWORD,
    )
    client.list_topics()
    client.close()


@pytest.mark.skipif(is_secured(), reason="about an open gateway")
def test_an_open_gateway_takes_no_login(tmp_path: Path) -> None:
    with kafka_gateway(tmp_path) as open_, asker(open_.port) as client:
        assert client.handshake("PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.authenticate(b"").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.ask(MetadataRequest(topics=[])).cluster_id
