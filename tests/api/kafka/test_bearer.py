"""Logging in by tokens of an OIDC provider (OAUTHBEARER), again before they end, and their end."""

from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.cluster import MetadataRequest
from api.kafka.protocol.messages.handshake import SaslAuthenticateResponse
from log_tables.clock import SystemClock
from log_tables.cluster.acl import Operation, ResourceType
from tests.kit.audits import wait_for_audit
from tests.kit.kafka import KafkaGateway, kafka_gateway, produce, read_all
from tests.kit.kafka_asking import Asker, Closed, asker, framed
from tests.kit.oidc_server import Provider, provider
from tests.kit.secured import Secured, acl, everything
from tests.kit.support import WAIT_S, wait_until

REFUSED = b'{"status":"invalid_token"}'


@pytest.fixture(scope="module")
def idp() -> Iterator[Provider]:
    with provider() as running:
        yield running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, idp: Provider) -> Iterator[KafkaGateway]:
    root = tmp_path_factory.mktemp("root")
    secured = Secured(root)
    secured.allow(*everything("User:carol"))
    secured.allow(acl("Group:crew", Operation.DESCRIBE, ResourceType.CLUSTER))
    with kafka_gateway(root, **idp.settings, oidc_clock_skew_ms=1_000) as running:
        with asker(running.port) as client:
            wait_until(lambda: logs_in(running, idp.token()), "the provider's keys are there")
            assert client.handshake("PLAIN").mechanisms == ["OAUTHBEARER"]
        yield running


def message(token: str, acted_for: str = "", more: str = "", scheme: str = "Bearer") -> bytes:
    """The first message of OAUTHBEARER (RFC 7628, 3.1)."""
    given = f"a={acted_for}" if acted_for else ""
    return f"n,{given},\x01auth={scheme} {token}\x01{more}\x01".encode()


def login(client: Asker, token: str, **given: str) -> SaslAuthenticateResponse:
    client.handshake("OAUTHBEARER")
    return client.authenticate(message(token, **given))


def logs_in(gateway: KafkaGateway, token: str) -> bool:
    with asker(gateway.port) as client:
        try:
            return login(client, token).error_code == 0
        except Closed:
            return False


def end_s(seconds: int) -> int:
    return SystemClock().now_ms() // 1_000 + seconds


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"acted_for": "carol"},
        {"more": "host=log.example\x01port=9092\x01logicalCluster=a b\x01"},
        {"scheme": "bearer "},
        {"scheme": "BEARER"},
    ],
)
def test_a_token_logs_in_for_as_long_as_it_is_good(
    gateway: KafkaGateway, idp: Provider, given: dict[str, str]
) -> None:
    with asker(gateway.port) as client:
        answer = login(client, idp.token(exp=end_s(300)), **given)
        assert (answer.error_code, bytes(answer.auth_bytes)) == (0, b"")
        assert 290_000 < answer.session_lifetime_ms <= 300_000
        assert client.ask(MetadataRequest(topics=[])).cluster_id


def test_a_token_that_is_not_right_is_challenged_and_then_refused(
    gateway: KafkaGateway, idp: Provider
) -> None:
    stranger = Provider()
    stranger.server.server_close()
    right = idp.token()
    for token in (
        idp.token(exp=end_s(-60)),
        idp.token(aud="other"),
        stranger.token(),
        right[:-2],
        "a.b.c",
        "opaque",
    ):
        with asker(gateway.port) as client:
            answer = login(client, token)
            assert (answer.error_code, bytes(answer.auth_bytes)) == (0, REFUSED)
            answer = client.authenticate(b"\x01")
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert token not in (answer.error_message or "")
            assert client.is_closed()
    with asker(gateway.port) as client:
        assert bytes(login(client, right, acted_for="bob").auth_bytes) == REFUSED
        with pytest.raises(Closed):
            client.ask(MetadataRequest())
    wait_for_audit(gateway.data, "kind = 'refusal' and operation = 'LOGON'")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"n,,\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic YTpi\x01\x01",
        b"p=tls,,\x01auth=Bearer a.b.c\x01\x01",
        b"n,a=,\x01auth=Bearer a.b.c\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01",
        b"n,,\x01auth=Bearer a b.c\x01\x01",
        b"n,,\x01auth\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01\x01\x01",
        b"\xff\xfe",
        b"n,," + b"\x01a=b" * 3_000 + b"\x01",
    ],
)
def test_what_is_no_message_of_the_mechanism_is_refused(gateway: KafkaGateway, data: bytes) -> None:
    with asker(gateway.port) as client:
        client.handshake("OAUTHBEARER")
        assert client.authenticate(data).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()


