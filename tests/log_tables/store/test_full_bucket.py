"""A bucket without room: what the store says becomes StoreFull, where nothing was done for certain."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from log_tables.errors import StoreFull, StoreUnavailable
from log_tables.store.bucket import ObjectStore


@contextmanager
def refusing(status: int, code: str) -> Iterator[ObjectStore]:
    """A bucket that answers each request so."""

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    keys = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1", "allow_http": "true"}
    try:
        yield ObjectStore("s3://b/r", {**keys, "endpoint": f"http://127.0.0.1:{server.server_port}"})
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "code"), [(403, "QuotaExceeded"), (400, "XMinioAdminBucketQuotaExceeded")]
)
def test_a_quota_that_is_used_up_refuses_every_put_and_nothing_is_done(status: int, code: str) -> None:
    with refusing(status, code) as store:
        for put in (store.put, store.put_if_absent, store.put_new):
            with pytest.raises(StoreFull, match=f"no room .{code}.; free room or raise the quota"):
                put("a/b", b"x")
        with pytest.raises(StoreFull):
            store.check_room(bytes(1_024))


def test_another_refusal_is_not_taken_for_one() -> None:
    with refusing(403, "AccessDenied") as store, pytest.raises(StoreUnavailable) as raised:
        store.put_new("a/b", b"x")
    assert not isinstance(raised.value, StoreFull)


def test_a_store_without_room_is_asked_again_and_refuses_a_put_that_nobody_sees() -> None:
    with refusing(507, "XMinioStorageFull") as store, pytest.raises(StoreFull, match="XMinioStorageFull"):
        store.put_new("a/b", b"x")
