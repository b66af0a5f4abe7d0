"""HTTP proxies before a real S3 server: some break its promise of conditional puts, one has no room."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from log_tables.errors import ObjectMissing
from log_tables.store.store import Store, open_store
from tests.kit.support import S3Server

_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length")

Put = Callable[[Store, str, bytes], int]
"""A conditional put of an object as the proxy does it; returns the status of its answer."""


def without_condition(store: Store, path: str, body: bytes) -> int:
    """Ignore If-None-Match."""
    store.put(path, body)
    return 200


def decided_too_early(racers: int) -> Put:
    """Look whether the object exists, and put it afterwards; all racers look before any of them puts."""
    looked = threading.Barrier(racers)

    def put(store: Store, path: str, body: bytes) -> int:
        try:
            store.head(path)
        except ObjectMissing:
            if "/race/" in path:
                looked.wait()
            store.put(path, body)
            return 200
        return 412

    return put


@contextmanager
def s3_proxy(server: S3Server, put: Put | None = None, full: threading.Event | None = None) -> Iterator[str]:
    """The endpoint of a proxy before `server`: it passes on every request, but conditional puts to `put`, and
    while the bucket is `full` no put at all, as Ceph says it.
    """
    upstream = urlsplit(server.endpoint).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.command == "PUT" and full is not None and full.is_set():
                self._refuse()
                return
            if self.command == "PUT" and put is not None and "If-None-Match" in self.headers:
                self._put(put, body)
                return
            connection = HTTPConnection(upstream)
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():  # Host too: it is signed
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            content = answer.read()
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            length = answer.getheader("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            connection.close()

        def _refuse(self) -> None:
            content = b"<Error><Code>QuotaExceeded</Code></Error>"
            self.send_response_only(403)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _put(self, put: Put, body: bytes) -> None:
            bucket, _, path = unquote(urlsplit(self.path).path).lstrip("/").partition("/")
            store = open_store(f"s3://{bucket}", server.options, create=False)
            self.send_response_only(put(store, path, body))
            self.send_header("ETag", '"0"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815 -- http.server's

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=proxy.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{proxy.server_port}"
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()
