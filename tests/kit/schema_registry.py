"""A schema registry that is a real HTTP server, and that misbehaves where it is told to."""

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from log_tables.clock import timer

Answer = tuple[int, bytes]
DRIPS_S = 0.05


@dataclass
class SchemaRegistry:
    """Schemas by id, and versions by subject, as answers have them. `mood` answers instead, where it is set:
    it gets the handler, and returns whether it has answered.
    """

    by_id: dict[str, dict[str, object]] = field(default_factory=dict)
    subjects: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    prefix: str = ""
    authorization: str | None = None
    mood: Callable[["Handler"], bool] = lambda _: False
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def register(self, subject: str, schema_id: int, schema: str, **more: object) -> None:
        versions = self.subjects.setdefault(subject, [])
        self.by_id[str(schema_id)] = {"schema": schema, **more}
        place = {"subject": subject, "version": len(versions) + 1, "id": schema_id}
        versions.append({**place, "schema": schema, **more})

    def answer(self, path: str, body: object = None) -> Answer:
        """The answer to a GET of `path`, or a POST of `body`."""
        parts = [unquote(part) for part in path.removeprefix(self.prefix).strip("/").split("/")]
        match parts:
            case ["schemas", "ids" | "guids", schema_id] if schema_id in self.by_id:
                return 200, json.dumps(self.by_id[schema_id]).encode()
            case ["subjects"]:
                return 200, json.dumps([*self.subjects]).encode()
            case ["subjects", subject] if isinstance(body, dict):
                found = (each for each in self.subjects.get(subject, ()) if each["schema"] == body["schema"])
                return self._found(next(found, None))
            case ["subjects", subject, "versions"] if subject in self.subjects:
                return 200, json.dumps([each["version"] for each in self.subjects[subject]]).encode()
            case ["subjects", subject, "versions", version]:
                versions = self.subjects.get(subject, [])
                place = len(versions) - 1 if version == "latest" else int(version) - 1
                return self._found(versions[place] if 0 <= place < len(versions) else None)
        return self._found(None)

    def _found(self, found: dict[str, object] | None) -> Answer:
        if found is None:
            return 404, b'{"error_code":40403,"message":"Schema not found"}'
        return 200, json.dumps(found).encode()


class Handler(BaseHTTPRequestHandler):
    registry: SchemaRegistry

    def do_GET(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        self.registry.asked.append(self.path)
        if self.registry.mood(self):
            return
        if self.registry.authorization not in (None, self.headers["Authorization"]):
            self.send(401, b'{"error_code":401,"message":"Unauthorized"}')
            return
        self.send(*self.registry.answer(urlsplit(self.path).path, body))

    def do_POST(self) -> None:
        self.do_GET()

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def schema_registry(prefix: str = "", context: ssl.SSLContext | None = None) -> Iterator[SchemaRegistry]:
    """A registry at a free port of this machine, with TLS if there is a `context` of it."""
    found = SchemaRegistry(prefix=prefix)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (Handler,), {"registry": found}))
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    found.url = f"{'http' if context is None else 'https'}://127.0.0.1:{server.server_port}{prefix}"
    thread = threading.Thread(target=server.serve_forever, daemon=True, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def drips(ended: threading.Event) -> Callable[[Handler], bool]:
    """A mood: the head of the answer comes letter by letter, until `ended` is set."""

    def mood(handler: Handler) -> bool:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        try:
            while not ended.wait(DRIPS_S):
                handler.wfile.write(b"x")
        except OSError:
            pass  # the client has gone
        return True

    return mood


def endless(handler: Handler) -> bool:
    """A mood: the body never ends."""
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b" " * 65_536)
    except OSError:
        return True  # the client has gone


def answers(status: int, body: bytes, **headers: str) -> Callable[[Handler], bool]:
    """A mood: this answer to everything."""

    def mood(handler: Handler) -> bool:
        handler.send(status, body, **headers)
        return True

    return mood


def seconds(act: Callable[[], object]) -> float:
    """How long `act` takes."""
    began = timer()
    act()
    return timer() - began
