"""The listener of Kafka's clients: TLS, which addresses it takes, and the end of the gateway."""

import ssl
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from api.kafka.protocol.messages.cluster import MetadataRequest
from api.kafka.protocol.messages.handshake import ApiVersionsRequest
from api.process.server import check_exposure
from ingest.settings import Settings
from log_tables.cluster.acl import ResourceType
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidConfig
from log_tables.limits import MIB
from log_tables.store.store import open_store
from tests.kit.certificates import Authority, Pair
from tests.kit.filling import resident
from tests.kit.kafka import KafkaGateway, kafka_gateway
from tests.kit.kafka_asking import Asker, Closed, asker
from tests.kit.kafka_batches import BatchSender
from tests.kit.kafka_requests import request_of
from tests.kit.kafka_served import kafka_served
from tests.kit.partitions import values
from tests.kit.secured import Secured, everything
from tests.kit.support import WAIT_S, wait_until

IDLE = 2_000


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.pair("gateway")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    made = Secured(tmp_path_factory.mktemp("root"))
    made.user("ann", "a secret")
    made.allow(*everything("User:ann", [ResourceType.TOPIC]))
    return made


def with_tls(secured: Secured, authority: Authority, pair: Pair, **given: object) -> dict[str, Any]:
    tls = {"ssl_certfile": pair.certfile, "ssl_keyfile": pair.keyfile, "peer_ca_certs": authority.ca_file}
    return {"data": secured.cluster.store.url, "authentication_methods": "api-key,scram", **tls, **given}


@pytest.fixture(scope="module")
def gateway(secured: Secured, authority: Authority, pair: Pair) -> Iterator[KafkaGateway]:
    with kafka_gateway(**with_tls(secured, authority, pair, receive_timeout_ms=1_000)) as running:
        yield running


@pytest.mark.torture
@pytest.mark.parametrize(("tls", "most"), [(False, 30 * MIB), (True, 150 * MIB)])
def test_idle_connections_take_little_memory(
    tmp_path: Path, authority: Authority, pair: Pair, tls: bool, most: int
) -> None:
    given = {"ssl_certfile": pair.certfile, "ssl_keyfile": pair.keyfile} if tls else {}
    context = trusting(authority) if tls else None
    with kafka_gateway(tmp_path, **given) as gateway, ExitStack() as open_:
        open_.enter_context(asker(gateway.port, context=context)).ask(ApiVersionsRequest())
        before = resident(gateway.running)
        clients = [open_.enter_context(asker(gateway.port, context=context)) for _ in range(IDLE)]
        assert all(client.ask(ApiVersionsRequest()).error_code == 0 for client in clients)
        assert resident(gateway.running) - before < most


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.ca_file)


def test_the_certificate_of_the_gateway_is_that_of_both_doors(
    gateway: KafkaGateway, authority: Authority
) -> None:
    with asker(gateway.port, context=trusting(authority)) as client:
        assert client.plain("ann", "a secret").error_code == 0
        assert client.ask(MetadataRequest(topics=[])).cluster_id
    with pytest.raises(ssl.SSLCertVerificationError):
        Asker(gateway.port, ssl.create_default_context())


def test_what_speaks_no_tls_is_closed(gateway: KafkaGateway) -> None:
    with asker(gateway.port) as client, pytest.raises(Closed):
        client.handshake("PLAIN")
    with asker(gateway.port) as silent:
        assert silent.is_closed()


def test_librdkafka_logs_in_over_tls(gateway: KafkaGateway, authority: Authority) -> None:
    config: dict[str, str | int | float | bool] = {
        "bootstrap.servers": gateway.bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": "a secret",
        "ssl.ca.location": authority.ca_file,
    }
    AdminClient(config).list_topics(timeout=WAIT_S)


def test_a_certificate_that_is_replaced_is_shown(
    gateway: KafkaGateway, authority: Authority, pair: Pair
) -> None:
    before = shown(gateway, authority)
    assert authority.pair("gateway") == pair
    wait_until(lambda: shown(gateway, authority) != before, "the new certificate is shown")


def shown(gateway: KafkaGateway, authority: Authority) -> bytes | None:
    with asker(gateway.port, context=trusting(authority)) as client:
        assert isinstance(client.socket, ssl.SSLSocket)
        return client.socket.getpeercert(binary_form=True)


def test_a_certificate_of_clients_may_be_required(secured: Secured, authority: Authority, pair: Pair) -> None:
    own = {"ssl_client_auth": "required", "ssl_ca_certs": authority.ca_file}
    with kafka_gateway(**with_tls(secured, authority, pair, **own)) as gateway:
        with asker(gateway.port, context=authority.trusted(authority.pair("ann"))) as client:
            assert client.plain("ann", "a secret").error_code == 0
        with asker(gateway.port, context=trusting(authority)) as client, pytest.raises(Closed):
            client.plain("ann", "a secret")


@pytest.mark.parametrize("address", ["0.0.0.0:9092", "[::]:9092", "10.0.0.7:9092", "log.example:9092"])
def test_other_machines_reach_only_a_gateway_that_authenticates(address: str, tmp_path: Path) -> None:
    given = {"data": str(tmp_path), "kafka_listener": address}
    with pytest.raises(InvalidConfig, match="kafka_listener"):
        check_exposure(Settings.model_validate(given))
    check_exposure(Settings.model_validate({**given, "authentication_methods": "api-key"}))
    check_exposure(Settings.model_validate({**given, "insecure": True}))


@pytest.mark.parametrize("address", ["127.0.0.1:9092", "[::1]:9092", "localhost:0", ""])
def test_a_loopback_address_may_be_open(address: str, tmp_path: Path) -> None:
    check_exposure(Settings.model_validate({"data": str(tmp_path), "kafka_listener": address}))


def test_what_came_with_acks_0_is_appended_before_a_gateway_ends(tmp_path: Path) -> None:
    """Batches of a client that has left, and that still wait for room, are appended, too."""
    with kafka_served(tmp_path) as here:
        buffer = here.gateway.buffer
        with asker(here.port) as asking:
            asking.ask(request_of(MetadataRequest, "late", ""), 12)
        with closing(BatchSender(here.port)) as client:
            client.send(("late", 0), [b"0"])
            client.answer()
            here.loop.call_soon_threadsafe(buffer.reserve, "other", buffer.limit_bytes)
            wait_until(lambda: buffer.used == buffer.limit_bytes, "there is no room")
            for number in range(1, 6):
                client.send(("late", 0), [b"%d" % number], acks=0)
        wait_until(lambda: not len(here.listener), "the client has left")
        release = partial(buffer.release, "other", buffer.limit_bytes)
        here.loop.call_soon_threadsafe(here.loop.call_later, 0.5, release)
    log = Cluster.open(open_store(str(tmp_path))).topic("late").partition(0)
    assert values(log) == [b"%d" % number for number in range(6)]
