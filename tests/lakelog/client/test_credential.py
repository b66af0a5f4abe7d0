"""Credentials of clients: sent with every request, read again when they are refused, and shown nowhere."""

import logging
import pickle
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from lakelog import (
    AuthenticationFailed,
    AuthorizationFailed,
    Client,
    Consumer,
    Credential,
    InvalidArgument,
    LakelogError,
)
from log_tables.cluster.acl import Operation, ResourceType
from tests.kit.faces import Face
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.secured import Secured, acl
from tests.kit.support import wait_until

METHODS = "api-key,scram"
BINARY = "application/vnd.kafka.binary.v2+json"
CANARY = "canary-4f2a"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return Secured(tmp_path_factory.mktemp("secured"))


@pytest.fixture(scope="module")
def admin(secured: Secured) -> Credential:
    return Credential.api_key(secured.key())


@pytest.fixture(scope="module")
def guarded(secured: Secured, admin: Credential) -> Iterator[RunningGateway]:
    """A gateway that authenticates its clients, with the topic `sales`."""
    secured.user("alice", "pass wörd")
    secured.allow(
        acl("User:alice", Operation.ALL, ResourceType.TOPIC, "sales"),
        acl("User:alice", Operation.ALL, ResourceType.GROUP, "alices"),
    )
    with running_gateway(secured.cluster.store.url, authentication_methods=METHODS, linger_ms=0) as running:
        with Client(running.url, credential=admin) as client:
            client.create_topic("sales", 1)
        yield running


def test_each_face_sends_a_key_and_a_password(face: Face, guarded: RunningGateway, admin: Credential) -> None:
    for credential in (admin, Credential.user("alice", "pass wörd")):
        with face.producer(guarded.url, credential=credential) as producer:
            assert producer.send("sales", b"1").result().partition == 0
        with face.client(guarded.url, credential=credential) as client:
            assert client.topics() == ["sales"]
            assert [record.value for record in client.read("sales", 0)]


def test_a_consumer_sends_it_too(guarded: RunningGateway, admin: Credential) -> None:
    with Client(guarded.url, credential=admin) as client:
        client.post("/topics/sales", b'{"records":[{"value":"MQ=="}]}', {"Content-Type": BINARY})
    alice = Credential.user("alice", "pass wörd")
    with Consumer(guarded.url, "alices", "sales", auto_offset_reset="earliest", credential=alice) as consumer:
        assert next(consumer).topic == "sales"


def test_a_wrong_credential_is_an_error_of_its_own(face: Face, guarded: RunningGateway) -> None:
    wrong = (None, Credential.api_key("a.b"), Credential.user("alice", "no"))
    for credential in wrong:
        with (
            face.client(guarded.url, credential=credential) as client,
            pytest.raises(AuthenticationFailed),
        ):
            client.topics()
        with (
            face.producer(guarded.url, credential=credential) as producer,
            pytest.raises(AuthenticationFailed),
        ):
            producer.send("sales", b"1").result()


def test_a_text_is_no_credential_and_is_not_shown(face: Face) -> None:
    for make in (face.client, face.producer):
        with pytest.raises(InvalidArgument, match="the credential is a str; make") as refused:
            make("http://127.0.0.1:1", credential=cast("Any", "the.secret"))
        assert "secret" not in refused.value.message


def test_what_no_acl_allows_is_an_error_of_its_own(face: Face, guarded: RunningGateway) -> None:
    alice = Credential.user("alice", "pass wörd")
    says = "User:alice may not CREATE TOPIC 'other'"
    with (
        face.client(guarded.url, credential=alice) as client,
        pytest.raises(AuthorizationFailed, match=says),
    ):
        client.create_topic("other", 1)


def test_a_file_is_read_again_when_its_key_is_refused(
    face: Face, guarded: RunningGateway, secured: Secured, tmp_path: Path
) -> None:
    first, file = secured.key(), tmp_path / "key"
    file.write_text(first + "\n")
    credential = Credential.api_key_file(file)

    def is_let_in(client: Client) -> bool:
        with suppress(AuthenticationFailed):
            return client.topics() == ["sales"]
        return False

    with face.client(guarded.url, credential=credential) as client:
        wait_until(lambda: is_let_in(client), "the gateway knows the key")
        secured.revoke(first)
        wait_until(lambda: not is_let_in(client), "the key is revoked")
        file.write_text(secured.key())
        wait_until(lambda: is_let_in(client), "the gateway knows the new key, and the client sends it")


