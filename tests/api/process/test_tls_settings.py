"""Settings of TLS: certificates that clients must have, other gateways, and what does not go together."""

import subprocess
from pathlib import Path

import httpx
import pytest

from api.process.tls import ServerCertificate, check_own_certificate
from ingest.settings import Settings, load_settings
from lakelog import (
    AuthenticationFailed,
    AuthorizationFailed,
    Client,
    Consumer,
    LakelogError,
    Producer,
)
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.errors import InvalidConfig
from tests.kit.certificates import Authority
from tests.kit.forked import run_lakelog
from tests.kit.gateway import running_gateway, start_gateway, two_gateways
from tests.kit.secured import Secured, acl

PASSWORD = "canary-33b0"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def settings_of(authority: Authority, **others: str) -> dict[str, str]:
    pair = authority.pair("gateway")
    return {
        "ssl_certfile": pair.certfile,
        "ssl_keyfile": pair.keyfile,
        "peer_ca_certs": authority.ca_file,
        **others,
    }


def test_required_certificates_are_not_asked_of_a_kubelet(authority: Authority, tmp_path: Path) -> None:
    required = settings_of(authority, ssl_client_auth="required", ssl_ca_certs=authority.ca_file)
    without, with_one = authority.trusted(), authority.trusted(authority.pair("client"))
    with running_gateway(tmp_path, **required) as gateway:
        assert gateway.url.startswith("https://")
        for path in ("/health", "/ready"):
            assert httpx.get(gateway.url + path, verify=without).status_code == 200
        with Client(gateway.url, ssl_context=without) as client:
            with pytest.raises(AuthenticationFailed, match="wants a certificate"):
                client.topics()
            with pytest.raises(AuthenticationFailed):
                client.request("GET", "/metrics")
            for path in ("/topics", "/peer/ping"):
                with pytest.raises(LakelogError, match="is for another gateway"):
                    client.request("GET", path, headers={"lakelog-target": "guessed"})
        with Client(gateway.url, ssl_context=with_one) as client:
            assert client.topics() == []


def test_gateways_reach_one_another_by_https(authority: Authority, tmp_path: Path) -> None:
    required = settings_of(authority, ssl_client_auth="required", ssl_ca_certs=authority.ca_file)
    context = authority.trusted(authority.pair("client"))
    with two_gateways(tmp_path, **required) as gateways:
        with Client(gateways[0].url, ssl_context=context) as client:
            client.create_topic("sales", 2)
            assert {broker["url"][:8] for broker in client.brokers()} == {"https://"}
        for gateway in gateways:
            with Producer(gateway.url, ssl_context=context) as producer:
                sent = [producer.send("sales", b"1", partition=partition) for partition in (0, 1)]
                assert [each.result().partition for each in sent] == [0, 1]


def test_workers_reach_one_another_by_https(authority: Authority, tmp_path: Path) -> None:
    gateway = start_gateway(tmp_path, "--workers", "2", **settings_of(authority))
    try:
        for _ in range(4):  # the kernel chooses a worker for each connection
            with Client(gateway.url, ssl_context=authority.trusted()) as client:
                if "sales" not in client.topics():
                    client.create_topic("sales", 2)
            with Producer(gateway.url, ssl_context=authority.trusted()) as producer:
                sent = [producer.send("sales", b"1", partition=partition) for partition in (0, 1)]
                assert [each.result().partition for each in sent] == [0, 1]
    finally:
        assert gateway.stop() == 0


def test_a_certificate_counts_where_a_request_is_forwarded_to(authority: Authority, tmp_path: Path) -> None:
    secured = Secured(tmp_path)
    secured.allow(
        acl("User:carol", Operation.ALL, ResourceType.TOPIC, "carols"),
        acl("User:carol", Operation.ALL, ResourceType.GROUP, "readers"),
    )
    given = settings_of(authority, ssl_client_auth="requested", ssl_ca_certs=authority.ca_file)
    rules = {"ssl_principal_mapping_rules": "RULE:^CN=(.*)$/$1/", "authentication_methods": "mtls"}
    carol = authority.trusted(authority.pair("carol", CN="carol"))
    dave = authority.trusted(authority.pair("dave", CN="dave"))
    with two_gateways(tmp_path, **given, **rules) as gateways:
        with Client(gateways[0].url, ssl_context=carol) as client:
            client.create_topic("carols", 2)
        for number, gateway in enumerate(gateways):
            with Producer(gateway.url, ssl_context=carol) as producer:
                for partition in (0, 1):
                    assert producer.send("carols", b"1", partition=partition).result().offset == number
            with Consumer(
                gateway.url, "readers", "carols", auto_offset_reset="earliest", ssl_context=carol
            ) as consumer:
                assert [next(consumer).topic for _ in range(2)] == ["carols"] * 2
            with pytest.raises(AuthorizationFailed, match="User:dave may not"):
                Consumer(gateway.url, "readers", "carols", ssl_context=dave)


