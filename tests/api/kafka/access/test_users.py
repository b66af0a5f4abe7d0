"""Users with passwords made, changed, removed and described by Kafka's clients."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.access import (
    AlterClientQuotasRequest,
    AlteredQuotas,
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    EntityData,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from api.kafka.protocol.notation import ZERO_UUID
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.admin.security_admin import add_super_user
from log_tables.limits import KAFKA_RESOURCES_MAX
from tests.kit.audits import wait_for_audit
from tests.kit.kafka import KafkaGateway, kafka_gateway
from tests.kit.kafka_asking import Asker, asker
from tests.kit.run_credential import is_secured
from tests.kit.secured import Secured, acl
from tests.kit.support import WAIT_S

SHA_256, SHA_512 = 1, 2
SALT = ZERO_UUID
PASSWORD = "open sesame"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    made = Secured(tmp_path_factory.mktemp("root"))
    made.allow(acl("User:operator", Operation.ALTER, ResourceType.CLUSTER))
    return made


@pytest.fixture(scope="module")
def keys(secured: Secured) -> dict[str, str]:
    return {name: secured.key(f"User:{name}") for name in ("admin", "operator", "nobody")}


@pytest.fixture(scope="module")
def gateway(secured: Secured, keys: dict[str, str]) -> Iterator[KafkaGateway]:
    assert keys
    with kafka_gateway(secured.cluster.store.url, authentication_methods="api-key,scram") as running:
        yield running


@pytest.fixture
def operator(gateway: KafkaGateway, keys: dict[str, str]) -> Iterator[Asker]:
    """One with ALTER on the cluster."""
    with asker(gateway.port) as client:
        client.key(keys["operator"])
        yield client


def upsertion(
    name: str, mechanism: int = SHA_256, password: str = PASSWORD, iterations: int = 4_096, **changes: Any
) -> ScramCredentialUpsertion:
    """As Kafka's clients salt a password."""
    digest = {SHA_256: "sha256", SHA_512: "sha512"}.get(mechanism, "sha256")
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), SALT, max(iterations, 1))
    given: dict[str, Any] = {
        "salt": SALT,
        "salted_password": salted,
        "iterations": iterations,
        "mechanism": mechanism,
    }
    return ScramCredentialUpsertion(name=name, **(given | changes))


def alter(
    client: Asker, *asked: ScramCredentialUpsertion | ScramCredentialDeletion
) -> dict[str, tuple[int, str | None]]:
    """The codes and messages of the answer, by user."""
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in asked if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in asked if isinstance(each, ScramCredentialUpsertion)],
    )
    results = client.ask(request).results
    assert len({each.user for each in results}) == len(results)
    return {each.user: (each.error_code, each.error_message) for each in results}


def described(client: Asker, *names: str) -> dict[str, Any]:
    """By user its mechanisms and iterations, or the code of an error."""
    users = [UserName(name=name) for name in names] or None
    answer = client.ask(DescribeUserScramCredentialsRequest(users=users))
    assert answer.error_code == 0
    return {
        each.user: each.error_code or {info.mechanism: info.iterations for info in each.credential_infos}
        for each in answer.results
    }


def logs_in(gateway: KafkaGateway, name: str, password: str, digest: str = "256") -> bool:
    with asker(gateway.port) as client:
        return client.scram(name, password, digest).error_code == 0


