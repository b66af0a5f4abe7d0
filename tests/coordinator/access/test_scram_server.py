"""The server's side of SCRAM: the example of RFC 7677, a client of its own, and what an attacker sends."""

import base64
import hashlib
import hmac

import pytest

from coordinator.access.authentication.password_verifier import NAME_BURST, PasswordVerifier
from coordinator.access.authentication.scram import (
    ITERATIONS_MIN,
    MECHANISMS,
    ScramUsers,
    new_scram_user,
    scram_credential,
)
from coordinator.access.authentication.scram_server import MESSAGE_MAX_BYTES, ScramServer
from log_tables.clock import ManualClock
from log_tables.cluster.credential import ScramUserRecord
from log_tables.errors import AuthenticationFailed, QuotaReached

HERE = "192.0.2.1"
SHA_256 = "SCRAM-SHA-256"


class Server:
    """Exchanges with one that knows the user `ann, the =2nd` with the password `a canary`."""

    def __init__(self, clock: ManualClock) -> None:
        self.name = "ann, the =2nd"
        self.users = ScramUsers(
            {self.name: new_scram_user(self.name, "a canary", clock, ITERATIONS_MIN)}, b"k"
        )
        self.passwords = PasswordVerifier(clock)

    def begin(self, mechanism: str = SHA_256) -> ScramServer:
        return ScramServer(mechanism, self.users, self.passwords, HERE, "server")


def final(mechanism: str, password: str, first: bytes, answer: bytes) -> tuple[bytes, bytes]:
    """A client's final message (RFC 5802, 3), and the answer that it expects."""
    digest = MECHANISMS[mechanism]
    fields = dict(field.split("=", 1) for field in answer.decode().split(","))
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    unproven = f"c=biws,r={fields['r']}"
    said = first.removeprefix(b"n,,") + b"," + answer + b"," + unproven.encode()
    client_key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), said, digest)
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    server = hmac.digest(hmac.digest(salted, b"Server Key", digest), said, digest)
    return (
        f"{unproven},p={base64.b64encode(proof).decode()}".encode(),
        b"v=" + base64.b64encode(server),
    )


FIRST = b"n,,n=ann=2C the =3D2nd,r=client"


@pytest.fixture
def server(clock: ManualClock) -> Server:
    return Server(clock)


def test_the_example_of_rfc_7677(clock: ManualClock) -> None:
    kept = scram_credential(SHA_256, "pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    users = ScramUsers({"user": ScramUserRecord("user", {SHA_256: kept})}, b"k")
    nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    exchange = ScramServer(SHA_256, users, PasswordVerifier(clock), HERE, nonce)
    both = b"rOprNGfwEbeRWgbNEkqO" + nonce.encode()
    assert exchange.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=" + both + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    proof = b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert exchange.final(b"c=biws,r=" + both + proof) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert exchange.user is users.get("user")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_right_password_is_proven(server: Server, mechanism: str) -> None:
    exchange = server.begin(mechanism)
    said, expected = final(mechanism, "a canary", FIRST, exchange.first(FIRST))
    assert exchange.user is None
    assert exchange.final(said) == expected
    assert exchange.user is server.users.get(server.name)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("first", [FIRST, b"n,,n=nobody,r=client"])
def test_a_wrong_password_and_a_wrong_name_are_refused_alike(
    server: Server, mechanism: str, first: bytes
) -> None:
    exchange = server.begin(mechanism)
    said, _ = final(mechanism, "wrong", first, exchange.first(first))
    with pytest.raises(AuthenticationFailed, match="the name or the password is not right") as refused:
        exchange.final(said)
    assert exchange.user is None
    assert (refused.value.__context__, refused.value.__cause__) == (None, None)


def test_a_name_that_does_not_exist_has_the_same_salt_each_time(server: Server) -> None:
    first = b"n,,n=nobody,r=client"
    assert server.begin().first(first) == server.begin().first(first)
    assert b",i=4096" in server.begin().first(first)


def test_a_user_without_the_mechanism_is_refused(server: Server, clock: ManualClock) -> None:
    user = new_scram_user(server.name, "a canary", clock, ITERATIONS_MIN, (SHA_256,))
    server.users = ScramUsers({server.name: user}, b"k")
    exchange = server.begin("SCRAM-SHA-512")
    said, _ = final("SCRAM-SHA-512", "a canary", FIRST, exchange.first(FIRST))
    with pytest.raises(AuthenticationFailed):
        exchange.final(said)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n",
        b"n=ann,r=client",
        b"p=tls-unique,,n=ann,r=client",
        b"n,a=root,n=ann,r=client",
        b"n,,m=x,n=ann,r=client",
        b"n,,n=,r=client",
        b"n,,n=ann",
        b"n,,n=ann,r=",
        b"n,,n=a=b,r=client",
        b"n,,n=ann,r=cli ent",
        b"n,,n=ann,r=client,",
        b"n,,n=ann,r=client\n",
        b"n,,n=\xff,r=client",
        b"n,,n=ann,r=" + b"c" * MESSAGE_MAX_BYTES,
    ],
)
def test_a_first_message_that_is_none_is_refused(server: Server, message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        server.begin().first(message)


@pytest.mark.parametrize("first", [b"y,,n=ann,r=client", b"n,a=ann,n=ann,r=client,tokenauth=false"])
def test_other_forms_of_a_first_message_are_taken(server: Server, first: bytes) -> None:
    assert server.begin().first(first).startswith(b"r=clientserver,s=")


def test_any_change_of_the_final_message_is_seen(server: Server) -> None:
    for place in range(100):
        clock = ManualClock()
        fresh = Server(clock)
        exchange = fresh.begin()
        said, _ = final(SHA_256, "a canary", FIRST, exchange.first(FIRST))
        changed = (
            said[:place] + bytes([said[place] ^ 1]) + said[place + 1 :]
            if place < len(said) - 1
            else said[:-4]
        )
        with pytest.raises(AuthenticationFailed):
            exchange.final(changed)
        assert exchange.user is None


def test_an_exchange_is_done_in_its_order_and_once(server: Server) -> None:
    exchange = server.begin()
    said, _ = final(SHA_256, "a canary", FIRST, exchange.first(FIRST))
    with pytest.raises(AuthenticationFailed):
        server.begin().final(said)
    exchange.final(said)
    with pytest.raises(AuthenticationFailed):
        exchange.final(said)


def test_guessing_is_bounded(server: Server) -> None:
    def guess(password: str) -> None:
        exchange = server.begin()
        exchange.final(final(SHA_256, password, FIRST, exchange.first(FIRST))[0])

    for _ in range(NAME_BURST):
        guess("a canary")
    for _ in range(NAME_BURST):
        with pytest.raises(AuthenticationFailed):
            guess("wrong")
    with pytest.raises(QuotaReached):
        guess("a canary")
