"""TLS of a gateway, with real certificates: what it shows, what it takes, and how it ends what is no TLS."""

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from lakelog import AuthenticationFailed, AuthorizationFailed, Client, Producer, Unreachable
from log_tables.cluster.acl import Operation, ResourceType
from tests.kit.certificates import Authority, Pair
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.secured import Secured, acl
from tests.kit.support import WAIT_S, wait_until


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    """The gateway's certificate and key, which tests replace."""
    return authority.pair("gateway")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return Secured(tmp_path_factory.mktemp("secured"))


@pytest.fixture(scope="module")
def gateway(authority: Authority, pair: Pair, secured: Secured) -> Iterator[RunningGateway]:
    """A gateway that speaks TLS, and takes client certificates and API keys."""
    secured.allow(acl("User:carol", Operation.ALL, ResourceType.TOPIC, "carols"))
    settings = {
        "ssl_certfile": pair.certfile,
        "ssl_keyfile": pair.keyfile,
        "ssl_ca_certs": authority.ca_file,
        "ssl_client_auth": "requested",
        "ssl_principal_mapping_rules": "RULE:^CN=([^,]+),.*$/$1/L, DEFAULT",
        "authentication_methods": "mtls,api-key",
        "peer_ca_certs": authority.ca_file,
        "receive_timeout_ms": 2_000,
        "linger_ms": 0,
    }
    with running_gateway(secured.cluster.store.url, **settings) as running:
        yield running


def test_a_certificate_says_who_a_client_is_and_acls_decide(
    gateway: RunningGateway, authority: Authority
) -> None:
    carol = authority.trusted(authority.pair("carol", O="Example", CN="Carol"))
    with Client(gateway.url, ssl_context=carol) as client:
        client.create_topic("carols", 1)
        with pytest.raises(AuthorizationFailed, match="User:carol may not CREATE"):
            client.create_topic("others", 1)
    with Producer(gateway.url, ssl_context=carol) as producer:
        assert producer.send("carols", b"x" * 100_000).result().offset == 0
    with Client(gateway.url, ssl_context=carol) as client:
        assert [len(record.value or b"") for record in client.read("carols", 0)] == [100_000]


def test_without_a_right_certificate_nobody_is_let_in(
    gateway: RunningGateway, authority: Authority, tmp_path: Path
) -> None:
    with Client(gateway.url, ssl_context=authority.trusted()) as client:
        with pytest.raises(AuthenticationFailed):
            client.topics()
        client.wait(0)
    old = authority.pair("old", days=(-3, -1), CN="carol")
    foreign = Authority(tmp_path, "foreign").pair("foreign", CN="carol")
    for pair in (old, foreign):
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{gateway.url}/health", verify=authority.trusted(pair))