def test_a_user_is_made_logs_in_is_changed_and_removed(gateway: KafkaGateway, operator: Asker) -> None:
    assert alter(operator, upsertion("ann"), upsertion("bob", SHA_512)) == {
        "ann": (0, None),
        "bob": (0, None),
    }
    assert described(operator, "ann", "bob") == {"ann": {SHA_256: 4_096}, "bob": {SHA_512: 4_096}}
    assert logs_in(gateway, "ann", PASSWORD)  # at once
    assert logs_in(gateway, "bob", PASSWORD, "512")
    with asker(gateway.port) as plain:
        assert plain.plain("ann", PASSWORD).error_code == 0
        assert alter(operator, upsertion("ann", password="another one"))["ann"] == (0, None)
        assert plain.is_closed()  # as it came in by what is no longer right
    assert not logs_in(gateway, "ann", PASSWORD)
    assert logs_in(gateway, "ann", "another one")
    assert alter(operator, upsertion("ann", SHA_512))["ann"] == (0, None)
    assert alter(operator, ScramCredentialDeletion(name="ann", mechanism=SHA_256))["ann"] == (0, None)
    assert described(operator, "ann") == {"ann": {SHA_512: 4_096}}
    assert alter(operator, ScramCredentialDeletion(name="ann", mechanism=SHA_512))["ann"] == (0, None)
    assert described(operator) == {"bob": {SHA_512: 4_096}}
    for operation in ("AlterUserScramCredentials", "AlterUserScramCredentials' and event like '%removed%"):
        wait_for_audit(gateway.data, f"operation = '{operation}' and resource_name = 'ann'")


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        ({"iterations": 4_095}, ErrorCode.UNACCEPTABLE_CREDENTIAL, "iterations = 4095: SCRAM takes 4096 to"),
        ({"iterations": 16_385}, ErrorCode.UNACCEPTABLE_CREDENTIAL, "iterations = 16385"),
        ({"iterations": -1}, ErrorCode.UNACCEPTABLE_CREDENTIAL, "iterations = -1"),
        ({"salt": b"abc"}, ErrorCode.UNACCEPTABLE_CREDENTIAL, "the salt has 3 bytes; take a random one of"),
        ({"salt": bytes(257)}, ErrorCode.UNACCEPTABLE_CREDENTIAL, "the salt has 257 bytes"),
        (
            {"salted_password": b""},
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "has 0 bytes, and SCRAM-SHA-256 makes 32",
        ),
        ({"salted_password": bytes(64)}, ErrorCode.UNACCEPTABLE_CREDENTIAL, "has 64 bytes"),
        ({"name": ""}, ErrorCode.UNACCEPTABLE_CREDENTIAL, "not written as User:NAME"),
        ({"name": "a:b"}, ErrorCode.UNACCEPTABLE_CREDENTIAL, "has a colon"),
        ({"name": "x" * 201}, ErrorCode.UNACCEPTABLE_CREDENTIAL, "1 to 200 printable"),
        ({"mechanism": 0}, ErrorCode.UNSUPPORTED_SASL_MECHANISM, "0 is no mechanism of SCRAM; use one of 1"),
        ({"mechanism": 3}, ErrorCode.UNSUPPORTED_SASL_MECHANISM, "3 is no mechanism"),
    ],
)
def test_what_is_weak_or_out_of_shape_says_so_and_others_are_made(
    operator: Asker, changes: dict[str, Any], code: ErrorCode, says: str
) -> None:
    name = changes.get("name", "weak")
    answer = alter(operator, upsertion(**{"name": name} | changes), upsertion("beside"))
    assert answer["beside"] == (0, None)
    assert answer[name][0] == code
    assert says in (answer[name][1] or "")
    assert name not in described(operator)


def test_users_that_are_unknown_or_named_twice_are_told(operator: Asker) -> None:
    gone = ScramCredentialDeletion(name="nobody", mechanism=SHA_256)
    assert alter(operator, gone)["nobody"][0] == ErrorCode.RESOURCE_NOT_FOUND
    twice = alter(operator, upsertion("eve"), upsertion("eve", SHA_512), upsertion("beside"))
    assert (twice["eve"][0], twice["beside"][0]) == (ErrorCode.DUPLICATE_RESOURCE, 0)
    again = alter(operator, upsertion("eve"), ScramCredentialDeletion(name="eve", mechanism=SHA_512))
    assert again["eve"][0] == ErrorCode.DUPLICATE_RESOURCE
    assert described(operator, "eve", "beside", "eve", "nobody") == {
        "eve": ErrorCode.DUPLICATE_RESOURCE,
        "beside": {SHA_256: 4_096},
        "nobody": ErrorCode.RESOURCE_NOT_FOUND,
    }