def test_a_refused_request_is_sent_again_with_another_key_only(face: Face, tmp_path: Path) -> None:
    sent: list[tuple[str, bytes]] = []
    file = tmp_path / "key"
    file.write_text("old.key")

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append((request.headers["Authorization"], request.read()))
        right = request.headers["Authorization"] == "Bearer new.key"
        return httpx.Response(200 if right else 401, json={"error_code": 40101, "message": "no"})

    credential = Credential.api_key_file(file)
    with face.client("http://a", credential=credential, transport=httpx.MockTransport(answer)) as client:
        with pytest.raises(AuthenticationFailed):
            client.request("POST", "/x", content=b"body")
        file.write_text("new.key")
        client.request("POST", "/x", content=b"body")
    old, new = ("Bearer old.key", b"body"), ("Bearer new.key", b"body")
    assert sent == [old, old, new]


def test_a_redirect_to_another_host_does_not_take_it_along(face: Face) -> None:
    seen: dict[str, str | None] = {}

    def answer(request: httpx.Request) -> httpx.Response:
        seen[request.url.host] = request.headers.get("Authorization")
        if request.url.host == "a":
            return httpx.Response(307, headers={"Location": "http://b/topics"})
        return httpx.Response(200, json=[])

    key = Credential.api_key(f"id.{CANARY}")
    with face.client("http://a", credential=key, transport=httpx.MockTransport(answer)) as client:
        with pytest.raises(LakelogError):
            client.topics()
        assert [*seen] == ["a"]
        client.request("GET", "/topics", follow_redirects=True)
    assert seen == {"a": f"Bearer id.{CANARY}", "b": None}


@pytest.mark.parametrize(
    "credential", [Credential.api_key(f"id.{CANARY}"), Credential.user("bob", CANARY)], ids=["key", "user"]
)
def test_nothing_shows_what_a_credential_holds(
    face: Face, guarded: RunningGateway, caplog: pytest.LogCaptureFixture, credential: Credential
) -> None:
    caplog.set_level(logging.DEBUG)
    shown = [repr(credential), str(credential), f"{credential!r:>40}"]
    for url in (guarded.url, "http://127.0.0.1:9"):
        with face.client(url, credential=credential) as client:
            try:
                client.topics()
            except LakelogError as error:
                shown += [str(error), repr(error), repr(error.details), *traceback.format_exception(error)]
    shown.append(caplog.text)
    secret = credential.header().split()[1]
    assert not [text for text in shown if CANARY in text or secret in text]


def test_it_can_be_sent_to_another_process() -> None:
    copied = pickle.loads(pickle.dumps(Credential.api_key("id.secret")))
    assert copied.header() == "Bearer id.secret"


@pytest.mark.parametrize("text", ["", "two words", "line\nbreak", "naïve", "a.b\r\nX: y"])
def test_what_is_no_key_is_refused_without_being_shown(text: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidArgument) as refused:
        Credential.api_key(text)
    assert not text or text not in str(refused.value)
    if text.strip() == text:
        with pytest.raises(InvalidArgument) as refused:
            Credential.api_key_file(tmp_path / "key").header()
    with pytest.raises(InvalidArgument):
        Credential.api_key_file(tmp_path / "nowhere").header()


@pytest.mark.parametrize(("name", "password"), [("", "p"), ("a:b", "p"), ("a", "p\n")])
def test_what_is_no_user_is_refused(name: str, password: str) -> None:
    with pytest.raises(InvalidArgument):
        Credential.user(name, password)


def test_a_password_in_a_url_is_refused_without_being_shown() -> None:
    with pytest.raises(InvalidArgument) as refused:
        Client(f"http://bob:{CANARY}@127.0.0.1:8082")
    assert CANARY not in str(refused.value)