def test_a_connection_that_could_be_resumed_is_not_made(
    gateway: RunningGateway, authority: Authority
) -> None:
    """A resumed one brings a certificate that nobody verifies again: its authority may be gone by then."""
    context, address = authority.trusted(), ("127.0.0.1", httpx.URL(gateway.url).port)
    with (
        socket.create_connection(address, timeout=WAIT_S) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(1_000).startswith(b"HTTP/1.1 200")
        session = connection.session
        assert session is None or not session.has_ticket
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # which resumes by ids, too, and no option prevents it
    with socket.create_connection(address, timeout=WAIT_S) as plain, pytest.raises(ssl.SSLError):
        context.wrap_socket(plain, server_hostname="127.0.0.1")


def test_a_key_counts_more_than_a_certificate(
    gateway: RunningGateway, authority: Authority, secured: Secured
) -> None:
    context = authority.trusted(authority.pair("dave", CN="dave"))
    headers = {"Authorization": f"Bearer {secured.key('User:erin')}"}

    def principal() -> str:
        answer = httpx.get(f"{gateway.url}/topics/nowhere", verify=context, headers=headers)
        return str(answer.json()["message"]).split()[0]

    wait_until(lambda: principal() == "User:erin", "the gateway knows the key")


def test_plain_http_is_ended_at_once(gateway: RunningGateway, authority: Authority) -> None:
    port = httpx.URL(gateway.url).port
    for sent in (b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n", b"\x00" * 1_000, b"\x16\x03\x01nonsense"):
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as plain:
            plain.sendall(sent)
            with suppress(ConnectionResetError):
                while data := plain.recv(1_000):
                    assert not data.startswith(b"HTTP")
    with (
        pytest.raises(Unreachable, match="by https:// if it speaks TLS"),
        Client(gateway.url.replace("https", "http")) as client,
    ):
        client.request("GET", "/health")
    assert httpx.get(f"{gateway.url}/health", verify=authority.trusted()).status_code == 200


def test_what_is_refused_while_it_is_sent_gets_its_answer(
    gateway: RunningGateway, authority: Authority
) -> None:
    url = httpx.URL(gateway.url)
    connection = http.client.HTTPSConnection(
        "127.0.0.1", url.port, context=authority.trusted(), timeout=WAIT_S
    )
    connection.putrequest("POST", "/topics/carols")
    connection.putheader("Content-Type", "application/vnd.kafka.json.v2+json")
    connection.putheader("Content-Length", str(1 << 24))
    connection.endheaders()
    with suppress(OSError):
        for _ in range(1 << 8):
            connection.send(b"x" * (1 << 16))
    answer = connection.getresponse()
    assert (answer.status, b"40101" in answer.read()) == (401, True)


def test_a_head_that_does_not_come_is_answered(gateway: RunningGateway, authority: Authority) -> None:
    port = httpx.URL(gateway.url).port
    with (
        socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as plain,
        authority.trusted().wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        connection.sendall(b"GET /health HTT")
        assert connection.recv(1_000).startswith(b"HTTP/1.1 408 ")
        with suppress(ssl.SSLError, OSError):
            while connection.recv(1_000):
                pass


def test_a_certificate_that_is_not_right_is_said_and_may_become_right(
    authority: Authority, tmp_path: Path
) -> None:
    pair = authority.pair("expired", days=(-3, -1))
    with (
        running_gateway(tmp_path, ssl_certfile=pair.certfile, ssl_keyfile=pair.keyfile) as gateway,
        Client(gateway.url, ssl_context=authority.trusted()) as client,
    ):
        with pytest.raises(Unreachable, match=r"is not trusted \(.*expired.*\); name its authorities"):
            client.request("GET", "/topics")
        authority.pair("expired", host="log.example.com")
        wait_until(lambda: b"log.example" in (shown(gateway) or b""), "the other one is shown")
        with pytest.raises(Unreachable, match=r"is not trusted \(.*127\.0\.0\.1.*\); name its authorities"):
            client.request("GET", "/topics")
        authority.pair("expired")
        client.wait(WAIT_S)
        with Client(gateway.url) as other, pytest.raises(Unreachable, match="LAKELOG_CA_FILE"):
            other.request("GET", "/topics")


def shown(gateway: RunningGateway) -> bytes | None:
    """The certificate that a new connection is shown."""
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    address = ("127.0.0.1", httpx.URL(gateway.url).port)
    with (
        socket.create_connection(address, timeout=WAIT_S) as plain,
        unchecked.wrap_socket(plain) as connection,
    ):
        return connection.getpeercert(binary_form=True)


def test_a_replaced_certificate_is_shown_to_new_connections_under_load(
    gateway: RunningGateway, authority: Authority, secured: Secured
) -> None:
    context, errors, stop = authority.trusted(), list[Exception](), threading.Event()
    asked = [0, 0]

    def load(number: int) -> None:
        while not stop.is_set():
            try:
                assert httpx.get(f"{gateway.url}/health", verify=context).status_code == 200
                asked[number] += 1
            except Exception as error:  # noqa: BLE001 -- the test fails with it
                errors.append(error)

    with httpx.Client(base_url=gateway.url, verify=context) as kept:
        assert kept.get("/health").status_code == 200
        threads = [threading.Thread(target=load, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(3):
                before = shown(gateway)
                authority.pair("gateway")
                wait_until(lambda: shown(gateway) != before, "the new certificate is shown")  # noqa: B023
                assert kept.get("/health").status_code == 200
            before = shown(gateway)
            Path(authority.pair("gateway").keyfile).write_text("broken")
            failing = 'lakelog_duty_failures_total{duty="certificates"}'
            headers = {"Authorization": f"Bearer {secured.key()}"}
            wait_until(
                lambda: failing in kept.get("/metrics", headers=headers).text, "the broken pair is looked at"
            )
            assert shown(gateway) == before
            authority.pair("gateway")
            wait_until(lambda: shown(gateway) != before, "a whole pair is taken again")
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert not errors
    assert min(asked) > 0