def test_only_a_super_user_changes_the_password_of_one(
    gateway: KafkaGateway, operator: Asker, keys: dict[str, str]
) -> None:
    code, message = alter(operator, upsertion("admin"))["admin"]
    assert code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert "User:admin is a super user" in (message or "")
    with asker(gateway.port) as client:
        client.key(keys["admin"])
        assert alter(client, upsertion("admin"))["admin"] == (0, None)
    gone = ScramCredentialDeletion(name="admin", mechanism=SHA_256)
    assert alter(operator, gone)["admin"][0] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    wait_for_audit(
        gateway.data, "principal = 'User:operator' and resource_name = 'admin' and error_code = 31"
    )


def test_who_has_just_become_a_super_user_is_one(secured: Secured, operator: Asker) -> None:
    for number in range(5):
        add_super_user(secured.cluster.metadata_log, f"User:new-{number}")
        answer = alter(operator, upsertion(f"new-{number}"))
        assert answer[f"new-{number}"][0] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_one_request_asks_for_so_many_users(operator: Asker) -> None:
    users = [UserName(name=str(number)) for number in range(KAFKA_RESOURCES_MAX + 1)]
    answer = operator.ask(DescribeUserScramCredentialsRequest(users=users))
    assert (answer.error_code, answer.results) == (ErrorCode.POLICY_VIOLATION, [])
    assert f"at most {KAFKA_RESOURCES_MAX} users" in answer.error_message
    found = described(operator, *(each.name for each in users[1:]))
    assert [*found.values()] == [ErrorCode.RESOURCE_NOT_FOUND] * KAFKA_RESOURCES_MAX


def test_one_without_the_right_learns_and_changes_nothing(
    gateway: KafkaGateway, keys: dict[str, str]
) -> None:
    with asker(gateway.port) as client:
        client.key(keys["nobody"])
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        answer = client.ask(DescribeUserScramCredentialsRequest(users=None))
        assert (answer.error_code, answer.results) == (denied, [])
        gone = ScramCredentialDeletion(name="bob", mechanism=9)
        assert {code for code, _ in alter(client, upsertion("ann"), gone).values()} == {denied}


def test_librdkafka_makes_describes_and_removes_a_user(gateway: KafkaGateway, keys: dict[str, str]) -> None:
    name, secret = keys["operator"].split(".")
    plain = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    login = {"sasl.username": name, "sasl.password": secret}
    admin: Any = AdminClient({"bootstrap.servers": gateway.bootstrap, **plain, **login})
    sha_512 = ScramMechanism.SCRAM_SHA_512
    made = UserScramCredentialUpsertion(
        "rd", ScramCredentialInfo(sha_512, 10_000), PASSWORD.encode(), b"salt"
    )
    admin.alter_user_scram_credentials([made])["rd"].result(WAIT_S)
    assert logs_in(gateway, "rd", PASSWORD, "512")
    (info,) = admin.describe_user_scram_credentials(["rd"])["rd"].result(WAIT_S).scram_credential_infos
    assert (info.mechanism, info.iterations) == (sha_512, 10_000)
    gone = UserScramCredentialDeletion("rd", sha_512)
    admin.alter_user_scram_credentials([gone])["rd"].result(WAIT_S)
    assert "rd" not in admin.describe_user_scram_credentials().result(WAIT_S)


def test_a_setting_leaves_users_and_quotas_to_those_who_write_the_root(tmp_path: Path) -> None:
    key = Secured(tmp_path).key()
    off = {"user_administration_enable": "false", "authentication_methods": "api-key"}
    with kafka_gateway(tmp_path, **off) as gateway, asker(gateway.port) as client:
        client.key(key)
        code, message = alter(client, upsertion("ann"))["ann"]
        assert code == ErrorCode.POLICY_VIOLATION
        assert "user_administration_enable is off" in (message or "")
        assert described(client) == {}
        entry = AlteredQuotas(entity=[EntityData(entity_type="user", entity_name="ann")], ops=[])
        (result,) = client.ask(AlterClientQuotasRequest(entries=[entry])).entries
        assert result.error_code == ErrorCode.POLICY_VIOLATION


@pytest.mark.skipif(is_secured(), reason="about an open gateway")
def test_an_open_gateway_makes_no_users(tmp_path: Path) -> None:
    with kafka_gateway(tmp_path) as gateway, asker(gateway.port) as client:
        assert alter(client, upsertion("admin"))["admin"][0] == ErrorCode.SECURITY_DISABLED
        assert described(client) == {}
