"""A gateway that takes tokens of an OIDC provider: the provider is a real HTTP server."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from api.process.credential_duty import jwt_verifier_of
from ingest.settings import Settings
from log_tables.clock import ManualClock, SystemClock
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.errors import InvalidConfig
from tests.kit.gateway import running_gateway
from tests.kit.secured import Secured, acl, bearer, error_code
from tests.kit.support import wait_until

ISSUER, AUDIENCE = "https://idp.example", "lakelog"


class Provider:
    """A provider with one key, at a free port."""

    def __init__(self) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": "1", "alg": "RS256", "use": "sig"})
        document = json.dumps(KeySet([self.key]).as_dict(private=False)).encode()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/moved":
                    self.send_response(302)
                    self.send_header("Location", "/jwks")
                    self.end_headers()
                    return
                self.send_response(200)
                self.end_headers()
                self.wfile.write(document)

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def token(self, now_s: int, **claims: object) -> str:
        made = {"iss": ISSUER, "aud": AUDIENCE, "sub": "carol", "iat": now_s, "exp": now_s + 600, **claims}
        return jwt.encode({"alg": "RS256", "kid": "1"}, made, self.key)


@contextmanager
def provider() -> Iterator[Provider]:
    found = Provider()
    thread = threading.Thread(target=found.server.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        found.server.shutdown()
        thread.join()
        found.server.server_close()


def settings(url: str, **more: object) -> Settings:
    named = {"oidc_issuer": ISSUER, "oidc_audience": AUDIENCE, "oidc_jwks_url": url, **more}
    return Settings.model_validate({"authentication_methods": ["oidc"], **named})


def test_a_token_is_a_principal_with_groups_that_acls_name(tmp_path: Path, process: None) -> None:
    root, now_s = Secured(tmp_path), SystemClock().now_ms() // 1_000
    root.allow(acl("Group:writers", Operation.CREATE, ResourceType.CLUSTER))
    with (
        provider() as idp,
        running_gateway(
            tmp_path,
            authentication_methods="oidc",
            oidc_issuer=ISSUER,
            oidc_audience=AUDIENCE,
            oidc_jwks_url=f"{idp.url}/jwks",
        ) as gateway,
    ):

        def create(token: str) -> int:
            body = {"topic_name": f"t{SystemClock().unique_id()}"}
            return error_code(gateway.client.post("/topics", json=body, headers=bearer(token)))

        wait_until(lambda: create(idp.token(now_s, groups=["writers"])) == 0, "the provider's keys are there")
        assert create(idp.token(now_s, groups=["readers"])) == 40301
        assert create(idp.token(now_s, aud="other", groups=["writers"])) == 40101
        assert create(idp.token(now_s, exp=now_s - 3_600, groups=["writers"])) == 40101


@pytest.mark.parametrize("url", ["", "http://idp.example/jwks", "ftp://127.0.0.1x/jwks"])
def test_keys_come_from_where_nobody_can_change_them(url: str) -> None:
    with pytest.raises(InvalidConfig, match="oidc_jwks_url"):
        jwt_verifier_of(settings(url), ManualClock())


def test_a_redirect_brings_no_keys() -> None:
    with provider() as idp:
        clock = SystemClock()
        at, moved = (jwt_verifier_of(settings(f"{idp.url}/{path}"), clock) for path in ("jwks", "moved"))
        assert at is not None
        assert moved is not None
        at.jwks.refresh()
        moved.jwks.refresh()
        assert len(at.jwks.keys) == 1
        assert moved.jwks.keys == ()