def test_a_name_of_other_gateways_is_taken_instead_of_their_hosts(
    authority: Authority, tmp_path: Path
) -> None:
    pair = authority.pair("named", host="log.example.com")
    given = {
        "ssl_certfile": pair.certfile,
        "ssl_keyfile": pair.keyfile,
        "peer_ca_certs": authority.ca_file,
        "peer_url": "https://127.0.0.1:8082",
    }
    named = {**given, "peer_server_name": "log.example.com"}
    server = ServerCertificate(Settings.model_validate(given)).context
    check_own_certificate(Settings.model_validate(named), server)
    with pytest.raises(InvalidConfig, match=r"other gateways reach this one as .*, and do not trust"):
        check_own_certificate(Settings.model_validate(given), server)
    untrusted = {**named, "peer_ca_certs": Authority(tmp_path, "other").ca_file}
    with pytest.raises(InvalidConfig, match="set peer_ca_certs"):
        check_own_certificate(Settings.model_validate(untrusted), server)
    done = serve(tmp_path, "--workers", "2", **given | {"peer_url": ""})
    assert done.returncode != 0
    assert "peer_server_name" in done.stderr


def serve(data: Path, *flags: str, **settings: str) -> "subprocess.CompletedProcess[str]":
    pairs = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    return run_lakelog("serve", "--data", str(data), "--port", "0", *flags, *pairs)


def test_a_pair_that_does_not_belong_together_is_no_start(authority: Authority, tmp_path: Path) -> None:
    first, second = authority.pair("first"), authority.pair("second")
    done = serve(tmp_path, ssl_certfile=first.certfile, ssl_keyfile=second.keyfile)
    assert (done.returncode, done.stdout) == (2, "")
    assert "KEY_VALUES_MISMATCH" in done.stderr
    assert "name files in PEM that belong together" in done.stderr


@pytest.mark.parametrize("password", ["", "wrong", PASSWORD])
def test_the_key_may_have_a_password(authority: Authority, password: str) -> None:
    pair = authority.pair("locked", password=PASSWORD)
    given = {"ssl_certfile": pair.certfile, "ssl_keyfile": pair.keyfile, "ssl_keyfile_password": password}
    settings = Settings.model_validate(given)
    assert PASSWORD not in f"{settings!r} {settings.model_dump_json()}"
    if password == PASSWORD:
        ServerCertificate(settings)
        return
    with pytest.raises(InvalidConfig) as wrong:
        ServerCertificate(settings)
    assert PASSWORD not in str(wrong.value)


def test_a_password_is_no_flag() -> None:
    with pytest.raises(InvalidConfig, match="LAKELOG_SSL_KEYFILE_PASSWORD") as wrong:
        load_settings(None, ssl_keyfile_password=PASSWORD)
    assert PASSWORD not in str(wrong.value)


@pytest.mark.parametrize(
    ("given", "lacking"),
    [
        ({"ssl_keyfile": "a"}, "ssl_certfile"),
        ({"ssl_ca_certs": "a"}, "ssl_client_auth"),
        ({"ssl_client_auth": "required", "ssl_certfile": "a"}, "ssl_certfile and ssl_ca_certs"),
        ({"ssl_client_auth": "requested", "ssl_ca_certs": "a"}, "ssl_certfile and ssl_ca_certs"),
        ({"authentication_methods": "mtls"}, "ssl_client_auth"),
        (
            {"oidc_issuer": "https://a", "authentication_methods": "api-key"},
            "authentication_methods with oidc",
        ),
        ({"oidc_audience": "a"}, "authentication_methods with oidc"),
        ({"oidc_jwks_url": "https://a"}, "authentication_methods with oidc"),
        ({"ssl_principal_mapping_rules": "RULE:a/b/"}, "authentication_methods with mtls"),
    ],
)
def test_settings_that_would_do_nothing_are_refused(given: dict[str, str], lacking: str) -> None:
    with pytest.raises(InvalidConfig, match=f"needs {lacking}; set both, or none"):
        load_settings(None, **given)
