"""Sessions: cookies that only gateways of the cluster open, for as long as they last."""

import pytest

from api.session import COOKIE_MAX_CHARS, SESSION_MS, LoginState, SessionCipher
from log_tables.clock import ManualClock
from log_tables.errors import AuthenticationFailed, InvalidArgument

OLD, NEW = "o" * 64, "n" * 64
HEADER = b"Bearer some.secret"


def cipher(clock: ManualClock, *secrets: str, cluster: str = "c1") -> SessionCipher:
    return SessionCipher(secrets or (NEW,), cluster, clock)


def test_any_gateway_with_the_secret_opens_it(clock: ManualClock) -> None:
    cookie = cipher(clock).seal(HEADER)
    session = cipher(clock).open(cookie)
    assert session is not None
    assert session.header.encode() == HEADER
    assert "some.secret" not in cookie


def test_it_outlives_the_rotation_of_the_secret(clock: ManualClock) -> None:
    cookie = cipher(clock, OLD).seal(HEADER)
    assert cipher(clock, NEW, OLD).open(cookie) is not None
    assert cipher(clock, NEW).open(cookie) is None


def test_one_of_another_cluster_opens_nothing(clock: ManualClock) -> None:
    assert cipher(clock).open(cipher(clock, cluster="c2").seal(HEADER)) is None


@pytest.mark.parametrize("cookie", ["", "x", "é", "gAAAA", "a" * 10_000])
def test_garbage_is_no_session(clock: ManualClock, cookie: str) -> None:
    assert cipher(clock).open(cookie) is None


def test_every_changed_character_makes_it_void(clock: ManualClock) -> None:
    sessions = cipher(clock)
    cookie = sessions.seal(HEADER)
    for at in range(len(cookie.rstrip("="))):
        other = "A" if cookie[at] != "A" else "B"
        changed = cookie[:at] + other + cookie[at + 1 :]
        opened = sessions.open(changed)
        assert opened is None or at == len(cookie.rstrip("=")) - 1  # its last bits mean nothing


def test_it_ends(clock: ManualClock) -> None:
    sessions = cipher(clock)
    cookie = sessions.seal(HEADER)
    short = sessions.seal(HEADER, clock.now_ms() + 1_000)
    clock.advance(1_000)
    assert sessions.open(short) is None
    clock.advance(SESSION_MS - 1_500)
    assert sessions.open(cookie) is not None
    clock.advance(500)
    assert sessions.open(cookie) is None


def test_a_credential_that_does_not_fit_is_refused(clock: ManualClock) -> None:
    with pytest.raises(InvalidArgument, match="too many for a cookie"):
        cipher(clock).seal(b"Bearer " + b"x" * COOKIE_MAX_CHARS)


def test_a_change_needs_the_token_of_its_own_session(clock: ManualClock) -> None:
    sessions = cipher(clock)
    mine, other = sessions.seal(HEADER), sessions.seal(HEADER)
    sessions.check_csrf(mine, "GET", [])
    sessions.check_csrf(mine, "POST", [sessions.csrf_token(mine).encode()])
    for sent in ([], [b""], [sessions.csrf_token(other).encode()]):
        with pytest.raises(AuthenticationFailed, match="X-CSRF-Token"):
            sessions.check_csrf(mine, "DELETE", sent)


def test_a_login_is_no_session_and_a_session_no_login(clock: ManualClock) -> None:
    sessions = cipher(clock)
    login = LoginState("s", "n", "v", "/console", clock.now_ms() + 1_000)
    sealed = sessions.seal_login(login)
    assert sessions.open_login(sealed) == login
    assert sessions.open(sealed) is None
    assert sessions.open_login(sessions.seal(HEADER)) is None
    clock.advance(1_000)
    assert sessions.open_login(sealed) is None


def test_clusters_on_one_host_have_cookies_of_their_own_and_https_has_a_prefix(clock: ManualClock) -> None:
    names = [
        SessionCipher([NEW], cluster, clock, secure).cookie_name
        for cluster in ("11111111-a", "22222222-b")
        for secure in (False, True)
    ]
    assert names == [
        "lakelog_11111111",
        "__Host-lakelog_11111111",
        "lakelog_22222222",
        "__Host-lakelog_22222222",
    ]
