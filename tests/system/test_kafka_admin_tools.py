"""Kafka's own tools as an administrator uses them: ACLs, quotas, passwords; and logging in by tokens."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.kafka import KafkaGateway, kafka_gateway
from tests.kit.kafka_programs import JARS, kafka_tool, refused_tool
from tests.kit.oidc_server import provider
from tests.kit.secured import ADMIN, Secured, everything

pytestmark = pytest.mark.torture

ACLS, CONFIGS = "AclCommand", "kafka.admin.ConfigCommand"
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="{}" password="{}";'
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="{}" password="{}";'
BEARER = (
    'org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId="carol" '
    'clientSecret="a secret";'
)

REFUSED = [
    ("users --entity-name ann", "request_percentage=50", "request_percentage is not kept here"),
    ("clients --entity-name app", "producer_byte_rate=1", "quotas of client-id are not kept here"),
    ("users --entity-name ann --entity-type clients --entity-default", "producer_byte_rate=1", "client-id"),
    ("ips --entity-name 10.0.0.1", "connection_creation_rate=5", "quotas of ip are not kept here"),
    ("users --entity-name a:b", "SCRAM-SHA-256=[password=open-sesame]", "has a colon"),
]
"""An entity, a setting of it, and what the tool says."""


def config(path: Path, mechanism: str, login: str, **more: str) -> str:
    """A file of a client's settings, in Java's form."""
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": login,
        **more,
    }
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return Secured(tmp_path_factory.mktemp("root"))


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory, secured: Secured) -> str:
    """The file of an administrator."""
    path = tmp_path_factory.mktemp("config") / "admin.properties"
    return config(path, "PLAIN", PLAIN.format(*secured.key(ADMIN).split(".")))


@pytest.fixture(scope="module")
def door(secured: Secured, admin: str) -> Iterator[KafkaGateway]:
    assert admin
    methods = {"authentication_methods": "api-key,scram"}
    with kafka_gateway(secured.cluster.store.url, **methods) as gateway:
        yield gateway


def told(door: KafkaGateway, client: str, words: str) -> list[str]:
    return ["--bootstrap-server", door.bootstrap, "--command-config", client, *words.split()]


def test_acls_are_added_listed_and_removed(door: KafkaGateway, admin: str) -> None:
    prefixed = "--consumer --topic fl --group b- --resource-pattern-type prefixed"
    for words in (
        "--add --allow-principal User:ann --producer --topic orders",
        f"--add --allow-principal User:bob --allow-host 10.0.0.0/8 {prefixed}",
        "--add --deny-principal User:bob --operation Alter --cluster",
    ):
        kafka_tool(ACLS, *told(door, admin, words))
    every = kafka_tool(ACLS, *told(door, admin, "--list"))
    assert every.count("(principal=") == 7
    assert "(principal=User:bob, host=10.0.0.0/8, operation=READ, permissionType=ALLOW)" in every
    matching = kafka_tool(ACLS, *told(door, admin, "--list --topic flights --resource-pattern-type match"))
    assert matching.count("(principal=") == 2
    gone = "--remove --force --allow-principal User:ann --producer --topic orders"
    kafka_tool(ACLS, *told(door, admin, gone))
    assert "User:ann" not in kafka_tool(ACLS, *told(door, admin, "--list"))
    wrong = "--add --allow-principal User:ann --operation CreateTokens --user-principal User:x"
    assert "ACLs with the resource type USER are not kept here" in refused_tool(
        ACLS, *told(door, admin, wrong)
    )


def test_quotas_and_passwords_are_set_shown_and_removed(
    door: KafkaGateway, admin: str, tmp_path: Path
) -> None:
    ann = "--alter --entity-type users --entity-name ann"
    for words in (
        f"{ann} --add-config SCRAM-SHA-512=[iterations=8192,password=open-sesame]",
        f"{ann} --add-config producer_byte_rate=1024,consumer_byte_rate=2048",
        "--alter --entity-type users --entity-default --add-config controller_mutation_rate=5",
    ):
        kafka_tool(CONFIGS, *told(door, admin, words))
    said = kafka_tool(CONFIGS, *told(door, admin, "--describe --entity-type users"))
    assert "for the default user-principal are controller_mutation_rate=5.0" in said
    assert "'ann' are consumer_byte_rate=2048.0, producer_byte_rate=1024.0" in said
    assert "'ann' are SCRAM-SHA-512=iterations=8192" in said
    client = config(tmp_path / "ann", "SCRAM-SHA-512", SCRAM.format("ann", "open-sesame"))
    assert kafka_tool("TopicCommand", *told(door, client, "--list")).split() == []
    denied = refused_tool(ACLS, *told(door, client, "--list"))
    assert "Cluster authorization failed" in denied or "may not DESCRIBE" in denied
    for words in (f"{ann} --delete-config SCRAM-SHA-512", f"{ann} --delete-config producer_byte_rate"):
        kafka_tool(CONFIGS, *told(door, admin, words))
    said = kafka_tool(CONFIGS, *told(door, admin, "--describe --entity-type users --entity-name ann"))
    assert "SCRAM" not in said
    assert "producer_byte_rate" not in said
    assert "consumer_byte_rate=2048.0" in said


@pytest.mark.parametrize(("entity", "setting", "says"), REFUSED)
def test_what_cannot_be_kept_is_refused_by_name(
    door: KafkaGateway, admin: str, entity: str, setting: str, says: str
) -> None:
    words = f"--alter --entity-type {entity} --add-config {setting}"
    assert says in refused_tool(CONFIGS, *told(door, admin, words))


@pytest.mark.skipif(not [*JARS.glob("jose4j-*.jar")], reason="`make setup` fetches the jar")
def test_java_fetches_a_token_and_logs_in(tmp_path: Path) -> None:
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    Secured(tmp_path / "root").allow(*everything("User:carol"))
    with provider() as idp, kafka_gateway(tmp_path / "root", **idp.settings) as gateway:
        url = f"{idp.url}/token"
        more = {"sasl.login.callback.handler.class": handler, "sasl.oauthbearer.token.endpoint.url": url}
        client = config(tmp_path / "carol", "OAUTHBEARER", BEARER, **more)
        allowed = {"org.apache.kafka.sasl.oauthbearer.allowed.urls": url}
        words = told(gateway, client, "--create --topic tokens --partitions 2")
        assert "Created topic tokens" in kafka_tool("TopicCommand", *words, properties=allowed)
        assert idp.given
