"""An OIDC provider that is a real HTTP server: its keys, and tokens for whoever asks."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from log_tables.clock import SystemClock

ISSUER, AUDIENCE = "https://idp.example", "lakelog"


class Provider:
    """A provider at a free port. `keys` are those of its document; the first of them signs."""

    def __init__(self) -> None:
        self.keys = [RSAKey.generate_key(2048, {"kid": "1", "alg": "RS256", "use": "sig"})]
        self.given = 0
        """How many tokens it has given out."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/moved":
                    self.send_response(302)
                    self.send_header("Location", "/jwks")
                    self.end_headers()
                    return
                self.answer(KeySet([*provider.keys]).as_dict(private=False))

            def do_POST(self) -> None:
                """A token for a client's credentials (RFC 6749, 4.4), which are not looked at."""
                self.rfile.read(int(self.headers["Content-Length"]))
                provider.given += 1
                token = provider.token(exp=SystemClock().now_ms() // 1_000 + 60)
                self.answer({"access_token": token, "token_type": "Bearer", "expires_in": 60})

            def answer(self, body: object) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def token(self, **claims: object) -> str:
        """A token of carol that is good for ten minutes, but for what `claims` say."""
        now_s = SystemClock().now_ms() // 1_000
        made = {"iss": ISSUER, "aud": AUDIENCE, "sub": "carol", "iat": now_s, "exp": now_s + 600, **claims}
        return jwt.encode({"alg": "RS256", "kid": self.keys[0].kid}, made, self.keys[0])

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a gateway that takes its tokens."""
        return {
            "authentication_methods": "oidc",
            "oidc_issuer": ISSUER,
            "oidc_audience": AUDIENCE,
            "oidc_jwks_url": f"{self.url}/jwks",
        }


@contextmanager
def provider() -> Iterator[Provider]:
    """A provider that runs."""
    found = Provider()
    thread = threading.Thread(target=found.server.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        found.server.shutdown()
        thread.join()
        found.server.server_close()
