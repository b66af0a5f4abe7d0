"""Logging in at an OIDC provider: a real HTTP server that gives out codes and tokens."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey
from playwright.sync_api import Browser, expect

from log_tables.clock import SystemClock
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.secured import Secured

CLIENT, SECRET, ISSUER = "the-console", "a client's secret", "https://idp.example"


class Provider:
    """An OIDC provider that logs everybody in as carol; `changes` apply to its next ID token's claims."""

    def __init__(self) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": "1", "alg": "RS256", "use": "sig"})
        self.asked: dict[str, dict[str, str]] = {}
        self.changes: dict[str, object] = {}
        self.access_token = "opaque"
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(url.query).items()}
                if url.path == "/authorize":
                    code = f"code-{len(provider.asked)}"
                    provider.asked[code] = query
                    self.send_response(302)
                    back = httpx.URL(query["redirect_uri"], params={"code": code, "state": query["state"]})
                    self.send_header("Location", f"{back}&session_state=1&iss={ISSUER}")
                    self.end_headers()
                else:
                    self.answer(200, KeySet([provider.key]).as_dict(private=False))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                form = {name: values[0] for name, values in parse_qs(body).items()}
                asked = provider.asked.pop(form["code"], None)
                if asked is None or not self.is_right(form, asked):
                    self.answer(400, {"error": "invalid_grant"})
                else:
                    self.answer(
                        200, {"id_token": provider.token(asked), "access_token": provider.access_token}
                    )

            def is_right(self, form: dict[str, str], asked: dict[str, str]) -> bool:
                digest = hashlib.sha256(form["code_verifier"].encode()).digest()
                challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
                pair = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
                return (
                    challenge == asked["code_challenge"]
                    and form["redirect_uri"] == asked["redirect_uri"]
                    and self.headers["Authorization"] == f"Basic {pair}"
                )

            def answer(self, status: int, body: object) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def token(self, asked: dict[str, str]) -> str:
        now_s = SystemClock().now_ms() // 1000
        claims = {"iss": ISSUER, "aud": CLIENT, "sub": "carol", "iat": now_s, "exp": now_s + 600}
        made = {**claims, "nonce": asked["nonce"], **self.changes}
        return jwt.encode({"alg": "RS256", "kid": "1"}, made, self.key)


class House(NamedTuple):
    """A gateway that knows the provider."""

    gateway: RunningGateway
    provider: Provider
    cookie: str


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    provider = Provider()
    thread = threading.Thread(target=provider.server.serve_forever)
    thread.start()
    data = tmp_path_factory.mktemp("secured")
    cookie = f"lakelog_{Secured(data).cluster.cluster_id[:8]}"
    settings = {
        "authentication_methods": "oidc",
        "oidc_issuer": ISSUER,
        "oidc_audience": CLIENT,
        "oidc_jwks_url": f"{provider.url}/jwks",
        "oidc_client_id": CLIENT,
        "oidc_client_secret": SECRET,
        "oidc_authorization_url": f"{provider.url}/authorize",
        "oidc_token_url": f"{provider.url}/token",
    }
    with running_gateway(data, **settings) as gateway:
        yield House(gateway, provider, cookie)
    provider.server.shutdown()
    provider.server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def _honest(house: House) -> None:
    house.provider.changes, house.provider.access_token = {}, "opaque"


def entered(house: House) -> httpx.Response:
    """The answer at the end of a login."""
    with httpx.Client(base_url=house.gateway.url, follow_redirects=True) as browser:
        return browser.get("/console/login/oidc?next=/console/groups")


def test_a_browser_is_led_there_and_back(house: House, browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{house.gateway.url}/console/groups?order=lag")
    page.get_by_role("link", name=f"Log in at {ISSUER}").click()
    page.wait_for_url("**/console/groups?order=lag")
    expect(page.get_by_text("User:carol")).to_be_visible()
    assert {cookie["name"] for cookie in context.cookies()} == {house.cookie}
    context.close()


def test_the_access_token_is_taken_if_it_is_meant_for_the_cluster(house: House) -> None:
    house.provider.access_token = house.provider.token({"nonce": "none"})
    house.provider.changes = {"aud": "somebody else"}
    answer = entered(house)
    assert answer.status_code == 200
    assert house.cookie in answer.headers["set-cookie"]


@pytest.mark.parametrize(
    "changes",
    [{"nonce": "of another login"}, {"aud": "somebody else"}, {"exp": 1}, {"iss": "https://evil.example"}],
)
def test_a_wrong_token_lets_nobody_in(house: House, changes: dict[str, object]) -> None:
    house.provider.changes = changes
    answer = entered(house)
    assert answer.status_code == 401
    assert f"{house.cookie}=" not in answer.headers.get("set-cookie", "")


def test_an_answer_that_this_browser_did_not_ask_for_lets_nobody_in(house: House) -> None:
    with httpx.Client(base_url=house.gateway.url) as victim:
        assert victim.get("/console/login/oidc/callback?code=x&state=y").status_code == 401
        begun = victim.get("/console/login/oidc")
        assert begun.status_code == 303
        assert victim.get("/console/login/oidc/callback?code=x&state=other").status_code == 401


def test_what_the_provider_says_is_shown_as_text(house: House) -> None:
    with httpx.Client(base_url=house.gateway.url) as browser:
        state = parse_qs(urlsplit(browser.get("/console/login/oidc").headers["location"]).query)["state"][0]
        said = {"error": "access_denied", "error_description": "<script>alert(1)</script>", "state": state}
        answer = browser.get("/console/login/oidc/callback", params=said)
    assert answer.status_code == 401
    assert "&lt;script&gt;" in answer.text
    assert "<script>alert" not in answer.text


def test_a_login_leads_to_no_other_host(house: House) -> None:
    with httpx.Client(base_url=house.gateway.url, follow_redirects=True) as browser:
        answer = browser.get("/console/login/oidc", params={"next": "https://evil.example/"})
    assert "evil" not in answer.text
    assert 'content="0; url=/console"' in answer.text