def test_a_message_is_as_long_in_a_later_login_as_in_the_first(gateway: KafkaGateway, idp: Provider) -> None:
    """A frame may have megabytes then, and reading it as a login would hold up everybody."""
    with asker(gateway.port) as client:
        assert login(client, idp.token()).error_code == 0
        answer = login(client, idp.token(), more="a=b\x01" * 5_000)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()


def test_messages_may_be_frames_of_their_own(gateway: KafkaGateway, idp: Provider) -> None:
    with asker(gateway.port) as client:
        assert client.handshake("OAUTHBEARER", 0).error_code == 0
        client.write(framed(message(idp.token())))
        assert client.read_frame() == b""
        assert client.ask(MetadataRequest(topics=[])).cluster_id
    with asker(gateway.port) as client:
        client.handshake("OAUTHBEARER", 0)
        client.write(framed(message("a.b.c")))
        assert client.read_frame() == REFUSED
        client.write(framed(b"\x01"))
        assert client.is_closed()


def test_a_connection_whose_token_ends_is_ended_unless_it_logs_in_again(
    gateway: KafkaGateway, idp: Provider
) -> None:
    with asker(gateway.port) as left, asker(gateway.port) as renewed:
        ends = end_s(3)
        for client in (left, renewed):
            assert 0 < login(client, idp.token(exp=ends)).session_lifetime_ms <= 3_000
        assert login(renewed, idp.token(groups=["crew"])).error_code == 0  # other groups, the same principal
        assert left.is_closed()
        assert SystemClock().now_ms() >= ends * 1_000
        assert renewed.ask(MetadataRequest(topics=[])).cluster_id
        assert login(renewed, idp.token(sub="dave")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert renewed.is_closed()


def oauth(gateway: KafkaGateway, **given: Any) -> dict[str, Any]:
    """The settings of librdkafka."""
    return {
        "bootstrap.servers": gateway.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        **given,
    }


def test_confluent_kafka_logs_in_again_and_again_by_its_callback(
    gateway: KafkaGateway, idp: Provider
) -> None:
    gateway.running.client.headers["Authorization"] = f"Bearer {idp.token()}"
    gateway.create_topic("tokens")
    renewed, asked = Event(), list[str]()

    def token(config: str) -> tuple[str, float]:
        asked.append(config)
        if len(asked) > 2:
            renewed.set()
        ends = end_s(3)
        return idp.token(exp=ends), float(ends)

    config = oauth(gateway, oauth_cb=token)
    sent = produce(gateway.bootstrap, "tokens", [b"%d" % number for number in range(10)], **config)
    assert sent.failed == []
    admin = AdminClient(config)
    wait_until(
        lambda: bool(admin.list_topics(timeout=WAIT_S).topics) and renewed.is_set(), "tokens are renewed"
    )
    assert len(read_all(gateway.bootstrap, "tokens", **config)) == 10


def test_librdkafka_fetches_tokens_itself(gateway: KafkaGateway, idp: Provider) -> None:
    fetched = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "carol",
        "sasl.oauthbearer.client.secret": "a secret",
        "sasl.oauthbearer.token.endpoint.url": f"{idp.url}/token",
    }
    assert AdminClient(oauth(gateway, **fetched)).list_topics(timeout=WAIT_S).topics
    assert idp.given


def test_confluent_kafka_shows_why_it_is_refused(gateway: KafkaGateway) -> None:
    said = list[str]()
    config = oauth(gateway, oauth_cb=lambda _: ("a.b.c", end_s(60)), error_cb=lambda e: said.append(str(e)))
    admin = AdminClient(config)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)
    admin.poll(0)
    assert any("the token is not right, or no longer" in each for each in said), said
